import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSContext;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;

/** Topics and their plain subscribers. */
final class TopicQuestions {
    private TopicQuestions() {}

    static void each_subscriber_hears_what_comes_after_it(Asked ask) throws Exception {
        Session session = ask.session();
        Topic topic = ask.topic(session);
        Asked.send(session, topic, "nobody listens");
        MessageConsumer one = session.createConsumer(topic);
        Asked.send(session, topic, "a");
        MessageConsumer other = ask.session().createConsumer(topic);
        Asked.send(session, topic, "b");
        Asked.hears(one, "a", "b");
        Asked.hears(other, "b");
        Asked.hearsNothing(one);
        Asked.hearsNothing(other);
    }

    static void an_unknown_topic_is_an_invalid_destination(Asked ask) throws Exception {
        Session session = ask.session();
        Topic unknown = session.createTopic("nobody declared this topic");
        Asked.refused(InvalidDestinationException.class, () -> session.createProducer(unknown));
        Asked.refused(InvalidDestinationException.class, () -> session.createConsumer(unknown));
    }

    static void its_messages_say_their_topic(Asked ask) throws Exception {
        Session session = ask.session();
        MessageConsumer consumer = session.createConsumer(ask.topic(session));
        Asked.send(session, ask.topic(session), "a");
        Asked.equal(ask.topic(session), Asked.message(consumer).getJMSDestination());
    }

    static void a_subscriber_with_a_selector(Asked ask) throws Exception {
        Session session = ask.session();
        MessageConsumer even = session.createConsumer(ask.topic(session), "number = 0 OR number = 2");
        MessageConsumer all = session.createConsumer(ask.topic(session));
        MessageProducer producer = session.createProducer(ask.topic(session));
        for (int i = 0; i < 4; i++) {
            Message message = session.createTextMessage(String.valueOf(i));
            message.setIntProperty("number", i);
            producer.send(message);
        }
        Asked.hears(even, "0", "2");
        Asked.hearsNothing(even);
        Asked.hears(all, "0", "1", "2", "3");
    }

    static void no_local(Asked ask) throws Exception {
        Session session = ask.session();
        MessageConsumer others = session.createConsumer(ask.topic(session), null, true);
        MessageConsumer all = session.createConsumer(ask.topic(session));
        Asked.send(session, ask.topic(session), "mine");
        Asked.send(ask.session(), ask.topic(session), "other's");
        Asked.hears(others, "other's");
        Asked.hearsNothing(others);
        Asked.hears(all, "mine", "other's");
    }

    static void a_producer_of_no_destination_publishes(Asked ask) throws Exception {
        Session session = ask.session();
        MessageConsumer consumer = session.createConsumer(ask.topic(session));
        session.createProducer(null).send(ask.topic(session), session.createTextMessage("a"));
        Asked.hears(consumer, "a");
        JMSContext context = ask.context();
        context.createProducer().send(context.createTopic(ask.name), "b");
        Asked.hears(consumer, "b");
    }

    static void a_queue_and_a_topic_are_not_each_other(Asked ask) throws Exception {
        Session session = ask.session();
        for (Topic wrong : List.of(session.createTopic("order_is_kept"))) {
            Asked.refused(InvalidDestinationException.class, () -> session.createConsumer(wrong));
            Asked.refused(InvalidDestinationException.class, () -> session.createProducer(wrong));
        }
        Asked.refused(InvalidDestinationException.class, () -> session.createConsumer(session.createQueue(ask.name)));
        Asked.refused(InvalidDestinationException.class, () -> session.createProducer(session.createQueue(ask.name)));
    }

    static void acknowledged_by_each_subscriber_alone(Asked ask) throws Exception {
        Session one = ask.session(Session.CLIENT_ACKNOWLEDGE);
        Session other = ask.session(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer first = one.createConsumer(ask.topic(one));
        MessageConsumer second = other.createConsumer(ask.topic(other));
        Asked.send(one, ask.topic(one), "a");
        Asked.message(first).acknowledge();
        Asked.hears(second, "a");
        other.recover();
        Asked.hears(second, "a");
        one.recover();
        Asked.hearsNothing(first);
    }
}
