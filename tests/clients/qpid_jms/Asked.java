import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.qpid.jms.JmsConnectionFactory;

/** One question's place: its broker, its queue and topic, the connections that end with it, and what it finds wrong. */
final class Asked implements AutoCloseable {
    /** Milliseconds for something that comes. */
    static final long PATIENCE = 5000;
    /** qpid-jms's own acknowledge mode, each message by itself. */
    static final int INDIVIDUAL_ACKNOWLEDGE = 101;

    final String name;
    private final String url;
    private final List<AutoCloseable> open = new ArrayList<>();

    Asked(String url, String name) {
        this.url = url;
        this.name = name;
    }

    /** A step that has to be refused. */
    interface Step {
        void run() throws Exception;
    }

    // --- connections

    JmsConnectionFactory factory(String... options) {
        List<String> all = new ArrayList<>(List.of("jms.requestTimeout=8000", "jms.sendTimeout=8000", "jms.closeTimeout=3000"));
        all.addAll(Arrays.asList(options));
        return new JmsConnectionFactory(url + "?" + String.join("&", all));
    }

    synchronized Connection connection(String... options) throws JMSException {
        Connection connection = factory(options).createConnection();
        open.add(connection);
        connection.start();
        return connection;
    }

    Connection client(String id, String... options) throws JMSException {
        String[] all = Arrays.copyOf(options, options.length + 1);
        all[options.length] = "jms.clientID=" + name + "." + id;
        return connection(all);
    }

    Session session(String... options) throws JMSException {
        return session(Session.AUTO_ACKNOWLEDGE, options);
    }

    Session session(int mode, String... options) throws JMSException {
        return connection(options).createSession(mode);
    }

    synchronized JMSContext context(String... options) {
        JMSContext context = factory(options).createContext();
        open.add(context);
        return context;
    }

    synchronized void closes(AutoCloseable opened) {
        open.add(opened);
    }

    @Override
    public synchronized void close() {
        for (AutoCloseable one : open) {
            try {
                one.close();
            } catch (Exception error) {
                // It ends with its process.
            }
        }
    }

    // --- destinations

    Queue queue(Session session) throws JMSException {
        return session.createQueue(name);
    }

    Topic topic(Session session) throws JMSException {
        return session.createTopic(name);
    }

    // --- messages

    static void send(Session session, Destination to, String... texts) throws JMSException {
        try (MessageProducer producer = session.createProducer(to)) {
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        }
    }

    /** The next message's text; fails when none comes. */
    static String next(MessageConsumer consumer) throws JMSException {
        return text(message(consumer));
    }

    static Message message(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(PATIENCE);
        check(message != null, "no message within " + PATIENCE + " ms");
        return message;
    }

    static String text(Message message) throws JMSException {
        return ((TextMessage) message).getText();
    }

    static void hears(MessageConsumer consumer, String... texts) throws JMSException {
        for (String text : texts) {
            equal(text, next(consumer));
        }
    }

    /** The broker has nothing for it now: asked, not waited for. */
    static void hearsNothing(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receiveNoWait();
        check(message == null, "an unexpected message: " + (message instanceof TextMessage text ? text.getText() : message));
    }

    // --- what holds

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void equal(Object expected, Object found) {
        check(Objects.equals(expected, found), found + " instead of " + expected);
    }

    static <T extends Exception> T refused(Class<T> kind, Step step) {
        try {
            step.run();
        } catch (Exception error) {
            check(kind.isInstance(error), error + " instead of " + kind.getSimpleName());
            return kind.cast(error);
        }
        throw new AssertionError("not refused");
    }

    /** Until something is so that nobody tells us of. */
    static void await(String what, java.util.concurrent.Callable<Boolean> condition) throws Exception {
        long end = System.nanoTime() + PATIENCE * 1_000_000;
        while (!condition.call()) {
            check(System.nanoTime() < end, "waited in vain: " + what);
            Thread.sleep(10);
        }
    }
}
