import jakarta.jms.CompletionListener;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsSendTimedOutException;

/** Credit both ways: asynchronous sends, full queues, prefetch. */
final class FlowQuestions {
    private FlowQuestions() {}

    /** What became of asynchronous sends, in order. */
    private static final class Completions implements CompletionListener {
        final BlockingQueue<String> said = new LinkedBlockingQueue<>();

        @Override
        public void onCompletion(Message message) {
            try {
                said.add(Asked.text(message));
            } catch (JMSException error) {
                said.add(error.toString());
            }
        }

        @Override
        public void onException(Message message, Exception error) {
            said.add(error.getClass().getSimpleName());
        }

        String next() throws InterruptedException {
            return said.poll(Asked.PATIENCE, TimeUnit.MILLISECONDS);
        }
    }

    static void asynchronous_sends_complete_in_order(Asked ask) throws Exception {
        Session session = ask.session();
        Completions completions = new Completions();
        MessageProducer producer = session.createProducer(ask.queue(session));
        for (int i = 0; i < 200; i++) {
            producer.send(session.createTextMessage(String.valueOf(i)), completions);
        }
        for (int i = 0; i < 200; i++) {
            Asked.equal(String.valueOf(i), completions.next());
        }
    }

    static void an_asynchronous_send_that_is_refused(Asked ask) throws Exception {
        Session session = ask.session();
        Completions completions = new Completions();
        MessageProducer producer = session.createProducer(ask.queue(session));
        producer.send(session.createTextMessage("a"), completions);
        producer.send(session.createTextMessage("b"), completions);
        Asked.equal("a", completions.next());
        Asked.equal("ResourceAllocationException", completions.next()); // the queue holds one
    }

    static void a_full_queue_refuses(Asked ask) throws Exception {
        Session session = ask.session();
        Asked.send(session, ask.queue(session), "a", "b");
        Asked.refused(ResourceAllocationException.class, () -> Asked.send(session, ask.queue(session), "c"));
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hears(consumer, "a");
        Asked.await("room", () -> {
            try {
                Asked.send(session, ask.queue(session), "d");
                return true;
            } catch (ResourceAllocationException error) {
                return false; // the acknowledgement is on its way
            }
        });
    }

    static void a_full_queue_lets_its_senders_wait(Asked ask) throws Exception {
        Session session = ask.session("jms.sendTimeout=300");
        MessageProducer producer = session.createProducer(ask.queue(session));
        int sent = 0;
        try {
            for (; sent < 1000; sent++) {
                producer.send(session.createTextMessage(String.valueOf(sent)));
            }
            throw new AssertionError("a queue of two took a thousand");
        } catch (JmsSendTimedOutException error) {
            Asked.equal(2, sent);
        }
        Session taker = ask.session();
        MessageConsumer consumer = taker.createConsumer(ask.queue(taker));
        Asked.hears(consumer, "0", "1");
        Session patient = ask.session();
        Asked.send(patient, ask.queue(patient), "goes on");
        Asked.hears(consumer, "goes on");
    }

    static void a_full_queue_lets_a_producer_of_no_destination_wait(Asked ask) throws Exception {
        Session session = ask.session();
        Completions completions = new Completions();
        MessageProducer producer = session.createProducer(null);
        for (String text : new String[] {"a", "b", "c"}) {
            producer.send(ask.queue(session), session.createTextMessage(text), completions);
        }
        Asked.equal("a", completions.next());
        Asked.equal("b", completions.next()); // the queue holds two
        Session taker = ask.session();
        Asked.hears(taker.createConsumer(ask.queue(taker)), "a", "b", "c");
        Asked.equal("c", completions.next());
    }

    static void the_oldest_of_a_ring_goes(Asked ask) throws Exception {
        Session session = ask.session();
        Asked.send(session, ask.queue(session), "a", "b", "c");
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hears(consumer, "b", "c");
        Asked.hearsNothing(consumer);
    }

    static void without_prefetch_each_receive_is_a_pull(Asked ask) throws Exception {
        Session session = ask.session("jms.prefetchPolicy.all=0");
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hearsNothing(consumer);
        Asked.send(session, ask.queue(session), "a", "b");
        Session other = ask.session("jms.prefetchPolicy.all=0");
        MessageConsumer second = other.createConsumer(ask.queue(other));
        Asked.hears(consumer, "a");
        Asked.hears(second, "b");
        Asked.hearsNothing(consumer);
    }

    static void presettled_sends_and_receipts(Asked ask) throws Exception {
        Session session = ask.session("jms.presettlePolicy.presettleAll=true");
        Asked.send(session, ask.queue(session), "a", "b");
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Asked.hears(consumer, "a", "b");
        consumer.close();
        Session next = ask.session();
        Asked.hearsNothing(next.createConsumer(ask.queue(next)));
    }
}
