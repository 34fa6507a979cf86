import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;

/** Temporary queues and topics. */
final class TemporaryQuestions {
    private TemporaryQuestions() {}

    static void a_temporary_queue(Asked ask) throws Exception {
        Session session = ask.session();
        TemporaryQueue queue = session.createTemporaryQueue();
        Asked.check(!queue.getQueueName().equals(session.createTemporaryQueue().getQueueName()), "two of one name");
        Asked.send(session, queue, "a", "b");
        Asked.hears(session.createConsumer(queue), "a", "b");
    }

    static void only_its_connection_consumes_from_it(Asked ask) throws Exception {
        Connection connection = ask.connection();
        TemporaryQueue queue = connection.createSession().createTemporaryQueue();
        Session other = ask.session();
        Queue same = other.createQueue(queue.getQueueName());
        Asked.refused(JMSException.class, () -> other.createConsumer(same));
        Asked.send(other, same, "anybody may send");
        Asked.hears(connection.createSession().createConsumer(queue), "anybody may send");
    }

    static void a_deleted_one_takes_nothing(Asked ask) throws Exception {
        Session session = ask.session();
        Session other = ask.session();
        TemporaryQueue queue = session.createTemporaryQueue();
        Queue same = other.createQueue(queue.getQueueName());
        MessageConsumer consumer = session.createConsumer(queue);
        Asked.refused(JMSException.class, queue::delete); // somebody consumes from it
        consumer.close();
        queue.delete();
        Asked.refused(InvalidDestinationException.class, () -> other.createProducer(same));
        Asked.refused(InvalidDestinationException.class, () -> other.createProducer(null).send(same, other.createMessage()));
    }

    static void it_ends_with_its_connection(Asked ask) throws Exception {
        Connection connection = ask.connection();
        TemporaryQueue queue = connection.createSession().createTemporaryQueue();
        TemporaryTopic topic = connection.createSession().createTemporaryTopic();
        Session other = ask.session();
        MessageProducer producer = other.createProducer(other.createQueue(queue.getQueueName()));
        producer.send(other.createMessage());
        connection.close();
        Asked.refused(JMSException.class, () -> producer.send(other.createMessage()));
        Asked.refused(InvalidDestinationException.class, () -> other.createProducer(other.createQueue(queue.getQueueName())));
        Asked.refused(InvalidDestinationException.class, () -> other.createProducer(other.createTopic(topic.getTopicName())));
    }

    static void a_temporary_topic(Asked ask) throws Exception {
        Session session = ask.session();
        TemporaryTopic topic = session.createTemporaryTopic();
        MessageConsumer one = session.createConsumer(topic);
        MessageConsumer other = session.createConsumer(topic);
        Session stranger = ask.session();
        Asked.send(stranger, stranger.createTopic(topic.getTopicName()), "a");
        Asked.hears(one, "a");
        Asked.hears(other, "a");
        one.close();
        other.close();
        topic.delete();
    }

    static void request_and_reply(Asked ask) throws Exception {
        Session service = ask.session();
        MessageConsumer requests = service.createConsumer(ask.queue(service));
        requests.setMessageListener(request -> {
            try {
                Message reply = service.createTextMessage(Asked.text(request) + ", world");
                reply.setJMSCorrelationID(request.getJMSMessageID());
                service.createProducer(null).send(request.getJMSReplyTo(), reply);
            } catch (JMSException error) {
                throw new IllegalStateException(error);
            }
        });
        Session session = ask.session();
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(replies);
        Message request = session.createTextMessage("hello");
        request.setJMSReplyTo(replies);
        session.createProducer(ask.queue(session)).send(request);
        Message reply = Asked.message(consumer);
        Asked.equal("hello, world", Asked.text(reply));
        Asked.equal(request.getJMSMessageID(), reply.getJMSCorrelationID());
    }
}
