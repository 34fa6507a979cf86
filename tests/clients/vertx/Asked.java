import io.vertx.amqp.AmqpClient;
import io.vertx.amqp.AmqpClientOptions;
import io.vertx.amqp.AmqpConnection;
import io.vertx.amqp.AmqpMessage;
import io.vertx.amqp.AmqpReceiver;
import io.vertx.amqp.AmqpReceiverOptions;
import io.vertx.amqp.AmqpSender;
import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.core.net.PemTrustOptions;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The queue of one question, its clients, and checks. */
final class Asked implements AutoCloseable {
    private static final long PATIENCE_S = 5;

    final String name;
    private final Vertx vertx;
    private final URI url;
    private final List<AmqpClient> clients = new ArrayList<>();

    Asked(Vertx vertx, URI url, String name) {
        this.vertx = vertx;
        this.url = url;
        this.name = name;
    }

    // --- connections and links

    AmqpConnection connection() throws Exception {
        return connection(null);
    }

    AmqpConnection connection(String container) throws Exception {
        AmqpClientOptions options = new AmqpClientOptions().setHost(url.getHost()).setPort(url.getPort());
        if (container != null) {
            options.setContainerId(container);
        }
        if (url.getUserInfo() != null) {
            String[] login = url.getUserInfo().split(":");
            options.setUsername(login[0]).setPassword(login[1]);
        }
        if (url.getScheme().equals("amqps")) {
            options.setSsl(true).setTrustOptions(new PemTrustOptions().addCertPath(url.getPath()));
        }
        AmqpClient client = AmqpClient.create(vertx, options);
        clients.add(client);
        return result(client.connect());
    }

    @Override
    public void close() {
        clients.forEach(AmqpClient::close);
    }

    /** Messages of a receiver, which accepts them on arrival unless its options differ. */
    static BlockingQueue<AmqpMessage> arrivals(AmqpReceiver receiver) {
        BlockingQueue<AmqpMessage> arrivals = new LinkedBlockingQueue<>();
        receiver.handler(arrivals::add);
        return arrivals;
    }

    BlockingQueue<AmqpMessage> arrivals(AmqpConnection connection) throws Exception {
        return arrivals(result(connection.createReceiver(name)));
    }

    BlockingQueue<AmqpMessage> unsettled(AmqpConnection connection) throws Exception {
        return arrivals(result(connection.createReceiver(name, manual())));
    }

    static AmqpReceiverOptions manual() {
        return new AmqpReceiverOptions().setAutoAcknowledgement(false);
    }

    /** Send texts, and wait until the broker has accepted each one. */
    void send(AmqpConnection connection, String... texts) throws Exception {
        AmqpSender sender = result(connection.createSender(name));
        for (String text : texts) {
            result(sender.sendWithAck(text(text)));
        }
        result(sender.close());
    }

    static AmqpMessage text(String text) {
        return AmqpMessage.create().durable(true).withBody(text).build();
    }

    // --- results

    static <T> T result(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(PATIENCE_S, TimeUnit.SECONDS);
    }

    static AmqpMessage next(BlockingQueue<AmqpMessage> arrivals) throws InterruptedException {
        AmqpMessage message = arrivals.poll(PATIENCE_S, TimeUnit.SECONDS);
        check(message != null, "no message within " + PATIENCE_S + " s");
        return message;
    }

    static void hears(BlockingQueue<AmqpMessage> arrivals, String... texts) throws InterruptedException {
        for (String text : texts) {
            equal(text, next(arrivals).bodyAsString());
        }
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void equal(Object expected, Object actual) {
        check(Objects.equals(expected, actual), actual + " instead of " + expected);
    }

    static void refused(String condition, Future<?> future) throws Exception {
        try {
            result(future);
        } catch (ExecutionException error) {
            check(error.getMessage().contains(condition), error.getMessage() + " instead of " + condition);
            return;
        }
        throw new AssertionError("not refused");
    }

    /** Vert.x reports the refusal of a link by its future, or later to its exception handler if that comes in another read. */
    static void refusedReceiver(String condition, Future<AmqpReceiver> attaching) throws Exception {
        CompletableFuture<String> reason = new CompletableFuture<>();
        attaching.onFailure(error -> reason.complete(error.toString()));
        attaching.onSuccess(receiver -> receiver.exceptionHandler(error -> reason.complete(error + " " + error.getCause())));
        check(reason.get(PATIENCE_S, TimeUnit.SECONDS).contains(condition), reason.get() + " instead of " + condition);
    }

    static void refusedSender(String condition, Future<AmqpSender> attaching) throws Exception {
        CompletableFuture<String> reason = new CompletableFuture<>();
        attaching.onFailure(error -> reason.complete(error.toString()));
        attaching.onSuccess(sender -> sender.exceptionHandler(error -> reason.complete(error + " " + error.getCause())));
        check(reason.get(PATIENCE_S, TimeUnit.SECONDS).contains(condition), reason.get() + " instead of " + condition);
    }
}
