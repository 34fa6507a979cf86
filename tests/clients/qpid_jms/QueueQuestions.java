import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Queues: order, browsing, selectors, priorities, groups, who may consume. */
final class QueueQuestions {
    private QueueQuestions() {}

    static void order_is_kept(Asked ask) throws Exception {
        Session session = ask.session();
        String[] texts = new String[300];
        for (int i = 0; i < texts.length; i++) {
            texts[i] = String.valueOf(i);
        }
        Asked.send(session, ask.queue(session), texts);
        Asked.hears(session.createConsumer(ask.queue(session)), texts);
    }

    static void an_unknown_queue_is_an_invalid_destination(Asked ask) throws Exception {
        Session session = ask.session();
        Queue unknown = session.createQueue("nobody declared this");
        Asked.refused(InvalidDestinationException.class, () -> session.createProducer(unknown));
        Asked.refused(InvalidDestinationException.class, () -> session.createConsumer(unknown));
        Asked.refused(InvalidDestinationException.class, () -> Asked.send(session, unknown, "a"));
        Asked.refused(InvalidDestinationException.class, () -> session.createProducer(null).send(unknown, session.createMessage()));
    }

    private static List<String> browsed(QueueBrowser browser) throws JMSException {
        List<String> texts = new ArrayList<>();
        for (Object message : Collections.list(browser.getEnumeration())) {
            texts.add(Asked.text((Message) message));
        }
        return texts;
    }

    static void a_browser_sees_and_leaves(Asked ask) throws Exception {
        Session session = ask.session("jms.prefetchPolicy.all=1");
        Asked.send(session, ask.queue(session), "a", "b", "c");
        try (QueueBrowser browser = session.createBrowser(ask.queue(session))) {
            Asked.equal(List.of("a", "b", "c"), browsed(browser));
        }
        Asked.hears(session.createConsumer(ask.queue(session)), "a", "b", "c");
    }

    static void a_browser_with_a_selector(Asked ask) throws Exception {
        Session session = ask.session();
        coloured(session, ask.queue(session), "red", "blue", "red");
        try (QueueBrowser browser = session.createBrowser(ask.queue(session), "colour = 'red'")) {
            Asked.equal(List.of("red 0", "red 2"), browsed(browser));
        }
    }

    private static void coloured(Session session, Queue queue, String... colours) throws JMSException {
        try (MessageProducer producer = session.createProducer(queue)) {
            for (int i = 0; i < colours.length; i++) {
                Message message = session.createTextMessage(colours[i] + " " + i);
                message.setStringProperty("colour", colours[i]);
                message.setIntProperty("number", i);
                message.setJMSType("type " + i);
                producer.send(message, jakarta.jms.DeliveryMode.PERSISTENT, i % 10, 0);
            }
        }
    }

    static void a_selector_takes_what_matches_and_leaves_the_rest(Asked ask) throws Exception {
        Session session = ask.session();
        coloured(session, ask.queue(session), "red", "blue", "red", "green");
        MessageConsumer red = session.createConsumer(ask.queue(session), "colour = 'red'");
        Asked.hears(red, "red 0", "red 2");
        Asked.hearsNothing(red);
        red.close();
        Asked.hears(session.createConsumer(ask.queue(session)), "blue 1", "green 3");
    }

    static void a_selector_knows_headers_properties_and_operators(Asked ask) throws Exception {
        Session session = ask.session();
        coloured(session, ask.queue(session), "red", "blue", "red", "green", "rot_1", "grey");
        String[][] expected = {
            {"number BETWEEN 1 AND 2 AND colour <> 'red'", "blue 1"},
            {"JMSType = 'type 2'", "red 2"},
            {"colour LIKE 'rot!_%' ESCAPE '!'", "rot_1 4"},
            {"colour IN ('green', 'yellow') AND missing IS NULL", "green 3"},
            {"JMSPriority = 5 AND number * 2 = 10.0", "grey 5"},
            {"NOT (missing = 1) OR JMSDeliveryMode = 'PERSISTENT'", "red 0"},
        };
        for (String[] each : expected) {
            MessageConsumer consumer = session.createConsumer(ask.queue(session), each[0]);
            Asked.hears(consumer, each[1]);
            Asked.hearsNothing(consumer);
            consumer.close();
        }
    }

    static void a_selector_waits_for_what_matches(Asked ask) throws Exception {
        Session session = ask.session();
        MessageConsumer blue = session.createConsumer(ask.queue(session), "colour = 'blue'");
        MessageConsumer red = ask.session().createConsumer(ask.queue(session), "colour = 'red'");
        coloured(session, ask.queue(session), "red", "blue", "red");
        Asked.hears(blue, "blue 1");
        Asked.hears(red, "red 0", "red 2");
    }

    static void a_wrong_selector_is_refused(Asked ask) throws Exception {
        Session session = ask.session();
        Asked.refused(JMSException.class, () -> session.createConsumer(ask.queue(session), "colour = = 'red'"));
        Asked.refused(JMSException.class, () -> Collections.list(session.createBrowser(ask.queue(session), "a >").getEnumeration()));
        Asked.send(session, ask.queue(session), "and the session goes on");
    }

    /** What it means at a queue, JMS leaves open; here it means nothing. */
    static void no_local_on_a_queue(Asked ask) throws Exception {
        Session session = ask.session();
        MessageConsumer consumer = session.createConsumer(ask.queue(session), null, true);
        Asked.send(session, ask.queue(session), "mine");
        Asked.send(ask.session(), ask.queue(session), "other's");
        Asked.hears(consumer, "mine", "other's");
    }

    static void higher_priorities_first(Asked ask) throws Exception {
        Session session = ask.session("jms.prefetchPolicy.all=0");
        try (MessageProducer producer = session.createProducer(ask.queue(session))) {
            for (int priority : new int[] {0, 9, 4, 9, 7, 0}) {
                producer.send(session.createTextMessage("p" + priority), jakarta.jms.DeliveryMode.PERSISTENT, priority, 0);
            }
        }
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hears(consumer, "p9", "p9", "p7", "p4", "p0");
        try (MessageProducer producer = session.createProducer(ask.queue(session))) {
            producer.send(session.createTextMessage("late"), jakarta.jms.DeliveryMode.PERSISTENT, 8, 0);
        }
        Asked.hears(consumer, "late", "p0");
    }

    static void a_group_has_one_consumer_at_a_time(Asked ask) throws Exception {
        Session session = ask.session();
        Session one = ask.session(Asked.INDIVIDUAL_ACKNOWLEDGE, "jms.prefetchPolicy.all=0");
        Session other = ask.session(Asked.INDIVIDUAL_ACKNOWLEDGE, "jms.prefetchPolicy.all=0");
        try (MessageProducer producer = session.createProducer(ask.queue(session))) {
            for (String text : List.of("a 1", "a 2", "b 1", "b 2")) {
                Message message = session.createTextMessage(text);
                message.setStringProperty("JMSXGroupID", text.substring(0, 1));
                producer.send(message);
            }
        }
        MessageConsumer first = one.createConsumer(ask.queue(one));
        Message a1 = Asked.message(first);
        Asked.equal("a 1", Asked.text(a1));
        MessageConsumer second = other.createConsumer(ask.queue(other));
        Message b1 = Asked.message(second);
        Asked.equal("b 1", Asked.text(b1)); // a 2 is not for it while the first holds a 1
        a1.acknowledge();
        b1.acknowledge();
        Map<String, Integer> rest = new HashMap<>();
        for (MessageConsumer consumer : List.of(first, second)) {
            Message message = Asked.message(consumer);
            rest.merge(Asked.text(message), 1, Integer::sum);
            message.acknowledge();
        }
        Asked.equal(Map.of("a 2", 1, "b 2", 1), rest);
    }

    static void an_exclusive_queue_has_one_consumer(Asked ask) throws Exception {
        Session session = ask.session();
        MessageConsumer first = session.createConsumer(ask.queue(session));
        Asked.refused(JMSException.class, () -> ask.session().createConsumer(ask.queue(session)));
        Asked.send(session, ask.queue(session), "a");
        Asked.hears(first, "a");
        first.close();
        ask.session().createConsumer(ask.queue(session));
    }

    static void a_single_active_consumer_is_followed_by_the_next(Asked ask) throws Exception {
        Session session = ask.session();
        Session later = ask.session();
        MessageConsumer first = session.createConsumer(ask.queue(session));
        MessageConsumer second = later.createConsumer(ask.queue(session));
        Asked.send(session, ask.queue(session), "a", "b");
        Asked.hears(first, "a", "b");
        Asked.hearsNothing(second);
        first.close();
        Asked.send(session, ask.queue(session), "c");
        Asked.hears(second, "c");
    }

    static void only_the_last_value_of_a_key_waits(Asked ask) throws Exception {
        Session session = ask.session();
        try (MessageProducer producer = session.createProducer(ask.queue(session))) {
            for (String text : List.of("x 1", "y 1", "x 2")) {
                Message message = session.createTextMessage(text);
                message.setStringProperty("key", text.substring(0, 1));
                producer.send(message);
            }
        }
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hears(consumer, "y 1", "x 2");
        Asked.hearsNothing(consumer);
    }
}
