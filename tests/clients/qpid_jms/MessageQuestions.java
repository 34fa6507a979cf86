import jakarta.jms.BytesMessage;
import jakarta.jms.DeliveryMode;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;

/** Messages pass through as they are: kinds, headers, properties. */
final class MessageQuestions {
    private MessageQuestions() {}

    private static Message through(Asked ask, Session session, Message message) throws Exception {
        try (MessageProducer producer = session.createProducer(ask.queue(session));
                MessageConsumer consumer = session.createConsumer(ask.queue(session))) {
            producer.send(message);
            return Asked.message(consumer);
        }
    }

    static void an_object_message(Asked ask) throws Exception {
        Session session = ask.session("jms.deserializationPolicy.allowList=java.util,java.math,java.lang");
        ArrayList<Object> object = new ArrayList<>(List.of(BigInteger.TEN.pow(40), "text", 7L));
        ObjectMessage found = (ObjectMessage) through(ask, session, session.createObjectMessage(object));
        Asked.equal(object, found.getObject());
        Asked.equal(object, found.getBody(ArrayList.class));
    }

    static void a_map_message(Asked ask) throws Exception {
        Session session = ask.session();
        MapMessage message = session.createMapMessage();
        message.setInt("int", 1);
        message.setString("string", "grüße");
        message.setBytes("bytes", new byte[] {0, -1});
        message.setObject("null", null);
        MapMessage found = (MapMessage) through(ask, session, message);
        Asked.equal(1, found.getInt("int"));
        Asked.equal("grüße", found.getString("string"));
        Asked.equal(-1, (int) found.getBytes("bytes")[1]);
        Asked.check(found.itemExists("null") && found.getObject("null") == null, "null is lost");
    }

    static void a_stream_message(Asked ask) throws Exception {
        Session session = ask.session();
        StreamMessage message = session.createStreamMessage();
        message.writeBoolean(true);
        message.writeLong(-5);
        message.writeString("text");
        StreamMessage found = (StreamMessage) through(ask, session, message);
        Asked.check(found.readBoolean(), "true is false");
        Asked.equal(-5L, found.readLong());
        Asked.equal("text", found.readString());
    }

    static void a_bytes_message_and_one_without_a_body(Asked ask) throws Exception {
        Session session = ask.session();
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(new byte[200_000]);
        Asked.equal(200_000L, ((BytesMessage) through(ask, session, message)).getBodyLength());
        Message empty = session.createMessage();
        empty.setStringProperty("only", "property");
        Asked.equal("property", through(ask, session, empty).getStringProperty("only"));
    }

    static void headers(Asked ask) throws Exception {
        Session session = ask.session();
        Message message = session.createTextMessage("a");
        message.setJMSCorrelationID("correlation");
        message.setJMSType("type");
        message.setJMSReplyTo(session.createTopic("replies"));
        message.setStringProperty("JMSXGroupID", "group");
        message.setIntProperty("JMSXGroupSeq", 3);
        Message found = through(ask, session, message);
        Asked.equal("correlation", found.getJMSCorrelationID());
        Asked.equal("type", found.getJMSType());
        Asked.equal(session.createTopic("replies"), found.getJMSReplyTo());
        Asked.equal(ask.queue(session), found.getJMSDestination());
        Asked.equal(message.getJMSMessageID(), found.getJMSMessageID());
        Asked.equal(message.getJMSTimestamp(), found.getJMSTimestamp());
        Asked.equal("group", found.getStringProperty("JMSXGroupID"));
        Asked.equal(3, found.getIntProperty("JMSXGroupSeq"));
        Asked.equal(1, found.getIntProperty("JMSXDeliveryCount"));
        Asked.equal(DeliveryMode.PERSISTENT, found.getJMSDeliveryMode());
        Asked.equal(4, found.getJMSPriority());
        Asked.check(!found.getJMSRedelivered(), "redelivered at once");
    }

    static void properties_of_every_type(Asked ask) throws Exception {
        Session session = ask.session();
        List<Object> values = List.of(true, (byte) 1, (short) 2, 3, 4L, 0.5f, 0.25, "text");
        Message message = session.createMessage();
        for (int i = 0; i < values.size(); i++) {
            message.setObjectProperty("p" + i, values.get(i));
        }
        Message found = through(ask, session, message);
        for (int i = 0; i < values.size(); i++) {
            Asked.equal(values.get(i), found.getObjectProperty("p" + i));
        }
    }
}
