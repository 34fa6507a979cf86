import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import jakarta.jms.BytesMessage;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageEOFException;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.Collections;
import java.util.HexFormat;
import java.util.Map;

/** Between the JSON form of messages (../driving.py) and what JMS can say of one. */
final class Messages {
    private static final Map<Class<?>, String> NAMES = Map.of(
        Boolean.class, "boolean", Byte.class, "byte", Short.class, "short", Integer.class, "int", Long.class, "long",
        Float.class, "float", Double.class, "double", String.class, "string");

    private Messages() {}

    static Message made(Session session, JsonObject given) throws JMSException {
        Message message = body(session, given.getAsJsonObject("body"));
        if (given.has("properties")) {
            setProperties(session, message, given.getAsJsonObject("properties"));
        }
        if (given.has("application")) {
            for (Map.Entry<String, JsonElement> entry : given.getAsJsonObject("application").entrySet()) {
                message.setObjectProperty(entry.getKey(), value(entry.getValue()));
            }
        }
        return message;
    }

    private static Message body(Session session, JsonObject body) throws JMSException {
        if (body.has("data")) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(HexFormat.of().parseHex(body.get("data").getAsString()));
            return message;
        }
        if (body.has("sequence")) {
            StreamMessage message = session.createStreamMessage();
            for (JsonElement item : body.getAsJsonArray("sequence")) {
                message.writeObject(value(item));
            }
            return message;
        }
        JsonObject typed = body.getAsJsonObject("value");
        if (typed.has("map")) {
            MapMessage message = session.createMapMessage();
            for (JsonElement pair : typed.getAsJsonArray("map")) {
                message.setObject((String) value(pair.getAsJsonArray().get(0)), value(pair.getAsJsonArray().get(1)));
            }
            return message;
        }
        return session.createTextMessage(typed.get("string").getAsString());
    }

    private static void setProperties(Session session, Message message, JsonObject given) throws JMSException {
        if (given.has("correlation-id")) {
            message.setJMSCorrelationID((String) value(given.get("correlation-id")));
        }
        if (given.has("subject")) {
            message.setJMSType(given.get("subject").getAsString());
        }
        if (given.has("reply-to")) {
            message.setJMSReplyTo(session.createQueue(given.get("reply-to").getAsString()));
        }
        if (given.has("group-id")) {
            message.setStringProperty("JMSXGroupID", given.get("group-id").getAsString());
        }
        if (given.has("group-sequence")) {
            message.setIntProperty("JMSXGroupSeq", given.get("group-sequence").getAsInt());
        }
    }

    private static Object value(JsonElement typed) {
        Map.Entry<String, JsonElement> only = typed.getAsJsonObject().entrySet().iterator().next();
        JsonElement value = only.getValue();
        return switch (only.getKey()) {
            case "boolean" -> value.getAsBoolean();
            case "byte" -> value.getAsByte();
            case "short" -> value.getAsShort();
            case "int" -> value.getAsInt();
            case "long" -> value.getAsLong();
            case "float" -> value.getAsFloat();
            case "double" -> value.getAsDouble();
            case "string" -> value.getAsString();
            case "binary" -> HexFormat.of().parseHex(value.getAsString());
            default -> throw new IllegalArgumentException("JMS has no type " + only.getKey());
        };
    }

    private static JsonObject typed(Object value) {
        JsonObject typed = new JsonObject();
        if (value == null) {
            typed.add("null", null);
        } else if (value instanceof byte[] octets) {
            typed.addProperty("binary", HexFormat.of().formatHex(octets));
        } else if (value instanceof Number number) {
            typed.addProperty(NAMES.getOrDefault(value.getClass(), value.getClass().getName()), number);
        } else if (value instanceof Boolean truth) {
            typed.addProperty("boolean", truth);
        } else {
            typed.addProperty(NAMES.getOrDefault(value.getClass(), value.getClass().getName()), value.toString());
        }
        return typed;
    }

    static JsonObject shown(Message message) throws JMSException {
        JsonObject application = new JsonObject();
        for (Object name : Collections.list(message.getPropertyNames())) {
            if (!((String) name).startsWith("JMS")) {
                application.add((String) name, typed(message.getObjectProperty((String) name)));
            }
        }
        int attempts = message.propertyExists("JMSXDeliveryCount") ? message.getIntProperty("JMSXDeliveryCount") : 1;
        JsonObject shown = new JsonObject();
        shown.addProperty("durable", message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT);
        shown.addProperty("priority", message.getJMSPriority());
        shown.addProperty("deliveryCount", attempts - 1);
        shown.addProperty("redelivered", message.getJMSRedelivered());
        shown.addProperty("expiration", message.getJMSExpiration());
        shown.add("properties", properties(message));
        shown.add("application", application);
        shown.add("body", shownBody(message));
        return shown;
    }

    private static JsonObject properties(Message message) throws JMSException {
        JsonObject properties = new JsonObject();
        if (message.getJMSMessageID() != null) {
            properties.add("message-id", typed(message.getJMSMessageID()));
        }
        if (message.getJMSCorrelationID() != null) {
            properties.add("correlation-id", typed(message.getJMSCorrelationID()));
        }
        if (message.getJMSType() != null) {
            properties.addProperty("subject", message.getJMSType());
        }
        if (message.getJMSReplyTo() != null) {
            properties.addProperty("reply-to", ((Queue) message.getJMSReplyTo()).getQueueName());
        }
        if (message.getJMSDestination() != null) {
            properties.addProperty("to", ((Queue) message.getJMSDestination()).getQueueName());
        }
        if (message.getJMSTimestamp() != 0) {
            properties.addProperty("creation-time", message.getJMSTimestamp());
        }
        if (message.propertyExists("JMSXGroupID")) {
            properties.addProperty("group-id", message.getStringProperty("JMSXGroupID"));
        }
        if (message.propertyExists("JMSXGroupSeq")) {
            properties.addProperty("group-sequence", message.getIntProperty("JMSXGroupSeq"));
        }
        return properties;
    }

    private static JsonObject shownBody(Message message) throws JMSException {
        JsonObject body = new JsonObject();
        if (message instanceof BytesMessage bytes) {
            byte[] octets = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(octets);
            body.addProperty("data", HexFormat.of().formatHex(octets));
        } else if (message instanceof TextMessage text) {
            body.add("value", typed(text.getText()));
        } else if (message instanceof MapMessage map) {
            JsonArray pairs = new JsonArray();
            for (Object name : Collections.list(map.getMapNames())) {
                JsonArray pair = new JsonArray();
                pair.add(typed(name));
                pair.add(typed(map.getObject((String) name)));
                pairs.add(pair);
            }
            JsonObject typed = new JsonObject();
            typed.add("map", pairs);
            body.add("value", typed);
        } else if (message instanceof StreamMessage stream) {
            JsonArray items = new JsonArray();
            try {
                while (true) {
                    items.add(typed(stream.readObject()));
                }
            } catch (MessageEOFException end) {
                body.add("sequence", items);
            }
        }
        return body;
    }
}
