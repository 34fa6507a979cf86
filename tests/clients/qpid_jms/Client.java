import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.qpid.jms.JmsConnectionExtensions;
import org.apache.qpid.jms.JmsConnectionFactory;

/** qpid-jms as a client that takes orders: one JSON command a line on stdin, one JSON answer a line on stdout. See ../driving.py. */
public final class Client {
    /** qpid-jms's own acknowledge mode, each message by itself, and the property that chooses the outcome. */
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;
    private static final String OUTCOME = "JMS_AMQP_ACK_TYPE";
    private static final Pattern CONDITION = Pattern.compile("\\[condition = ([^\\]]+)\\]");

    private Connection connection;
    private final Map<Integer, Session> sessions = new HashMap<>();
    private final Map<String, MessageConsumer> consumers = new HashMap<>();
    private final Map<String, MessageProducer> producers = new HashMap<>();
    private final Map<String, List<Message>> held = new HashMap<>();

    private JsonObject open(JsonObject command) throws Exception {
        List<String> options = new ArrayList<>();
        String mechanism = text(command, "mechanism", "");
        if (mechanism.equals("none")) {
            options.add("amqp.saslLayer=false");
        } else if (!mechanism.isEmpty()) {
            options.add("amqp.saslMechanisms=" + mechanism);
        }
        if (command.has("prefetch")) {
            options.add("jms.prefetchPolicy.all=" + command.get("prefetch").getAsInt());
        }
        if (command.has("idle")) {
            options.add("amqp.idleTimeout=" + command.get("idle").getAsInt() * 1000);
        }
        String url = text(command, "url", null) + (options.isEmpty() ? "" : "?" + String.join("&", options));
        JmsConnectionFactory factory = new JmsConnectionFactory(url);
        if (command.has("ca")) {
            var context = Tls.context(text(command, "ca", null), text(command, "cert", null), text(command, "key", null));
            factory.setExtension(JmsConnectionExtensions.SSL_CONTEXT.toString(), (made, uri) -> context);
        }
        connection = factory.createConnection(text(command, "user", null), text(command, "password", null));
        connection.start();
        return new JsonObject();
    }

    private Session session(JsonObject command) throws JMSException {
        int number = command.has("session") ? command.get("session").getAsInt() : 0;
        if (!sessions.containsKey(number)) {
            sessions.put(number, connection.createSession(false, INDIVIDUAL_ACKNOWLEDGE));
        }
        return sessions.get(number);
    }

    private JsonObject send(JsonObject command) throws JMSException {
        Session session = session(command);
        String to = text(command, "to", null);
        String name = session + " " + to;
        if (!producers.containsKey(name)) {
            producers.put(name, session.createProducer(to == null ? null : session.createQueue(to)));
        }
        MessageProducer producer = producers.get(name);
        JsonArray outcomes = new JsonArray();
        for (JsonElement element : command.getAsJsonArray("messages")) {
            JsonObject given = element.getAsJsonObject();
            JsonObject outcome = new JsonObject();
            try {
                send(session, producer, to, given);
                outcome.addProperty("outcome", "accepted");
            } catch (InvalidDestinationException error) {
                throw error;
            } catch (JMSException error) {
                // JMS has one way to say that a message was not accepted.
                outcome.addProperty("outcome", "refused");
                outcome.add("error", explained(error));
            }
            outcomes.add(outcome);
        }
        JsonObject answer = new JsonObject();
        answer.add("outcomes", outcomes);
        return answer;
    }

    private void send(Session session, MessageProducer producer, String to, JsonObject given) throws JMSException {
        Message message = Messages.made(session, given);
        int mode = given.has("durable") && given.get("durable").getAsBoolean() ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
        int priority = given.has("priority") ? given.get("priority").getAsInt() : 4;
        long ttl = given.has("ttl") ? given.get("ttl").getAsLong() : 0;
        if (to != null) {
            producer.send(message, mode, priority, ttl);
        } else {
            Queue queue = session.createQueue(given.getAsJsonObject("properties").get("to").getAsString());
            producer.send(queue, message, mode, priority, ttl);
        }
    }

    private JsonObject receive(JsonObject command) throws JMSException {
        int count = command.has("count") ? command.get("count").getAsInt() : 1;
        long wait = command.has("wait") ? (long) (command.get("wait").getAsDouble() * 1000) : 20_000;
        JsonArray messages = new JsonArray();
        if (command.has("browse") && command.get("browse").getAsBoolean()) {
            Session session = session(command);
            try (QueueBrowser browser = session.createBrowser(session.createQueue(text(command, "from", null)))) {
                for (Object message : Collections.list(browser.getEnumeration())) {
                    messages.add(Messages.shown((Message) message));
                }
            }
        } else {
            MessageConsumer consumer = consumer(command);
            while (messages.size() < count) {
                Message message = consumer.receive(wait);
                if (message == null) {
                    throw new IllegalStateException("no message within " + wait + " ms");
                }
                messages.add(Messages.shown(message));
                settle(command, message);
            }
        }
        JsonObject answer = new JsonObject();
        answer.add("messages", messages);
        return answer;
    }

    private JsonObject drain(JsonObject command) throws JMSException {
        JsonArray messages = new JsonArray();
        MessageConsumer consumer = consumer(command);
        for (int left = command.get("credit").getAsInt(); left > 0; left--) {
            Message message = consumer.receiveNoWait(); // asks the broker with a drain when nothing is here
            if (message == null) {
                break;
            }
            messages.add(Messages.shown(message));
            settle(command, message);
        }
        JsonObject answer = new JsonObject();
        answer.add("messages", messages);
        return answer;
    }

    private MessageConsumer consumer(JsonObject command) throws JMSException {
        Session session = session(command);
        String name = session + " " + text(command, "from", null);
        if (!consumers.containsKey(name)) {
            consumers.put(name, session.createConsumer(session.createQueue(text(command, "from", null))));
        }
        return consumers.get(name);
    }

    private void settle(JsonObject command, Message message) throws JMSException {
        JsonElement outcome = command.get("outcome");
        if (outcome != null && outcome.isJsonPrimitive() && outcome.getAsString().equals("hold")) {
            held.computeIfAbsent(text(command, "from", null), from -> new ArrayList<>()).add(message);
            return;
        }
        int chosen = 1;
        if (outcome != null && outcome.isJsonPrimitive()) {
            chosen = Map.of("accept", 1, "reject", 2, "release", 3).get(outcome.getAsString());
        } else if (outcome != null) {
            JsonObject modify = outcome.getAsJsonObject().getAsJsonObject("modify");
            chosen = modify.has("undeliverable") && modify.get("undeliverable").getAsBoolean() ? 5 : 4;
        }
        message.setIntProperty(OUTCOME, chosen);
        message.acknowledge();
    }

    private JsonObject settle(JsonObject command) throws JMSException {
        for (Message message : held.getOrDefault(text(command, "from", null), List.of())) {
            settle(command, message);
        }
        held.remove(text(command, "from", null));
        return new JsonObject();
    }

    private JsonObject detach(JsonObject command) throws JMSException {
        for (String name : List.of("from", "to")) {
            if (!command.has(name)) {
                continue;
            }
            String key = session(command) + " " + text(command, name, null);
            if (name.equals("from") && consumers.containsKey(key)) {
                consumers.remove(key).close();
            }
            if (name.equals("to") && producers.containsKey(key)) {
                producers.remove(key).close();
            }
        }
        return new JsonObject();
    }

    private JsonObject close() throws JMSException {
        if (connection != null) {
            connection.close();
        }
        return new JsonObject();
    }

    private JsonObject carriedOut(JsonObject command) {
        try {
            return switch (text(command, "do", "")) {
                case "open" -> open(command);
                case "send" -> send(command);
                case "receive" -> receive(command);
                case "drain" -> drain(command);
                case "settle" -> settle(command);
                case "detach" -> detach(command);
                case "close" -> close();
                default -> throw new IllegalArgumentException("an unknown command");
            };
        } catch (Exception error) {
            JsonObject answer = new JsonObject();
            answer.add("error", explained(error));
            return answer;
        }
    }

    private static JsonObject explained(Exception error) {
        String said = error.getClass().getSimpleName() + ": " + error.getMessage();
        Matcher condition = CONDITION.matcher(said);
        String level = !(error instanceof JMSException) ? "client" : error instanceof InvalidDestinationException ? "link" : "connection";
        JsonObject answer = new JsonObject();
        answer.addProperty("level", level);
        answer.addProperty("condition", condition.find() ? condition.group(1) : null);
        answer.addProperty("description", said);
        return answer;
    }

    static String text(JsonObject command, String name, String otherwise) {
        return command.has(name) && !command.get(name).isJsonNull() ? command.get(name).getAsString() : otherwise;
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject command = JsonParser.parseString(line).getAsJsonObject();
            if (text(command, "do", "").equals("open")) {
                client = new Client(); // of another test, in the same process
            }
            JsonObject answer = client.carriedOut(command);
            System.out.write((answer + "\n").getBytes(StandardCharsets.UTF_8));
            System.out.flush();
        }
        System.exit(0);
    }
}
