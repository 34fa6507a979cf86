import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Acknowledge modes, recover, listeners, and what comes back. */
final class AcknowledgeQuestions {
    private AcknowledgeQuestions() {}

    /** What waits for the next one who comes. */
    private static void left(Asked ask, String... texts) throws Exception {
        Session session = ask.session();
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hears(consumer, texts);
        Asked.hearsNothing(consumer);
    }

    static void client_acknowledge_takes_all_so_far(Asked ask) throws Exception {
        Connection connection = ask.connection();
        Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
        Asked.send(session, ask.queue(session), "a", "b", "c", "d");
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hears(consumer, "a");
        Asked.message(consumer).acknowledge();
        Asked.hears(consumer, "c");
        connection.close();
        left(ask, "c", "d");
    }

    static void individual_acknowledge_takes_one(Asked ask) throws Exception {
        Connection connection = ask.connection();
        Session session = connection.createSession(Asked.INDIVIDUAL_ACKNOWLEDGE);
        Asked.send(session, ask.queue(session), "a", "b", "c");
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hears(consumer, "a");
        Asked.message(consumer).acknowledge();
        connection.close();
        left(ask, "a", "c");
    }

    static void dups_ok_acknowledges_in_time(Asked ask) throws Exception {
        Connection connection = ask.connection();
        Session session = connection.createSession(Session.DUPS_OK_ACKNOWLEDGE);
        Asked.send(session, ask.queue(session), "a", "b");
        Asked.hears(session.createConsumer(ask.queue(session)), "a", "b");
        connection.close();
        left(ask);
    }

    static void recover_delivers_again(Asked ask) throws Exception {
        Session session = ask.session(Session.CLIENT_ACKNOWLEDGE);
        Asked.send(session, ask.queue(session), "a", "b", "c");
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hears(consumer, "a", "b");
        session.recover();
        Message again = Asked.message(consumer);
        Asked.equal("a", Asked.text(again));
        Asked.check(again.getJMSRedelivered(), "not marked as redelivered");
        Asked.equal(2, again.getIntProperty("JMSXDeliveryCount"));
        Asked.hears(consumer, "b", "c");
    }

    static void what_was_not_acknowledged_comes_back_counted(Asked ask) throws Exception {
        Connection connection = ask.connection("jms.prefetchPolicy.all=0");
        Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
        Asked.send(session, ask.queue(session), "a", "b");
        Asked.hears(session.createConsumer(ask.queue(session)), "a");
        connection.close();
        Session next = ask.session();
        MessageConsumer consumer = next.createConsumer(ask.queue(next));
        Message again = Asked.message(consumer);
        Asked.equal("a", Asked.text(again));
        Asked.check(again.getJMSRedelivered(), "not marked as redelivered");
        Asked.equal(2, again.getIntProperty("JMSXDeliveryCount"));
        Asked.hears(consumer, "b");
    }

    static void after_the_last_attempt_it_is_a_dead_letter(Asked ask) throws Exception {
        Session sender = ask.session();
        Asked.send(sender, ask.queue(sender), "poison");
        for (int attempt = 1; attempt <= 2; attempt++) {
            Connection connection = ask.connection("jms.prefetchPolicy.all=0"); // what is prefetched at the close is delivered once more
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            Message message = Asked.message(session.createConsumer(ask.queue(session)));
            Asked.equal(attempt, message.getIntProperty("JMSXDeliveryCount"));
            session.rollback();
            connection.close();
        }
        Asked.hears(sender.createConsumer(sender.createQueue(ask.name + ".dead")), "poison");
        Asked.hearsNothing(sender.createConsumer(ask.queue(sender)));
    }

    static void a_listener_hears_one_after_another(Asked ask) throws Exception {
        Connection connection = ask.connection();
        Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        session.createConsumer(ask.queue(session)).setMessageListener(message -> {
            try {
                heard.add(Asked.text(message));
            } catch (Exception error) {
                heard.add(error.toString());
            }
        });
        Session sender = connection.createSession();
        Asked.send(sender, ask.queue(sender), "a", "b", "c");
        for (String text : List.of("a", "b", "c")) {
            Asked.equal(text, heard.poll(Asked.PATIENCE, TimeUnit.MILLISECONDS));
        }
    }

    static void a_stopped_connection_delivers_nothing(Asked ask) throws Exception {
        Connection connection = ask.connection();
        Session session = connection.createSession();
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        connection.stop();
        Asked.send(session, ask.queue(session), "a");
        Asked.check(consumer.receive(100) == null, "delivered while stopped");
        connection.start();
        Asked.hears(consumer, "a");
    }
}
