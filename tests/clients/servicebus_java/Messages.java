import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Messages as JSON. */
final class Messages {
    private static final Gson GSON = new Gson();

    private Messages() {}

    static ServiceBusMessage of(JsonObject fields) {
        ServiceBusMessage message = new ServiceBusMessage(body(fields));
        for (Map.Entry<String, JsonElement> field : fields.entrySet()) {
            JsonElement value = field.getValue();
            switch (field.getKey()) {
                case "body", "value", "sequence" -> {}
                case "message_id" -> message.setMessageId(value.getAsString());
                case "session_id" -> message.setSessionId(value.getAsString());
                case "subject" -> message.setSubject(value.getAsString());
                case "to" -> message.setTo(value.getAsString());
                case "reply_to" -> message.setReplyTo(value.getAsString());
                case "reply_to_session_id" -> message.setReplyToSessionId(value.getAsString());
                case "correlation_id" -> message.setCorrelationId(value.getAsString());
                case "content_type" -> message.setContentType(value.getAsString());
                case "partition_key" -> message.setPartitionKey(value.getAsString());
                case "time_to_live" -> message.setTimeToLive(Duration.ofMillis((long) (1000 * value.getAsDouble())));
                case "scheduled_enqueue_time_utc" -> message.setScheduledEnqueueTime(Client.time(value));
                case "application_properties" -> value.getAsJsonObject().entrySet().forEach(
                    property -> message.getApplicationProperties().put(property.getKey(), scalar(property.getValue())));
                default -> throw new IllegalArgumentException("unknown field " + field.getKey());
            }
        }
        return message;
    }

    static CreateRuleOptions rule(JsonObject command) {
        if (command.has("sql")) {
            return new CreateRuleOptions(new SqlRuleFilter(command.get("sql").getAsString()));
        }
        JsonObject fields = command.getAsJsonObject("correlation");
        CorrelationRuleFilter filter = new CorrelationRuleFilter();
        if (fields.has("subject")) {
            filter.setLabel(fields.get("subject").getAsString());
        }
        if (fields.has("properties")) {
            fields.getAsJsonObject("properties").entrySet().forEach(
                property -> filter.getProperties().put(property.getKey(), scalar(property.getValue())));
        }
        return new CreateRuleOptions(filter);
    }

    private static AmqpMessageBody body(JsonObject fields) {
        if (fields.has("value")) {
            return AmqpMessageBody.fromValue(scalar(fields.get("value")));
        }
        if (fields.has("sequence")) {
            List<Object> values = new ArrayList<>();
            fields.getAsJsonArray("sequence").forEach(value -> values.add(scalar(value)));
            return AmqpMessageBody.fromSequence(values);
        }
        return AmqpMessageBody.fromData(fields.get("body").getAsString().getBytes(java.nio.charset.StandardCharsets.UTF_8));
    }

    private static Object scalar(JsonElement element) {
        JsonPrimitive value = element.getAsJsonPrimitive();
        if (value.isBoolean()) {
            return value.getAsBoolean();
        }
        if (value.isString()) {
            return value.getAsString();
        }
        double number = value.getAsDouble();
        return number == Math.rint(number) ? (Object) value.getAsLong() : (Object) number;
    }

    static JsonObject seen(ServiceBusReceivedMessage message) {
        JsonObject seen = new JsonObject();
        AmqpMessageBody body = message.getRawAmqpMessage().getBody();
        if (body.getBodyType() == AmqpMessageBodyType.DATA) {
            seen.addProperty("body", message.getBody().toString());
        } else {
            boolean isValue = body.getBodyType() == AmqpMessageBodyType.VALUE;
            seen.add("body", GSON.toJsonTree(isValue ? body.getValue() : body.getSequence()));
        }
        seen.addProperty("token", message.getLockToken());
        seen.addProperty("state", message.getState().toString());
        seen.addProperty("message_id", message.getMessageId());
        seen.addProperty("session_id", message.getSessionId());
        seen.addProperty("subject", message.getSubject());
        seen.addProperty("to", message.getTo());
        seen.addProperty("reply_to", message.getReplyTo());
        seen.addProperty("reply_to_session_id", message.getReplyToSessionId());
        seen.addProperty("correlation_id", message.getCorrelationId());
        seen.addProperty("content_type", message.getContentType());
        seen.addProperty("partition_key", message.getPartitionKey());
        seen.addProperty("delivery_count", message.getDeliveryCount());
        seen.addProperty("sequence_number", message.getSequenceNumber());
        seen.addProperty("dead_letter_reason", message.getDeadLetterReason());
        seen.addProperty("dead_letter_error_description", message.getDeadLetterErrorDescription());
        seen.addProperty("dead_letter_source", message.getDeadLetterSource());
        seen.add("properties", GSON.toJsonTree(message.getApplicationProperties()));
        add(seen, "enqueued_time_utc", message.getEnqueuedTime());
        add(seen, "locked_until_utc", message.getLockedUntil());
        add(seen, "expires_at_utc", message.getExpiresAt());
        add(seen, "scheduled_enqueue_time_utc", message.getScheduledEnqueueTime());
        return seen;
    }

    private static void add(JsonObject seen, String name, OffsetDateTime time) {
        if (time != null) {
            seen.addProperty(name, Client.seconds(time));
        }
    }
}
