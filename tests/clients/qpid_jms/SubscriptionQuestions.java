import jakarta.jms.Connection;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.Set;
import java.util.TreeSet;

/** Subscriptions with a name: durable, shared, shared and durable, of one client id or of all. */
final class SubscriptionQuestions {
    private SubscriptionQuestions() {}

    private static void publish(Asked ask, String... texts) throws Exception {
        Session session = ask.session();
        Asked.send(session, ask.topic(session), texts);
    }

    private static void numbers(Asked ask, int count) throws Exception {
        Session session = ask.session();
        MessageProducer producer = session.createProducer(ask.topic(session));
        for (int i = 0; i < count; i++) {
            Message message = session.createTextMessage(String.valueOf(i));
            message.setIntProperty("number", i);
            producer.send(message);
        }
    }

    /** Consumers take turns until `count` messages have come: which, sorted, each only once. */
    private static Set<String> together(int count, MessageConsumer... consumers) throws Exception {
        Set<String> found = new TreeSet<>();
        Asked.await(count + " messages", () -> {
            for (MessageConsumer consumer : consumers) {
                Message message = consumer.receiveNoWait();
                if (message != null) {
                    Asked.check(found.add(Asked.text(message)), Asked.text(message) + " came twice");
                }
            }
            return found.size() == count;
        });
        for (MessageConsumer consumer : consumers) {
            Asked.hearsNothing(consumer);
        }
        return found;
    }

    static void a_client_id_is_taken_once(Asked ask) throws Exception {
        Connection first = ask.client("c");
        Asked.refused(InvalidClientIDException.class, () -> ask.client("c"));
        first.close();
        ask.client("c");
    }

    static void a_durable_subscription_outlives_its_connection(Asked ask) throws Exception {
        Connection connection = ask.client("c");
        Session session = connection.createSession();
        MessageConsumer consumer = session.createDurableSubscriber(ask.topic(session), "sub");
        publish(ask, "a", "b");
        Asked.hears(consumer, "a");
        connection.close();
        publish(ask, "c");
        connection = ask.client("c");
        session = connection.createSession();
        consumer = session.createDurableConsumer(ask.topic(session), "sub");
        Asked.hears(consumer, "b", "c");
        consumer.close();
        publish(ask, "d");
        consumer = session.createDurableConsumer(ask.topic(session), "sub");
        Asked.hears(consumer, "d");
        consumer.close();
        session.unsubscribe("sub");
    }

    static void an_unsubscribed_one_is_gone(Asked ask) throws Exception {
        Session session = ask.client("c").createSession();
        MessageConsumer consumer = session.createDurableConsumer(ask.topic(session), "sub");
        Asked.refused(JMSException.class, () -> session.unsubscribe("sub")); // somebody consumes from it
        consumer.close();
        publish(ask, "a");
        session.unsubscribe("sub");
        consumer = session.createDurableConsumer(ask.topic(session), "sub");
        Asked.hearsNothing(consumer);
        publish(ask, "b");
        Asked.hears(consumer, "b");
        consumer.close();
        session.unsubscribe("sub");
        Asked.refused(InvalidDestinationException.class, () -> session.unsubscribe("sub"));
    }

    static void another_selector_or_topic_makes_it_anew(Asked ask) throws Exception {
        Session session = ask.client("c").createSession();
        session.createDurableConsumer(ask.topic(session), "sub", "number < 2", false).close();
        numbers(ask, 4);
        MessageConsumer consumer = session.createDurableConsumer(ask.topic(session), "sub", "number < 2", false);
        Asked.hears(consumer, "0", "1");
        consumer.close();
        numbers(ask, 4);
        consumer = session.createDurableConsumer(ask.topic(session), "sub", "number > 2", false);
        Asked.hearsNothing(consumer);
        numbers(ask, 4);
        Asked.hears(consumer, "3");
        consumer.close();
        numbers(ask, 4);
        consumer = session.createDurableConsumer(session.createTopic(ask.name + ".other"), "sub");
        Asked.hearsNothing(consumer);
        Asked.send(session, session.createTopic(ask.name + ".other"), "there");
        Asked.hears(consumer, "there");
        consumer.close();
        session.unsubscribe("sub");
    }

    static void a_durable_subscription_without_ones_own(Asked ask) throws Exception {
        Session session = ask.client("c").createSession();
        MessageConsumer consumer = session.createDurableConsumer(ask.topic(session), "sub", null, true);
        Asked.send(session, ask.topic(session), "mine");
        publish(ask, "other's");
        Asked.hears(consumer, "other's");
        Asked.hearsNothing(consumer);
        consumer.close();
        Asked.send(session, ask.topic(session), "mine again");
        publish(ask, "other's again");
        consumer = session.createDurableConsumer(ask.topic(session), "sub", null, true);
        Asked.hears(consumer, "other's again");
        Asked.hearsNothing(consumer);
        consumer.close();
        session.unsubscribe("sub");
    }

    static void each_client_id_has_its_own(Asked ask) throws Exception {
        Session one = ask.client("c").createSession();
        Session other = ask.client("d").createSession();
        MessageConsumer first = one.createDurableConsumer(ask.topic(one), "sub");
        MessageConsumer second = other.createDurableConsumer(ask.topic(other), "sub");
        publish(ask, "a");
        Asked.hears(first, "a");
        Asked.hears(second, "a");
        first.close();
        one.unsubscribe("sub");
        publish(ask, "b");
        Asked.hears(second, "b");
        second.close();
        other.unsubscribe("sub");
    }

    static void a_shared_subscription_is_shared(Asked ask) throws Exception {
        Connection connection = ask.connection("jms.prefetchPolicy.all=1");
        Session session = connection.createSession();
        MessageConsumer one = session.createSharedConsumer(ask.topic(session), "sub");
        MessageConsumer other = connection.createSession().createSharedConsumer(ask.topic(session), "sub");
        MessageConsumer third = ask.session("jms.prefetchPolicy.all=1").createSharedConsumer(ask.topic(session), "sub");
        MessageConsumer alone = ask.session().createConsumer(ask.topic(session));
        publish(ask, "a", "b", "c", "d", "e");
        Asked.equal(Set.of("a", "b", "c", "d", "e"), together(5, one, other, third));
        Asked.hears(alone, "a", "b", "c", "d", "e");
        one.close();
        publish(ask, "f");
        Asked.equal(Set.of("f"), together(1, other, third));
        other.close();
        third.close();
        publish(ask, "g");
        Asked.hearsNothing(session.createSharedConsumer(ask.topic(session), "sub")); // it went with its last consumer
    }

    static void a_shared_one_of_a_client_id(Asked ask) throws Exception {
        Session one = ask.client("c").createSession();
        Session other = ask.client("d").createSession();
        MessageConsumer first = one.createSharedConsumer(ask.topic(one), "sub");
        MessageConsumer second = other.createSharedConsumer(ask.topic(other), "sub");
        publish(ask, "a");
        Asked.hears(first, "a");
        Asked.hears(second, "a");
    }

    static void a_shared_durable_subscription(Asked ask) throws Exception {
        Connection connection = ask.client("c", "jms.prefetchPolicy.all=1");
        Session session = connection.createSession();
        MessageConsumer one = session.createSharedDurableConsumer(ask.topic(session), "sub");
        MessageConsumer other = connection.createSession().createSharedDurableConsumer(ask.topic(session), "sub");
        publish(ask, "a", "b", "c");
        Asked.equal(Set.of("a", "b", "c"), together(3, one, other));
        one.close();
        other.close();
        publish(ask, "d");
        one = session.createSharedDurableConsumer(ask.topic(session), "sub");
        Asked.hears(one, "d");
        one.close();
        session.unsubscribe("sub");
        publish(ask, "e");
        one = session.createSharedDurableConsumer(ask.topic(session), "sub");
        Asked.hearsNothing(one);
        one.close();
        session.unsubscribe("sub");
    }

    static void a_shared_durable_subscription_of_all(Asked ask) throws Exception {
        String name = ask.name;
        Connection connection = ask.connection("jms.prefetchPolicy.all=1");
        Session session = connection.createSession();
        Session elsewhere = ask.session("jms.prefetchPolicy.all=1");
        MessageConsumer one = session.createSharedDurableConsumer(ask.topic(session), name);
        MessageConsumer other = elsewhere.createSharedDurableConsumer(ask.topic(session), name);
        publish(ask, "a", "b", "c");
        Asked.equal(Set.of("a", "b", "c"), together(3, one, other));
        one.close();
        connection.close();
        Session later = ask.session();
        Asked.refused(JMSException.class, () -> later.unsubscribe(name)); // somebody consumes from it
        other.close();
        publish(ask, "d");
        other = later.createSharedDurableConsumer(ask.topic(later), name);
        Asked.hears(other, "d");
        other.close();
        later.unsubscribe(name);
        Asked.refused(InvalidDestinationException.class, () -> later.unsubscribe(name));
    }

    static void a_shared_one_in_use_keeps_its_selector(Asked ask) throws Exception {
        String name = ask.name;
        Session session = ask.session();
        MessageConsumer one = session.createSharedDurableConsumer(ask.topic(session), name, "number = 1");
        Asked.refused(JMSException.class, () -> ask.session().createSharedDurableConsumer(ask.topic(session), name, "number = 2"));
        numbers(ask, 3);
        Asked.hears(one, "1");
        one.close();
        MessageConsumer anew = session.createSharedDurableConsumer(ask.topic(session), name, "number = 2");
        numbers(ask, 3);
        Asked.hears(anew, "2");
        anew.close();
        session.unsubscribe(name);
    }
}
