import io.vertx.amqp.AmqpConnection;
import io.vertx.amqp.AmqpMessage;
import io.vertx.amqp.AmqpReceiver;
import io.vertx.amqp.AmqpReceiverOptions;
import io.vertx.amqp.AmqpSender;
import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.json.JsonObject;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URI;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.stream.IntStream;

/**
 * Questions to a broker through the Vert.x AMQP client: each static method that takes an Asked, which may use the queue of its name.
 * `java Questions URL` prints a line of JSON for each one: {"question": NAME, "error": null or the fault}. `java Questions URL NAME QUEUE`
 * asks one question at another queue. The path of an `amqps` URL is the file of the authority's certificate.
 */
public final class Questions {
    private Questions() {}

    static void order_is_kept(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        String[] texts = IntStream.range(0, 200).mapToObj(String::valueOf).toArray(String[]::new);
        ask.send(connection, texts);
        Asked.hears(ask.arrivals(connection), texts);
    }

    static void each_kind_of_body(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        AmqpSender sender = Asked.result(connection.createSender(ask.name));
        Instant now = Instant.ofEpochMilli(1_700_000_000_123L);
        UUID id = UUID.fromString("00112233-4455-6677-8899-aabbccddeeff");
        Buffer large = Buffer.buffer(new byte[3_000_000]);
        for (AmqpMessage message : List.of(
            AmqpMessage.create().withBody("grüße, 世界 🦀").build(), AmqpMessage.create().withBooleanAsBody(true).build(),
            AmqpMessage.create().withLongAsBody(1L << 40).build(), AmqpMessage.create().withDoubleAsBody(0.5).build(),
            AmqpMessage.create().withInstantAsBody(now).build(), AmqpMessage.create().withUuidAsBody(id).build(),
            AmqpMessage.create().withListAsBody(List.of(1, "two")).build(), AmqpMessage.create().withMapAsBody(Map.of("key", 3)).build(),
            AmqpMessage.create().withJsonObjectAsBody(JsonObject.of("say", "hello")).build(),
            AmqpMessage.create().withBufferAsBody(large).build())) {
            Asked.result(sender.sendWithAck(message));
        }
        BlockingQueue<AmqpMessage> arrivals = ask.arrivals(connection);
        Asked.equal("grüße, 世界 🦀", Asked.next(arrivals).bodyAsString());
        Asked.equal(true, Asked.next(arrivals).bodyAsBoolean());
        Asked.equal(1L << 40, Asked.next(arrivals).bodyAsLong());
        Asked.equal(0.5, Asked.next(arrivals).bodyAsDouble());
        Asked.equal(now, Asked.next(arrivals).bodyAsTimestamp());
        Asked.equal(id, Asked.next(arrivals).bodyAsUUID());
        Asked.equal(List.of(1, "two"), Asked.next(arrivals).bodyAsList());
        Asked.equal(Map.of("key", 3), Asked.next(arrivals).bodyAsMap());
        Asked.equal("hello", Asked.next(arrivals).bodyAsJsonObject().getString("say"));
        Asked.equal(large, Asked.next(arrivals).bodyAsBinary());
    }

    static void headers_and_properties(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        AmqpSender sender = Asked.result(connection.createSender(ask.name));
        JsonObject application = JsonObject.of("colour", "red", "size", 7);
        Asked.result(sender.sendWithAck(AmqpMessage.create().durable(true).priority((short) 7).ttl(60_000).id("m-1").correlationId("c-1")
            .subject("subject").replyTo("replies").groupId("group").applicationProperties(application).withBody("a").build()));
        AmqpMessage message = Asked.next(ask.arrivals(connection));
        Asked.equal(List.of("m-1", "c-1", "subject", "replies", "group", ask.name), List.of(message.id(), message.correlationId(),
            message.subject(), message.replyTo(), message.groupId(), message.address()));
        Asked.equal(application, message.applicationProperties());
        Asked.equal(List.of(true, 7, 0), List.of(message.isDurable(), message.priority(), message.deliveryCount()));
        Asked.check(message.ttl() > 0 && message.ttl() <= 60_000, "a ttl of " + message.ttl());
    }

    // --- outcomes

    static void a_released_message_comes_again_uncounted(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        ask.send(connection, "a");
        BlockingQueue<AmqpMessage> arrivals = ask.unsettled(connection);
        Asked.next(arrivals).released();
        AmqpMessage again = Asked.next(arrivals);
        Asked.equal(0, again.deliveryCount());
        again.accepted();
    }

    static void modified_as_failed_counts_the_attempt(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        ask.send(connection, "a");
        BlockingQueue<AmqpMessage> arrivals = ask.unsettled(connection);
        Asked.next(arrivals).modified(true, false);
        AmqpMessage again = Asked.next(arrivals);
        Asked.equal(1, again.deliveryCount());
        again.accepted();
    }

    static void undeliverable_here_goes_to_another_receiver(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        ask.send(connection, "a");
        BlockingQueue<AmqpMessage> arrivals = ask.unsettled(connection);
        Asked.next(arrivals).modified(true, true);
        Asked.equal(1, Asked.next(ask.arrivals(ask.connection())).deliveryCount());
    }

    static void a_rejected_message_is_a_dead_letter(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        ask.send(connection, "a");
        Asked.next(ask.unsettled(connection)).rejected();
        Asked.hears(Asked.arrivals(Asked.result(connection.createReceiver(ask.name + ".dead"))), "a");
    }

    // --- credit, and the ends of links and connections

    static void a_paused_receiver_takes_only_its_buffer(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        AmqpReceiver paused = Asked.result(connection.createReceiver(ask.name, Asked.manual().setMaxBufferedMessages(2)));
        paused.pause();
        Asked.arrivals(paused);
        ask.send(connection, "a", "b", "c", "d");
        BlockingQueue<AmqpMessage> arrivals = ask.arrivals(ask.connection());
        Asked.hears(arrivals, "c", "d");
        Asked.result(paused.close());
        Asked.hears(arrivals, "a", "b");
    }

    static void a_lost_connection_gives_back_what_it_held(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        ask.send(connection, "a", "b");
        Asked.hears(ask.unsettled(connection), "a", "b");
        connection.unwrap().disconnect();
        Asked.hears(ask.arrivals(ask.connection()), "a", "b");
    }

    static void at_most_once_is_settled_on_its_way(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        ask.send(connection, "a");
        AmqpReceiverOptions options = Asked.manual().setQos("AT_MOST_ONCE");
        Asked.hears(Asked.arrivals(Asked.result(connection.createReceiver(ask.name, options))), "a");
    }

    // --- addresses

    static void a_selector_takes_what_matches(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        AmqpSender sender = Asked.result(connection.createSender(ask.name));
        for (String colour : List.of("red", "blue")) {
            JsonObject application = JsonObject.of("colour", colour);
            Asked.result(sender.sendWithAck(AmqpMessage.create().applicationProperties(application).withBody(colour).build()));
        }
        AmqpReceiverOptions options = new AmqpReceiverOptions().setSelector("colour = 'blue'");
        Asked.hears(Asked.arrivals(Asked.result(connection.createReceiver(ask.name, options))), "blue");
        Asked.hears(ask.arrivals(connection), "red");
    }

    static void an_anonymous_sender_goes_by_the_address_of_each_message(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        AmqpSender sender = Asked.result(connection.createAnonymousSender());
        Asked.refused("amqp:not-found", sender.sendWithAck(AmqpMessage.create().address("nowhere").withBody("x").build()));
        Asked.result(sender.sendWithAck(AmqpMessage.create().address(ask.name).withBody("a").build()));
        Asked.hears(ask.arrivals(connection), "a");
    }

    static void an_unknown_address_is_refused_and_the_connection_lives_on(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        Asked.refusedSender("amqp:not-found", connection.createSender("nowhere"));
        Asked.refusedReceiver("amqp:not-found", connection.createReceiver("nowhere"));
        ask.send(connection, "a");
        Asked.hears(ask.arrivals(connection), "a");
    }

    static void a_full_queue_refuses_with_its_reason(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        AmqpSender sender = Asked.result(connection.createSender(ask.name));
        Asked.result(sender.sendWithAck(Asked.text("a")));
        Asked.refused("amqp:resource-limit-exceeded", sender.sendWithAck(Asked.text("b")));
        Asked.hears(ask.arrivals(connection), "a");
    }

    static void a_reply_comes_to_a_dynamic_receiver(Asked ask) throws Exception {
        AmqpConnection connection = ask.connection();
        AmqpReceiver replies = Asked.result(connection.createDynamicReceiver());
        BlockingQueue<AmqpMessage> arrivals = Asked.arrivals(replies);
        AmqpSender sender = Asked.result(connection.createSender(ask.name));
        Asked.result(sender.sendWithAck(AmqpMessage.create().replyTo(replies.address()).withBody("question").build()));
        AmqpConnection service = ask.connection();
        AmqpMessage request = Asked.next(ask.arrivals(service));
        AmqpSender answers = Asked.result(service.createAnonymousSender());
        Asked.result(answers.sendWithAck(AmqpMessage.create().address(request.replyTo()).withBody("answer").build()));
        Asked.hears(arrivals, "answer");
    }

    static void a_durable_subscription_outlives_its_connection(Asked ask) throws Exception {
        AmqpConnection publisher = ask.connection();
        AmqpReceiverOptions options = new AmqpReceiverOptions().setDurable(true).setLinkName("reader");
        for (String text : List.of("a", "b")) {
            AmqpConnection connection = ask.connection(ask.name);
            BlockingQueue<AmqpMessage> arrivals = Asked.arrivals(Asked.result(connection.createReceiver(ask.name, options)));
            if (text.equals("a")) {
                ask.send(publisher, "a");
            }
            Asked.hears(arrivals, text);
            Asked.result(connection.close());
            if (text.equals("a")) {
                ask.send(publisher, "b");
            }
        }
    }

    // --- the program

    private static String fault(Vertx vertx, URI url, Method question, String queue) {
        try (Asked ask = new Asked(vertx, url, queue)) {
            question.invoke(null, ask);
            return null;
        } catch (InvocationTargetException | IllegalAccessException error) {
            Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
            String place = Arrays.stream(cause.getStackTrace()).filter(frame -> frame.getClassName().equals("Questions"))
                .findFirst().map(frame -> " at line " + frame.getLineNumber()).orElse("");
            return cause + place;
        }
    }

    public static void main(String[] arguments) {
        Vertx vertx = Vertx.vertx();
        URI url = URI.create(arguments[0]);
        for (Method question : Questions.class.getDeclaredMethods()) {
            String name = question.getName();
            boolean wanted = arguments.length == 1 || arguments[1].equals(name);
            if (wanted && !question.isSynthetic() && Arrays.equals(question.getParameterTypes(), new Class<?>[] {Asked.class})) {
                String queue = arguments.length == 1 ? name : arguments[2];
                System.out.println(new JsonObject().put("question", name).put("error", fault(vertx, url, question, queue)));
            }
        }
        System.exit(0);
    }
}
