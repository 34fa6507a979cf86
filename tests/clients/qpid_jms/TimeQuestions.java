import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;

/** Time to live, delivery delay. */
final class TimeQuestions {
    private TimeQuestions() {}

    static void an_expired_message_is_not_delivered(Asked ask) throws Exception {
        Session session = ask.session("jms.localMessageExpiry=false", "jms.populateJMSXUserID=false");
        MessageProducer producer = session.createProducer(ask.queue(session));
        producer.send(session.createTextMessage("short"), DeliveryMode.PERSISTENT, 4, 20);
        producer.send(session.createTextMessage("long"), DeliveryMode.PERSISTENT, 4, 600_000);
        Thread.sleep(60); // longer than the first one lives
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        Message found = Asked.message(consumer);
        Asked.equal("long", Asked.text(found));
        long left = found.getJMSExpiration() - System.currentTimeMillis();
        Asked.check(left > 0 && left <= 600_000, left + " ms are left of ten minutes");
        Asked.hearsNothing(consumer);
    }

    static void a_delayed_message_comes_when_it_is_due(Asked ask) throws Exception {
        Session session = ask.session();
        MessageConsumer consumer = session.createConsumer(ask.queue(session));
        MessageProducer producer = session.createProducer(ask.queue(session));
        producer.setDeliveryDelay(1500);
        producer.send(session.createTextMessage("later"));
        producer.setDeliveryDelay(0);
        producer.send(session.createTextMessage("now"));
        Asked.hears(consumer, "now");
        Message found = Asked.message(consumer);
        Asked.equal("later", Asked.text(found));
        long now = System.currentTimeMillis();
        Asked.check(now >= found.getJMSDeliveryTime(), "came " + (found.getJMSDeliveryTime() - now) + " ms before it was due");
    }

    static void a_delayed_publication(Asked ask) throws Exception {
        Session session = ask.session();
        MessageConsumer consumer = session.createConsumer(ask.topic(session));
        MessageProducer producer = session.createProducer(ask.topic(session));
        producer.setDeliveryDelay(1500);
        producer.send(session.createTextMessage("later"));
        Asked.hearsNothing(consumer);
        Message found = Asked.message(consumer);
        Asked.check(System.currentTimeMillis() >= found.getJMSDeliveryTime(), "came before it was due");
    }
}
