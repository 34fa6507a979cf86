import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** A program with the vendor's Java SDK: the commands and answers of ../servicebus/client.py. */
public final class Client {
    private record Locked(ServiceBusReceiverClient receiver, ServiceBusReceivedMessage message) {}

    private String connection;
    private ServiceBusClientBuilder builder;
    private ServiceBusSenderClient anchor; // an unused client: the SDK closes the connection with its last client
    private final Map<String, ServiceBusSenderClient> senders = new HashMap<>();
    private final Map<String, ServiceBusReceiverClient> receivers = new HashMap<>();
    private final List<ServiceBusSessionReceiverClient> acceptors = new ArrayList<>();
    private final List<ServiceBusProcessorClient> loops = new ArrayList<>();
    private final Map<String, Locked> locked = new HashMap<>();

    private JsonObject open(JsonObject command) throws Exception {
        if (builder != null) {
            close(new JsonObject());
        }
        if (command.has("ca")) {
            SSLContext.setDefault(trusting(Path.of(command.get("ca").getAsString())));
        }
        connection = command.get("connection").getAsString();
        builder = builder(number(command, "retries", 0), 15);
        if (flag(command, "websocket")) {
            builder.transportType(AmqpTransportType.AMQP_WEB_SOCKETS);
        }
        anchor = builder.sender().queueName("anchor").buildClient();
        return new JsonObject();
    }

    private ServiceBusClientBuilder builder(int retries, int limit) {
        AmqpRetryOptions retry = new AmqpRetryOptions().setMaxRetries(retries)
            .setDelay(Duration.ofMillis(200)).setTryTimeout(Duration.ofSeconds(limit));
        return new ServiceBusClientBuilder().connectionString(connection).retryOptions(retry);
    }

    private static SSLContext trusting(Path authority) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream file = Files.newInputStream(authority)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    private ServiceBusSenderClient sender(JsonObject command) {
        return senders.computeIfAbsent(command.get("to").getAsString(), name -> builder.sender().queueName(name).buildClient());
    }

    private ServiceBusReceiverClient receiver(JsonObject command) {
        return receivers.computeIfAbsent(command.get("from").getAsString(), from -> {
            var made = builder.receiver().prefetchCount(number(command, "prefetch", 0))
                .maxAutoLockRenewDuration(Duration.ofSeconds(number(command, "auto_renew", 0)));
            if (flag(command, "delete")) {
                made.receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE);
            }
            String entity = from.split("#")[0];
            if (entity.endsWith("/dead")) {
                made.subQueue(SubQueue.DEAD_LETTER_QUEUE);
                entity = entity.substring(0, entity.length() - 5);
            }
            String[] parts = entity.split("/");
            return (parts.length == 1 ? made.queueName(entity) : made.topicName(parts[0]).subscriptionName(parts[1])).buildClient();
        });
    }

    private JsonObject send(JsonObject command) {
        ServiceBusSenderClient sender = sender(command);
        List<ServiceBusMessage> messages = messages(command);
        if (flag(command, "together")) {
            sender.sendMessages(messages);
        } else if (flag(command, "batch")) {
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            for (ServiceBusMessage message : messages) {
                if (!batch.tryAddMessage(message)) {
                    throw new IllegalStateException("the batch is full");
                }
            }
            sender.sendMessages(batch);
        } else {
            messages.forEach(sender::sendMessage);
        }
        return new JsonObject();
    }

    private JsonObject schedule(JsonObject command) {
        JsonArray numbers = new JsonArray();
        sender(command).scheduleMessages(messages(command), time(command.get("at"))).forEach(numbers::add);
        JsonObject answer = new JsonObject();
        answer.add("numbers", numbers);
        return answer;
    }

    private JsonObject cancel(JsonObject command) {
        sender(command).cancelScheduledMessages(numbers(command));
        return new JsonObject();
    }

    private JsonObject receive(JsonObject command) {
        ServiceBusReceiverClient receiver = receiver(command);
        int count = number(command, "count", 1);
        long wait = (long) (1000 * (command.has("wait") ? command.get("wait").getAsDouble() : 5));
        JsonArray seen = new JsonArray();
        while (seen.size() < count) { // a call ends early if messages come in several reads
            int before = seen.size();
            for (ServiceBusReceivedMessage message : receiver.receiveMessages(count - before, Duration.ofMillis(wait))) {
                seen.add(seen(message));
                locked.put(message.getLockToken(), new Locked(receiver, message));
            }
            if (seen.size() == before) {
                break;
            }
        }
        return answer(seen);
    }

    private JsonObject receiveDeferred(JsonObject command) {
        ServiceBusReceiverClient receiver = receiver(command);
        JsonArray seen = new JsonArray();
        for (ServiceBusReceivedMessage message : receiver.receiveDeferredMessageBatch(numbers(command))) {
            seen.add(seen(message));
            locked.put(message.getLockToken(), new Locked(receiver, message));
        }
        return answer(seen);
    }

    /** The SDK waits for the next session as long as for any answer. It shows no end of the session's lock. */
    private JsonObject accept(JsonObject command) {
        ServiceBusClientBuilder by = command.has("wait") ? builder(0, number(command, "wait", 0)) : builder;
        var made = by.sessionReceiver().maxAutoLockRenewDuration(Duration.ZERO);
        if (flag(command, "delete")) {
            made.receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE);
        }
        String from = command.get("from").getAsString();
        String[] parts = from.split("#")[0].split("/");
        made = parts.length == 1 ? made.queueName(parts[0]) : made.topicName(parts[0]).subscriptionName(parts[1]);
        ServiceBusSessionReceiverClient acceptor = made.buildClient();
        acceptors.add(acceptor);
        ServiceBusReceiverClient receiver = command.has("session")
            ? acceptor.acceptSession(command.get("session").getAsString()) : acceptor.acceptNextSession();
        receivers.put(from, receiver);
        return answer("session", receiver.getSessionId());
    }

    private JsonObject state(JsonObject command) {
        byte[] state = receiver(command).getSessionState();
        return answer("state", state == null ? null : new String(state, StandardCharsets.UTF_8));
    }

    private JsonObject setState(JsonObject command) {
        JsonElement state = command.get("state");
        receiver(command).setSessionState(state.isJsonNull() ? null : state.getAsString().getBytes(StandardCharsets.UTF_8));
        return new JsonObject();
    }

    private JsonObject transact(JsonObject command) {
        ServiceBusSenderClient sender = sender(command);
        ServiceBusTransactionContext transaction = sender.createTransaction();
        messages(command).forEach(message -> sender.sendMessage(message, transaction));
        command.getAsJsonArray("tokens").forEach(token -> {
            Locked lock = locked.get(token.getAsString());
            lock.receiver.complete(lock.message, new CompleteOptions().setTransactionContext(transaction));
        });
        if (flag(command, "commit")) {
            sender.commitTransaction(transaction);
        } else {
            sender.rollbackTransaction(transaction);
        }
        return new JsonObject();
    }

    private JsonObject rules(JsonObject command) {
        String[] parts = command.get("from").getAsString().split("/");
        JsonArray names = new JsonArray();
        try (var manager = builder.ruleManager().topicName(parts[0]).subscriptionName(parts[1]).buildClient()) {
            switch (command.get("do").getAsString()) {
                case "rules" -> manager.listRules().forEach(rule -> names.add(rule.getName()));
                case "create_rule" -> manager.createRule(command.get("name").getAsString(), Messages.rule(command));
                default -> manager.deleteRule(command.get("name").getAsString());
            }
        }
        JsonObject answer = new JsonObject();
        answer.add("names", names);
        return answer;
    }

    /** The SDK's own loop. It completes handled messages, abandons failed ones, and runs until {@code leave}. */
    private JsonObject process(JsonObject command) throws Exception {
        int count = number(command, "count", 1);
        BlockingQueue<Object> events = new LinkedBlockingQueue<>();
        List<String> failing = new ArrayList<>();
        if (command.has("fail")) {
            command.getAsJsonArray("fail").forEach(body -> failing.add(body.getAsString()));
        }
        long busy = (long) (1000 * (command.has("busy") ? command.get("busy").getAsDouble() : 0));
        ServiceBusProcessorClient loop = builder.processor().queueName(command.get("from").getAsString())
            .maxAutoLockRenewDuration(Duration.ofSeconds(number(command, "auto_renew", 0)))
            .processMessage(context -> handle(context, events, failing, busy))
            .processError(context -> {
                if (!(context.getException() instanceof NotYet) && !(context.getException().getCause() instanceof NotYet)) {
                    events.add(context.getException());
                }
            })
            .buildProcessorClient();
        loops.add(loop);
        loop.start();
        JsonArray seen = new JsonArray();
        while (seen.size() < count) {
            Object event = events.poll(20, TimeUnit.SECONDS);
            if (!(event instanceof JsonObject)) {
                throw event instanceof Exception ? (Exception) event : new Exception("no message within 20 s");
            }
            seen.add((JsonObject) event);
        }
        return answer(seen);
    }

    private static final class NotYet extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private static void handle(
        ServiceBusReceivedMessageContext context, BlockingQueue<Object> events, List<String> failing, long busy) {
        ServiceBusReceivedMessage message = context.getMessage();
        if (busy > 0) {
            try {
                Thread.sleep(busy);
            } catch (InterruptedException end) {
                Thread.currentThread().interrupt();
            }
        }
        events.add(seen(message));
        if (message.getDeliveryCount() == 0 && failing.contains(message.getBody().toString())) {
            throw new NotYet();
        }
    }

    private JsonObject peek(JsonObject command) {
        JsonArray seen = new JsonArray();
        int count = number(command, "count", 1);
        var peeked = command.has("number") ? receiver(command).peekMessages(count, command.get("number").getAsLong())
            : receiver(command).peekMessages(count);
        peeked.forEach(message -> seen.add(seen(message)));
        return answer(seen);
    }

    private JsonObject settle(JsonObject command) {
        Locked lock = locked.get(command.get("token").getAsString());
        Map<String, Object> changed = new HashMap<>();
        if (command.has("changed")) {
            command.getAsJsonObject("changed").asMap().forEach((name, value) -> changed.put(name, value.getAsString()));
        }
        switch (command.has("how") ? command.get("how").getAsString() : "complete") {
            case "complete" -> lock.receiver.complete(lock.message);
            case "abandon" -> lock.receiver.abandon(lock.message, new AbandonOptions().setPropertiesToModify(changed));
            case "defer" -> lock.receiver.defer(lock.message, new DeferOptions().setPropertiesToModify(changed));
            default -> {
                DeadLetterOptions options = new DeadLetterOptions().setPropertiesToModify(changed);
                if (command.has("reason")) {
                    options.setDeadLetterReason(command.get("reason").getAsString());
                    options.setDeadLetterErrorDescription(command.get("description").getAsString());
                }
                lock.receiver.deadLetter(lock.message, options);
            }
        }
        return new JsonObject();
    }

    private JsonObject renew(JsonObject command) {
        Locked lock = locked.get(command.get("token").getAsString());
        return until(lock.receiver.renewMessageLock(lock.message));
    }

    private static JsonObject until(OffsetDateTime time) {
        JsonObject answer = new JsonObject();
        answer.addProperty("until", seconds(time));
        return answer;
    }

    private JsonObject leave() {
        loops.forEach(ServiceBusProcessorClient::close);
        loops.clear();
        receivers.values().forEach(ServiceBusReceiverClient::close);
        acceptors.forEach(ServiceBusSessionReceiverClient::close);
        acceptors.clear();
        senders.values().forEach(ServiceBusSenderClient::close);
        receivers.clear();
        senders.clear();
        locked.clear();
        return new JsonObject();
    }

    private JsonObject close(JsonObject command) {
        if (command.has("from")) {
            receivers.remove(command.get("from").getAsString()).close();
        } else {
            leave();
            anchor.close();
        }
        return new JsonObject();
    }

    private static List<ServiceBusMessage> messages(JsonObject command) {
        List<ServiceBusMessage> messages = new ArrayList<>();
        command.getAsJsonArray("messages").forEach(fields -> messages.add(Messages.of(fields.getAsJsonObject())));
        return messages;
    }

    private static JsonObject seen(ServiceBusReceivedMessage message) {
        return Messages.seen(message);
    }

    private static JsonObject answer(JsonArray messages) {
        JsonObject answer = new JsonObject();
        answer.add("messages", messages);
        return answer;
    }

    private static JsonObject answer(String name, String value) {
        JsonObject answer = new JsonObject();
        answer.addProperty(name, value);
        return answer;
    }

    private static List<Long> numbers(JsonObject command) {
        List<Long> numbers = new ArrayList<>();
        command.getAsJsonArray("numbers").forEach(number -> numbers.add(number.getAsLong()));
        return numbers;
    }

    private static boolean flag(JsonObject command, String name) {
        return command.has(name) && command.get(name).getAsBoolean();
    }

    private static int number(JsonObject command, String name, int otherwise) {
        return command.has(name) ? command.get(name).getAsInt() : otherwise;
    }

    static OffsetDateTime time(JsonElement seconds) {
        return Instant.ofEpochMilli((long) (seconds.getAsDouble() * 1000)).atOffset(ZoneOffset.UTC);
    }

    static double seconds(OffsetDateTime time) {
        return time.toInstant().toEpochMilli() / 1000.0;
    }

    private JsonObject carryOut(JsonObject command) throws Exception {
        return switch (command.get("do").getAsString()) {
            case "open" -> open(command);
            case "send" -> send(command);
            case "schedule" -> schedule(command);
            case "cancel" -> cancel(command);
            case "receive" -> receive(command);
            case "process" -> process(command);
            case "peek" -> peek(command);
            case "settle" -> settle(command);
            case "renew" -> renew(command);
            case "receive_deferred" -> receiveDeferred(command);
            case "accept" -> accept(command);
            case "renew_session" -> until(receiver(command).renewSessionLock());
            case "state" -> state(command);
            case "set_state" -> setState(command);
            case "transact" -> transact(command);
            case "rules", "create_rule", "delete_rule" -> rules(command);
            case "leave" -> leave();
            case "close" -> close(command);
            default -> throw new IllegalArgumentException("unknown command " + command);
        };
    }

    private static String nameOf(Throwable error) {
        if (error instanceof ServiceBusException) {
            return ((ServiceBusException) error).getReason().toString();
        }
        if (error instanceof AmqpException && ((AmqpException) error).getErrorCondition() != null) {
            return ((AmqpException) error).getErrorCondition().name();
        }
        boolean isTimeout = error.getCause() instanceof TimeoutException;
        return (isTimeout ? error.getCause() : error).getClass().getSimpleName();
    }

    private static JsonObject failure(Throwable error) {
        JsonObject failure = new JsonObject();
        failure.addProperty("level", nameOf(error));
        failure.add("condition", null);
        failure.addProperty("description", String.valueOf(error.getMessage()));
        JsonObject answer = new JsonObject();
        answer.add("error", failure);
        return answer;
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonObject answer;
            try {
                answer = client.carryOut(JsonParser.parseString(line).getAsJsonObject());
            } catch (Exception error) {
                answer = failure(error);
            }
            System.out.println(answer);
        }
        System.exit(0); // the SDK's threads would keep the process
    }
}
