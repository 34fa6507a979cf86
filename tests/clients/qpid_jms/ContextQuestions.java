import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.Queue;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.Topic;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** JMS 2.0's simplified API. */
final class ContextQuestions {
    private ContextQuestions() {}

    static void a_context_sends_and_receives_bodies(Asked ask) throws Exception {
        JMSContext context = ask.context();
        Queue queue = context.createQueue(ask.name);
        context.createProducer().setProperty("colour", "red").setPriority(7).setTimeToLive(600_000).send(queue, "text");
        context.createProducer().send(queue, Map.of("key", 1L));
        context.createProducer().send(queue, new byte[] {1, 2});
        JMSConsumer consumer = context.createConsumer(queue);
        Asked.equal("text", consumer.receiveBody(String.class, Asked.PATIENCE));
        Asked.equal(Map.of("key", 1L), consumer.receiveBody(Map.class, Asked.PATIENCE));
        Asked.equal(2, consumer.receiveBody(byte[].class, Asked.PATIENCE).length);
        Asked.check(consumer.receiveNoWait() == null, "one too many");
    }

    static void a_context_listens(Asked ask) throws Exception {
        JMSContext context = ask.context();
        CompletableFuture<String> heard = new CompletableFuture<>();
        context.createConsumer(context.createQueue(ask.name)).setMessageListener(message -> {
            try {
                heard.complete(message.getBody(String.class));
            } catch (Exception error) {
                heard.completeExceptionally(error);
            }
        });
        JMSContext other = context.createContext(JMSContext.AUTO_ACKNOWLEDGE);
        other.createProducer().send(other.createQueue(ask.name), "a");
        Asked.equal("a", heard.get(Asked.PATIENCE, TimeUnit.MILLISECONDS));
        other.close();
    }

    static void a_transacted_context(Asked ask) throws Exception {
        JMSContext outside = ask.context();
        JMSContext context = outside.createContext(JMSContext.SESSION_TRANSACTED);
        Queue queue = context.createQueue(ask.name);
        context.createProducer().send(queue, "never");
        context.rollback();
        context.createProducer().send(queue, "a");
        context.commit();
        Asked.equal("a", outside.createConsumer(queue).receiveBody(String.class, Asked.PATIENCE));
        context.close();
    }

    static void a_context_with_temporary_queue_topic_and_delay(Asked ask) throws Exception {
        JMSContext context = ask.context();
        TemporaryQueue temporary = context.createTemporaryQueue();
        context.createProducer().setDeliveryDelay(50).send(temporary, "a");
        Asked.equal("a", context.createConsumer(temporary).receiveBody(String.class, Asked.PATIENCE));
        Topic topic = context.createTopic(ask.name);
        JMSConsumer shared = context.createSharedConsumer(topic, ask.name);
        context.createProducer().send(topic, "b");
        Asked.equal("b", shared.receiveBody(String.class, Asked.PATIENCE));
    }

    static void a_context_acknowledges(Asked ask) throws Exception {
        JMSContext context = ask.context();
        JMSContext careful = context.createContext(JMSContext.CLIENT_ACKNOWLEDGE);
        Queue queue = context.createQueue(ask.name);
        context.createProducer().send(queue, "a").send(queue, "b");
        JMSConsumer consumer = careful.createConsumer(queue);
        Asked.equal("a", consumer.receiveBody(String.class, Asked.PATIENCE));
        careful.recover();
        Asked.equal("a", consumer.receiveBody(String.class, Asked.PATIENCE));
        careful.acknowledge();
        consumer.close();
        careful.close();
        Asked.equal("b", context.createConsumer(queue).receiveBody(String.class, Asked.PATIENCE));
    }

    static void a_context_refuses_what_is_not_there(Asked ask) throws Exception {
        JMSContext context = ask.context();
        Asked.refused(JMSRuntimeException.class, () -> context.createConsumer(context.createQueue("nobody declared this")));
        Asked.refused(JMSRuntimeException.class, () -> context.createProducer().send(context.createQueue("nobody declared this"), "a"));
    }
}
