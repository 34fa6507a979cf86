import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;

/** Transacted sessions. */
final class TransactionQuestions {
    private TransactionQuestions() {}

    private static Session transacted(Asked ask, String... options) throws Exception {
        return ask.session(Session.SESSION_TRANSACTED, options);
    }

    static void a_commit_sends_and_takes(Asked ask) throws Exception {
        Session outside = ask.session();
        Session session = transacted(ask);
        Queue queue = ask.queue(session);
        Asked.send(session, queue, "a", "b");
        MessageConsumer watcher = outside.createConsumer(queue);
        Asked.hearsNothing(watcher);
        watcher.close();
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        Asked.hears(consumer, "a", "b");
        session.commit();
        consumer.close();
        Asked.hearsNothing(outside.createConsumer(queue));
    }

    static void a_rollback_undoes_sends_and_receipts(Asked ask) throws Exception {
        Session outside = ask.session();
        Session session = transacted(ask);
        Queue queue = ask.queue(session);
        Asked.send(outside, queue, "a", "b");
        MessageConsumer consumer = session.createConsumer(queue);
        Asked.hears(consumer, "a", "b");
        Asked.send(session, queue, "never");
        session.rollback();
        Message again = Asked.message(consumer);
        Asked.equal("a", Asked.text(again));
        Asked.check(again.getJMSRedelivered(), "not marked as redelivered");
        Asked.hears(consumer, "b");
        Asked.hearsNothing(consumer);
        session.commit();
    }

    static void a_rollback_with_prefetched_messages_keeps_their_order(Asked ask) throws Exception {
        Session outside = ask.session();
        Session session = transacted(ask, "jms.prefetchPolicy.all=10");
        Queue queue = ask.queue(session);
        Asked.send(outside, queue, "a", "b", "c", "d");
        MessageConsumer consumer = session.createConsumer(queue);
        Asked.hears(consumer, "a", "b");
        session.rollback();
        Asked.hears(consumer, "a", "b", "c", "d");
        session.commit();
        Asked.hearsNothing(consumer);
    }

    static void one_transaction_over_several_queues(Asked ask) throws Exception {
        Session outside = ask.session();
        Session session = transacted(ask);
        Queue from = ask.queue(session);
        Queue to = session.createQueue(ask.name + ".to");
        Asked.send(outside, from, "a", "b");
        MessageConsumer consumer = session.createConsumer(from);
        Asked.send(session, to, Asked.next(consumer) + "'");
        session.commit();
        Asked.send(session, to, Asked.next(consumer) + "'");
        session.rollback();
        session.close();
        Asked.hears(outside.createConsumer(from), "b");
        MessageConsumer moved = outside.createConsumer(to);
        Asked.hears(moved, "a'");
        Asked.hearsNothing(moved);
    }

    static void a_lost_connection_rolls_back(Asked ask) throws Exception {
        Connection connection = ask.connection();
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue queue = ask.queue(session);
        Session outside = ask.session();
        Asked.send(outside, queue, "a");
        Asked.hears(session.createConsumer(queue), "a");
        Asked.send(session, queue, "never");
        connection.close();
        MessageConsumer consumer = outside.createConsumer(queue);
        Asked.hears(consumer, "a");
        Asked.hearsNothing(consumer);
    }

    static void a_transaction_larger_than_the_credit(Asked ask) throws Exception {
        Session session = transacted(ask, "jms.forceAsyncSend=true");
        String[] texts = new String[2500];
        for (int i = 0; i < texts.length; i++) {
            texts[i] = String.valueOf(i);
        }
        Asked.send(session, ask.queue(session), texts);
        session.commit();
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hears(consumer, texts);
        session.commit();
    }

    static void a_transacted_subscriber(Asked ask) throws Exception {
        Session session = transacted(ask);
        MessageConsumer consumer = session.createConsumer(ask.topic(session));
        Asked.send(session, ask.topic(session), "a");
        Asked.hearsNothing(consumer);
        session.commit();
        Asked.hears(consumer, "a");
        session.rollback();
        Asked.hears(consumer, "a");
        session.commit();
        Asked.hearsNothing(consumer);
    }
}
