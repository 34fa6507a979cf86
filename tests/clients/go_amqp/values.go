package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
)

// Between the JSON form of messages (../driving.py) and go-amqp's.

type object = map[string]any

func number(value any) int64 {
	whole, err := value.(json.Number).Int64()
	if err != nil {
		panic(fmt.Errorf("%v is not a whole number: %w", value, err))
	}
	return whole
}

func octets(text any) []byte {
	decoded, err := hex.DecodeString(text.(string))
	if err != nil {
		panic(err)
	}
	return decoded
}

func only(typed any) (string, any) {
	for name, value := range typed.(object) {
		return name, value
	}
	panic("an empty value")
}

func valueOf(typed any) any {
	name, value := only(typed)
	switch name {
	case "null":
		return amqp.Null{}
	case "boolean", "string":
		return value
	case "ubyte":
		return uint8(number(value))
	case "ushort":
		return uint16(number(value))
	case "uint":
		return uint32(number(value))
	case "ulong":
		var whole uint64
		if _, err := fmt.Sscan(value.(json.Number).String(), &whole); err != nil {
			panic(err)
		}
		return whole
	case "byte":
		return int8(number(value))
	case "short":
		return int16(number(value))
	case "int":
		return int32(number(value))
	case "long":
		return number(value)
	case "float", "double":
		float, err := value.(json.Number).Float64()
		if err != nil {
			panic(err)
		}
		if name == "float" {
			return float32(float)
		}
		return float
	case "timestamp":
		return time.UnixMilli(number(value)).UTC()
	case "uuid":
		var id amqp.UUID
		text := value.(string)
		copy(id[:], octets(text[:8]+text[9:13]+text[14:18]+text[19:23]+text[24:]))
		return id
	case "binary":
		return octets(value)
	case "list":
		var items []any
		for _, item := range value.([]any) {
			items = append(items, valueOf(item))
		}
		return items
	case "map":
		pairs := map[any]any{}
		for _, pair := range value.([]any) {
			pairs[valueOf(pair.([]any)[0])] = valueOf(pair.([]any)[1])
		}
		return pairs
	}
	panic("go-amqp has no type " + name)
}

func typed(value any) object {
	switch v := value.(type) {
	case nil:
		return object{"null": nil}
	case bool:
		return object{"boolean": v}
	case string:
		return object{"string": v}
	case amqp.SourceDistributionMode: // go-amqp's only public name for a symbol
		return object{"symbol": string(v)}
	case uint8:
		return object{"ubyte": v}
	case uint16:
		return object{"ushort": v}
	case uint32:
		return object{"uint": v}
	case uint64:
		return object{"ulong": v}
	case int8:
		return object{"byte": v}
	case int16:
		return object{"short": v}
	case int32:
		return object{"int": v}
	case int64:
		return object{"long": v}
	case float32:
		return object{"float": v}
	case float64:
		return object{"double": v}
	case time.Time:
		return object{"timestamp": v.UnixMilli()}
	case amqp.UUID:
		return object{"uuid": v.String()}
	case []byte:
		return object{"binary": hex.EncodeToString(v)}
	case []any:
		return object{"list": typedList(v)}
	case map[any]any:
		pairs := [][2]object{}
		for key, item := range v {
			pairs = append(pairs, [2]object{typed(key), typed(item)})
		}
		return object{"map": pairs}
	case map[string]any:
		pairs := [][2]object{}
		for key, item := range v {
			pairs = append(pairs, [2]object{typed(key), typed(item)})
		}
		return object{"map": pairs}
	}
	return object{fmt.Sprintf("%T", value): fmt.Sprint(value)}
}

func typedList(items []any) []object {
	shown := []object{}
	for _, item := range items {
		shown = append(shown, typed(item))
	}
	return shown
}

func annotationsOf(given any) amqp.Annotations {
	if given == nil {
		return nil
	}
	annotations := amqp.Annotations{}
	for name, value := range given.(object) {
		annotations[name] = valueOf(value)
	}
	return annotations
}

func messageOf(given object) *amqp.Message {
	message := &amqp.Message{Header: &amqp.MessageHeader{Priority: 4}}
	if durable, ok := given["durable"]; ok {
		message.Header.Durable = durable.(bool)
	}
	if priority, ok := given["priority"]; ok {
		message.Header.Priority = uint8(number(priority))
	}
	if ttl, ok := given["ttl"]; ok {
		message.Header.TTL = time.Duration(number(ttl)) * time.Millisecond
	}
	message.Annotations = annotationsOf(given["annotations"])
	if properties, ok := given["properties"]; ok {
		message.Properties = propertiesOf(properties.(object))
	}
	if application, ok := given["application"]; ok {
		message.ApplicationProperties = map[string]any{}
		for name, value := range application.(object) {
			message.ApplicationProperties[name] = valueOf(value)
		}
	}
	switch kind, body := only(given["body"]); kind {
	case "data":
		message.Data = [][]byte{octets(body)}
	case "sequence":
		message.Sequence = [][]any{valueOf(object{"list": body}).([]any)}
	default:
		message.Value = valueOf(body)
	}
	return message
}

func propertiesOf(given object) *amqp.MessageProperties {
	properties := &amqp.MessageProperties{}
	texts := map[string]**string{
		"to": &properties.To, "subject": &properties.Subject, "reply-to": &properties.ReplyTo,
		"content-type": &properties.ContentType, "content-encoding": &properties.ContentEncoding,
		"group-id": &properties.GroupID, "reply-to-group-id": &properties.ReplyToGroupID,
	}
	times := map[string]**time.Time{
		"absolute-expiry-time": &properties.AbsoluteExpiryTime, "creation-time": &properties.CreationTime,
	}
	for name, value := range given {
		switch {
		case name == "message-id":
			properties.MessageID = valueOf(value)
		case name == "correlation-id":
			properties.CorrelationID = valueOf(value)
		case name == "user-id":
			properties.UserID = octets(value)
		case name == "group-sequence":
			sequence := uint32(number(value))
			properties.GroupSequence = &sequence
		case texts[name] != nil:
			text := value.(string)
			*texts[name] = &text
		default:
			moment := time.UnixMilli(number(value))
			*times[name] = &moment
		}
	}
	return properties
}

func shown(message *amqp.Message) object {
	header := message.Header
	if header == nil {
		header = &amqp.MessageHeader{Priority: 4}
	}
	annotations, application := object{}, object{}
	for name, value := range message.Annotations {
		annotations[fmt.Sprint(name)] = typed(value)
	}
	for name, value := range message.ApplicationProperties {
		application[name] = typed(value)
	}
	body := object{"value": typed(message.Value)}
	if len(message.Data) > 0 {
		var joined []byte
		for _, part := range message.Data {
			joined = append(joined, part...)
		}
		body = object{"data": hex.EncodeToString(joined)}
	} else if len(message.Sequence) > 0 {
		body = object{"sequence": typedList(message.Sequence[0])}
	}
	return object{
		"durable": header.Durable, "priority": header.Priority, "ttl": header.TTL.Milliseconds(),
		"firstAcquirer": header.FirstAcquirer, "deliveryCount": header.DeliveryCount,
		"annotations": annotations, "properties": shownProperties(message.Properties), "application": application, "body": body,
	}
}

func shownProperties(properties *amqp.MessageProperties) object {
	out := object{}
	if properties == nil {
		return out
	}
	for name, text := range map[string]*string{
		"to": properties.To, "subject": properties.Subject, "reply-to": properties.ReplyTo,
		"content-type": properties.ContentType, "content-encoding": properties.ContentEncoding,
		"group-id": properties.GroupID, "reply-to-group-id": properties.ReplyToGroupID,
	} {
		if text != nil {
			out[name] = *text
		}
	}
	for name, id := range map[string]any{"message-id": properties.MessageID, "correlation-id": properties.CorrelationID} {
		if id != nil {
			out[name] = typed(id)
		}
	}
	for name, moment := range map[string]*time.Time{
		"absolute-expiry-time": properties.AbsoluteExpiryTime, "creation-time": properties.CreationTime,
	} {
		if moment != nil {
			out[name] = moment.UnixMilli()
		}
	}
	if properties.UserID != nil {
		out["user-id"] = hex.EncodeToString(properties.UserID)
	}
	if properties.GroupSequence != nil {
		out["group-sequence"] = *properties.GroupSequence
	}
	return out
}
