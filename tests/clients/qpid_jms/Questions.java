import com.google.gson.JsonObject;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * What JMS 2.0 promises, asked of a broker through qpid-jms as it is, also by Spring JMS: each static method of the classes below that
 * takes an Asked is a question, and its name is the queue or topic that it may use. `java Questions URL [NAME …]` prints a line of JSON
 * for each: {"question": NAME, "error": null or what was wrong}.
 */
public final class Questions {
    private static final List<Class<?>> SUBJECTS = List.of(
        QueueQuestions.class, MessageQuestions.class, AcknowledgeQuestions.class, TransactionQuestions.class, TimeQuestions.class,
        TemporaryQuestions.class, TopicQuestions.class, SubscriptionQuestions.class, FlowQuestions.class, ContextQuestions.class,
        SpringQuestions.class);
    private static final int AT_ONCE = 4; // most of them wait most of the time
    private static final long LIMIT_S = 20; // for one question

    private Questions() {}

    private static String answer(ExecutorService threads, Method question, String url) {
        Asked asked = new Asked(url, question.getName());
        Future<?> answer = threads.submit(() -> {
            question.invoke(null, asked);
            return null;
        });
        try {
            answer.get(LIMIT_S, TimeUnit.SECONDS);
            return null;
        } catch (TimeoutException error) {
            answer.cancel(true);
            return "no answer within " + LIMIT_S + " s";
        } catch (Exception error) {
            Throwable cause = error;
            while (cause.getCause() != null && (cause instanceof java.util.concurrent.ExecutionException || cause instanceof InvocationTargetException)) {
                cause = cause.getCause();
            }
            String where = Arrays.stream(cause.getStackTrace()).filter(frame -> frame.getClassName().endsWith("Questions"))
                .findFirst().map(frame -> " at line " + frame.getLineNumber()).orElse("");
            return cause.getClass().getSimpleName() + ": " + cause.getMessage() + where;
        } finally {
            asked.close();
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<String> wanted = Arrays.asList(arguments).subList(1, arguments.length);
        ExecutorService threads = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        ExecutorService askers = Executors.newFixedThreadPool(AT_ONCE);
        for (Class<?> subject : SUBJECTS) {
            List<Method> questions = new ArrayList<>(Arrays.asList(subject.getDeclaredMethods()));
            questions.removeIf(method -> !Modifier.isStatic(method.getModifiers()) || method.isSynthetic()
                || !Arrays.equals(method.getParameterTypes(), new Class<?>[] {Asked.class})
                || !wanted.isEmpty() && !wanted.contains(method.getName()));
            questions.sort(Comparator.comparing(Method::getName));
            for (Method question : questions) {
                askers.submit(() -> say(question.getName(), answer(threads, question, arguments[0])));
            }
        }
        askers.shutdown();
        askers.awaitTermination(1, TimeUnit.HOURS);
        System.exit(0);
    }

    private static synchronized void say(String question, String error) {
        JsonObject line = new JsonObject();
        line.addProperty("question", question);
        line.addProperty("error", error);
        byte[] octets = (line + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(octets, 0, octets.length);
        System.out.flush();
    }
}
