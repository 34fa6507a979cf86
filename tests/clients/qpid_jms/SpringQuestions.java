import jakarta.jms.MessageListener;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.springframework.jms.InvalidDestinationException;
import org.springframework.jms.connection.CachingConnectionFactory;
import org.springframework.jms.connection.JmsTransactionManager;
import org.springframework.jms.core.JmsClient;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.jms.listener.DefaultMessageListenerContainer;
import org.springframework.jms.listener.adapter.MessageListenerAdapter;
import org.springframework.transaction.support.TransactionTemplate;

/** Spring JMS over qpid-jms: templates, transactions and listener containers, as Spring programs use them. */
final class SpringQuestions {
    private static final byte[] OCTETS = {0, 1, -1};

    private SpringQuestions() {}

    /** A listener whose result is the reply. */
    public interface Responder {
        String handleMessage(String text);
    }

    private static CachingConnectionFactory connections(Asked ask, String... options) {
        CachingConnectionFactory connections = new CachingConnectionFactory(ask.factory(options));
        ask.closes(connections::destroy);
        return connections;
    }

    private static JmsTemplate template(Asked ask, String... options) {
        JmsTemplate template = new JmsTemplate(connections(ask, options));
        template.setDefaultDestinationName(ask.name);
        template.setReceiveTimeout(Asked.PATIENCE);
        return template;
    }

    private static JmsTemplate topicTemplate(Asked ask, String... options) {
        JmsTemplate template = template(ask, options);
        template.setPubSubDomain(true);
        return template;
    }

    /** A container that is not started yet. */
    private static DefaultMessageListenerContainer container(Asked ask, MessageListener listener, int consumers, String... options) {
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(ask.factory(options));
        container.setDestinationName(ask.name);
        container.setMessageListener(listener);
        container.setConcurrency(consumers + "-" + consumers);
        container.setReceiveTimeout(200); // a shutdown waits for it
        ask.closes(container::shutdown);
        return container;
    }

    private static DefaultMessageListenerContainer started(DefaultMessageListenerContainer container) throws Exception {
        container.afterPropertiesSet();
        container.start();
        Asked.await("the consumers are there", () -> container.getActiveConsumerCount() == container.getConcurrentConsumers()
            && (!container.isPubSubDomain() || container.isRegisteredWithDestination()));
        return container;
    }

    private static MessageListener adding(BlockingQueue<String> texts) {
        return message -> {
            try {
                texts.add(message.getBody(String.class));
            } catch (jakarta.jms.JMSException error) {
                throw new IllegalStateException(error);
            }
        };
    }

    private static String next(BlockingQueue<String> texts) throws InterruptedException {
        String text = texts.poll(Asked.PATIENCE, TimeUnit.MILLISECONDS);
        Asked.check(text != null, "no message within " + Asked.PATIENCE + " ms");
        return text;
    }

    // --- templates

    static void spring_a_template_keeps_the_order(Asked ask) {
        JmsTemplate template = template(ask);
        List<String> texts = IntStream.range(0, 100).mapToObj(String::valueOf).toList();
        texts.forEach(template::convertAndSend);
        texts.forEach(text -> Asked.equal(text, template.receiveAndConvert()));
    }

    static void spring_a_converter_knows_each_kind_of_body(Asked ask) {
        JmsTemplate template = template(ask);
        template.convertAndSend("grüße");
        template.convertAndSend(OCTETS);
        template.convertAndSend(Map.of("key", 1L));
        template.convertAndSend("x".repeat(3_000_000));
        Asked.equal("grüße", template.receiveAndConvert());
        Asked.equal(OCTETS.length, ((byte[]) template.receiveAndConvert()).length);
        Asked.equal(Map.of("key", 1L), template.receiveAndConvert());
        Asked.equal(3_000_000, ((String) template.receiveAndConvert()).length());
    }

    static void spring_headers_and_the_quality_of_service(Asked ask) throws Exception {
        JmsTemplate template = template(ask);
        template.setExplicitQosEnabled(true);
        template.setPriority(7);
        template.setTimeToLive(600_000);
        template.convertAndSend((Object) "a", message -> {
            message.setJMSCorrelationID("c-1");
            message.setStringProperty("colour", "red");
            return message;
        });
        jakarta.jms.Message message = template.receive();
        Asked.equal(7, message.getJMSPriority());
        Asked.equal("c-1", message.getJMSCorrelationID());
        Asked.equal("red", message.getStringProperty("colour"));
        Asked.check(message.getJMSExpiration() > System.currentTimeMillis(), "no expiry");
    }

    static void spring_a_selector_takes_what_matches(Asked ask) {
        JmsTemplate template = template(ask);
        for (String colour : List.of("red", "blue")) {
            template.convertAndSend((Object) colour, message -> {
                message.setStringProperty("colour", colour);
                return message;
            });
        }
        Asked.equal("blue", template.receiveSelectedAndConvert("colour = 'blue'"));
        Asked.equal("red", template.receiveAndConvert());
    }

    static void spring_a_browser_leaves_the_messages(Asked ask) {
        JmsTemplate template = template(ask);
        template.convertAndSend("a");
        template.convertAndSend("b");
        Asked.equal(2, template.browse((session, browser) -> java.util.Collections.list(browser.getEnumeration()).size()));
        Asked.equal("a", template.receiveAndConvert());
    }

    static void spring_a_delayed_message_comes_when_it_is_due(Asked ask) {
        JmsTemplate template = template(ask);
        template.setExplicitQosEnabled(true);
        template.setDeliveryDelay(300);
        template.convertAndSend("later");
        template.setDeliveryDelay(-1);
        template.convertAndSend("now");
        Asked.equal("now", template.receiveAndConvert());
        Asked.equal("later", template.receiveAndConvert());
    }

    static void spring_an_unknown_queue_is_refused_and_the_connection_lives_on(Asked ask) {
        JmsTemplate template = template(ask);
        Asked.refused(InvalidDestinationException.class, () -> template.convertAndSend("nowhere", "x"));
        Asked.refused(InvalidDestinationException.class, () -> template.receiveAndConvert("nowhere"));
        template.convertAndSend("a");
        Asked.equal("a", template.receiveAndConvert());
    }

    static void spring_a_client_sends_and_receives(Asked ask) {
        JmsClient client = JmsClient.create(connections(ask));
        client.destination(ask.name).withPriority(8).send("a");
        Asked.equal("a", client.destination(ask.name).withReceiveTimeout(Asked.PATIENCE).receive(String.class).orElseThrow());
    }

    // --- transactions

    static void spring_a_transaction_is_committed_or_rolled_back(Asked ask) {
        CachingConnectionFactory connections = connections(ask, "jms.prefetchPolicy.all=0");
        TransactionTemplate transaction = new TransactionTemplate(new JmsTransactionManager(connections));
        JmsTemplate template = new JmsTemplate(connections);
        template.setDefaultDestinationName(ask.name);
        template.setReceiveTimeout(Asked.PATIENCE);
        template.setSessionTransacted(true);
        template.convertAndSend("first");
        Asked.refused(IllegalStateException.class, () -> transaction.executeWithoutResult(status -> {
            Asked.equal("first", template.receiveAndConvert());
            template.convertAndSend("never");
            throw new IllegalStateException("a failure of the program");
        }));
        transaction.executeWithoutResult(status -> {
            Asked.equal("first", template.receiveAndConvert());
            template.convertAndSend("second");
        });
        Asked.equal("second", template.receiveAndConvert());
    }

    // --- listener containers

    static void spring_the_consumers_of_a_container_divide_a_queue(Asked ask) throws Exception {
        BlockingQueue<String> texts = new LinkedBlockingQueue<>();
        started(container(ask, adding(texts), 3));
        JmsTemplate template = template(ask);
        Set<String> received = ConcurrentHashMap.newKeySet();
        for (int number = 0; number < 100; number++) {
            template.convertAndSend(String.valueOf(number));
        }
        for (int number = 0; number < 100; number++) {
            received.add(next(texts));
        }
        Asked.equal(100, received.size());
    }

    static void spring_a_failed_listener_gets_it_again_until_it_is_a_dead_letter(Asked ask) throws Exception {
        BlockingQueue<String> attempts = new LinkedBlockingQueue<>();
        DefaultMessageListenerContainer container = container(ask, message -> {
            try {
                attempts.add(message.getBody(String.class) + " " + message.getIntProperty("JMSXDeliveryCount"));
            } catch (jakarta.jms.JMSException error) {
                throw new IllegalStateException(error);
            }
            throw new IllegalStateException("a failure of the listener");
        }, 1);
        container.setSessionTransacted(true);
        container.setErrorHandler(error -> {});
        started(container);
        JmsTemplate template = template(ask);
        template.convertAndSend("bad");
        Asked.equal("bad 1", next(attempts));
        Asked.equal("bad 2", next(attempts));
        Asked.equal("bad", template.receiveAndConvert(ask.name + ".dead"));
    }

    static void spring_a_reply_comes_to_a_temporary_queue(Asked ask) throws Exception {
        Responder responder = text -> "reply to " + text;
        started(container(ask, new MessageListenerAdapter(responder), 1));
        jakarta.jms.Message reply = template(ask).sendAndReceive(session -> session.createTextMessage("a"));
        Asked.check(reply != null, "no reply");
        Asked.equal("reply to a", reply.getBody(String.class));
    }

    static void spring_a_durable_subscription_outlives_its_container(Asked ask) throws Exception {
        BlockingQueue<String> texts = new LinkedBlockingQueue<>();
        for (String text : List.of("a", "b")) {
            DefaultMessageListenerContainer container = container(ask, adding(texts), 1, "jms.clientID=" + ask.name);
            container.setSubscriptionDurable(true);
            container.setSubscriptionName("reader");
            started(container);
            if (text.equals("a")) {
                topicTemplate(ask).convertAndSend("a");
            }
            Asked.equal(text, next(texts));
            container.shutdown();
            if (text.equals("a")) {
                topicTemplate(ask).convertAndSend("b");
            }
        }
        ask.context("jms.clientID=" + ask.name).unsubscribe("reader");
    }

    static void spring_a_shared_subscription_is_divided(Asked ask) throws Exception {
        BlockingQueue<String> texts = new LinkedBlockingQueue<>();
        DefaultMessageListenerContainer container = container(ask, adding(texts), 2);
        container.setSubscriptionShared(true);
        container.setSubscriptionName("workers");
        started(container);
        JmsTemplate template = topicTemplate(ask);
        Set<String> received = ConcurrentHashMap.newKeySet();
        for (int number = 0; number < 20; number++) {
            template.convertAndSend(String.valueOf(number));
        }
        for (int number = 0; number < 20; number++) {
            received.add(next(texts));
        }
        Asked.equal(20, received.size());
        Asked.check(texts.isEmpty(), "a message came twice");
    }
}
