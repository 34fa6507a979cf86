//! Between the JSON form of messages (../driving.py) and fe2o3-amqp's.

use fe2o3_amqp::types::definitions::{Error, ErrorCondition, Fields};
use fe2o3_amqp::types::messaging::annotations::OwnedKey;
use fe2o3_amqp::types::messaging::{
    Address, AmqpSequence, AmqpValue, ApplicationProperties, Batch, Body, Data, Header, Message, MessageAnnotations, MessageId,
    Priority, Properties,
};
use fe2o3_amqp::types::primitives::{Binary, OrderedMap, Symbol, Timestamp, Uuid, Value};
use serde_json::{json, Map, Value as Json};

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter(|digit| *digit != '-').map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().flat_map(|octet| [octet >> 4, octet & 15]).map(|digit| char::from_digit(digit.into(), 16).unwrap()).collect()
}

fn only(typed: &Json) -> (&str, &Json) {
    let (name, value) = typed.as_object().unwrap().iter().next().unwrap();
    (name, value)
}

pub fn value_of(typed: &Json) -> Value {
    let (name, value) = only(typed);
    let whole = || value.as_i64().unwrap();
    let positive = || value.as_u64().unwrap();
    let text = || value.as_str().unwrap();
    match name {
        "null" => Value::Null,
        "boolean" => Value::Bool(value.as_bool().unwrap()),
        "ubyte" => Value::Ubyte(positive() as u8),
        "ushort" => Value::Ushort(positive() as u16),
        "uint" => Value::Uint(positive() as u32),
        "ulong" => Value::Ulong(positive()),
        "byte" => Value::Byte(whole() as i8),
        "short" => Value::Short(whole() as i16),
        "int" => Value::Int(whole() as i32),
        "long" => Value::Long(whole()),
        "float" => Value::from(value.as_f64().unwrap() as f32),
        "double" => Value::from(value.as_f64().unwrap()),
        "char" => Value::Char(text().chars().next().unwrap()),
        "timestamp" => Value::Timestamp(Timestamp::from_milliseconds(whole())),
        "uuid" => Value::Uuid(Uuid::try_from(octets(text()).as_slice()).unwrap()),
        "binary" => Value::Binary(Binary::from(octets(text()))),
        "string" => Value::String(text().to_owned()),
        "symbol" => Value::Symbol(Symbol::from(text())),
        "list" => Value::List(values_of(value)),
        "map" => Value::Map(value.as_array().unwrap().iter().map(|pair| (value_of(&pair[0]), value_of(&pair[1]))).collect()),
        other => panic!("fe2o3-amqp has no type {other}"),
    }
}

fn values_of(items: &Json) -> Vec<Value> {
    items.as_array().unwrap().iter().map(value_of).collect()
}

pub fn typed(value: &Value) -> Json {
    match value {
        Value::Null => json!({"null": null}),
        Value::Bool(it) => json!({"boolean": it}),
        Value::Ubyte(it) => json!({"ubyte": it}),
        Value::Ushort(it) => json!({"ushort": it}),
        Value::Uint(it) => json!({"uint": it}),
        Value::Ulong(it) => json!({"ulong": it}),
        Value::Byte(it) => json!({"byte": it}),
        Value::Short(it) => json!({"short": it}),
        Value::Int(it) => json!({"int": it}),
        Value::Long(it) => json!({"long": it}),
        Value::Float(it) => json!({"float": it.into_inner()}),
        Value::Double(it) => json!({"double": it.into_inner()}),
        Value::Char(it) => json!({"char": it}),
        Value::Timestamp(it) => json!({"timestamp": it.milliseconds()}),
        Value::Uuid(it) => json!({"uuid": format!("{it:x}")}),
        Value::Binary(it) => json!({"binary": hex(it)}),
        Value::String(it) => json!({"string": it}),
        Value::Symbol(it) => json!({"symbol": it.as_str()}),
        Value::List(items) => json!({"list": items.iter().map(typed).collect::<Vec<_>>()}),
        Value::Map(pairs) => json!({"map": pairs.iter().map(|(key, item)| json!([typed(key), typed(item)])).collect::<Vec<_>>()}),
        other => json!({"unknown": format!("{other:?}")}),
    }
}

fn entries(given: &Json) -> impl Iterator<Item = (&String, Value)> {
    given.as_object().into_iter().flatten().map(|(name, value)| (name, value_of(value)))
}

pub fn fields_of(given: &Json) -> Option<Fields> {
    given.is_object().then(|| entries(given).map(|(name, value)| (Symbol::from(name.as_str()), value)).collect())
}

pub fn error_of(reason: &Json) -> Option<Error> {
    let condition = ErrorCondition::Custom(Symbol::from(reason["condition"].as_str()?));
    Some(Error::new(condition, reason["description"].as_str().map(str::to_owned), None))
}

pub fn message_of(given: &Json) -> Message<Body<Value>> {
    let mut header = Header { durable: given["durable"] == true, ..Default::default() };
    if let Some(priority) = given["priority"].as_u64() {
        header.priority = Priority(priority as u8);
    }
    header.ttl = given["ttl"].as_u64().map(|ttl| ttl as u32);
    let annotations: OrderedMap<_, _> =
        entries(&given["annotations"]).map(|(name, value)| (OwnedKey::from(name.as_str()), value)).collect();
    let application: OrderedMap<_, _> =
        entries(&given["application"]).map(|(name, value)| (name.clone(), value.try_into().unwrap())).collect();
    let body = match only(&given["body"]) {
        ("data", data) => Body::Data(Batch::new(vec![Data::from(octets(data.as_str().unwrap()))])),
        ("sequence", items) => Body::Sequence(Batch::new(vec![AmqpSequence(values_of(items))])),
        (_, value) => Body::Value(AmqpValue(value_of(value))),
    };
    Message {
        header: Some(header),
        delivery_annotations: None,
        message_annotations: (!annotations.is_empty()).then_some(MessageAnnotations(annotations)),
        properties: given["properties"].is_object().then(|| properties_of(&given["properties"])),
        application_properties: (!application.is_empty()).then_some(ApplicationProperties(application)),
        body,
        footer: None,
    }
}

fn properties_of(given: &Json) -> Properties {
    let text = |name: &str| given[name].as_str().map(str::to_owned);
    let time = |name: &str| given[name].as_i64().map(Timestamp::from_milliseconds);
    Properties {
        message_id: id_of(&given["message-id"]),
        user_id: given["user-id"].as_str().map(|user| Binary::from(octets(user))),
        to: text("to").map(Address::from),
        subject: text("subject"),
        reply_to: text("reply-to").map(Address::from),
        correlation_id: id_of(&given["correlation-id"]),
        content_type: text("content-type").map(Symbol::from),
        content_encoding: text("content-encoding").map(Symbol::from),
        absolute_expiry_time: time("absolute-expiry-time"),
        creation_time: time("creation-time"),
        group_id: text("group-id"),
        group_sequence: given["group-sequence"].as_u64().map(|sequence| sequence as u32),
        reply_to_group_id: text("reply-to-group-id"),
    }
}

fn id_of(typed: &Json) -> Option<MessageId> {
    if typed.is_null() {
        return None;
    }
    Some(match value_of(typed) {
        Value::Ulong(number) => MessageId::Ulong(number),
        Value::Uuid(uuid) => MessageId::Uuid(uuid),
        Value::Binary(octets) => MessageId::Binary(octets),
        Value::String(text) => MessageId::String(text),
        other => panic!("{other:?} is not an id"),
    })
}

fn shown_id(id: &MessageId) -> Json {
    match id {
        MessageId::Ulong(number) => json!({"ulong": number}),
        MessageId::Uuid(uuid) => json!({"uuid": format!("{uuid:x}")}),
        MessageId::Binary(octets) => json!({"binary": hex(octets)}),
        MessageId::String(text) => json!({"string": text}),
    }
}

pub fn shown(message: &Message<Body<Value>>) -> Json {
    let header = message.header.clone().unwrap_or_default();
    let mut annotations = Map::new();
    for (name, value) in message.message_annotations.iter().flat_map(|section| section.0.iter()) {
        if let OwnedKey::Symbol(symbol) = name {
            annotations.insert(symbol.0.clone(), typed(value));
        }
    }
    let mut application = Map::new();
    for (name, value) in message.application_properties.iter().flat_map(|section| section.0.iter()) {
        application.insert(name.clone(), typed(&value.clone().into()));
    }
    let body = match &message.body {
        Body::Data(parts) => json!({"data": parts.iter().map(|part| hex(&part.0)).collect::<String>()}),
        Body::Sequence(parts) => json!({"sequence": parts.iter().flat_map(|part| part.0.iter()).map(typed).collect::<Vec<_>>()}),
        Body::Value(AmqpValue(value)) => json!({"value": typed(value)}),
        Body::Empty => json!({"value": {"null": null}}),
    };
    json!({
        "durable": header.durable, "priority": header.priority.0, "ttl": header.ttl.unwrap_or(0),
        "firstAcquirer": header.first_acquirer, "deliveryCount": header.delivery_count,
        "annotations": annotations, "application": application, "body": body,
        "properties": message.properties.as_ref().map(shown_properties).unwrap_or_else(|| json!({})),
    })
}

fn shown_properties(properties: &Properties) -> Json {
    let time = |moment: &Option<Timestamp>| moment.as_ref().map(Timestamp::milliseconds);
    let symbol = |symbol: &Option<Symbol>| symbol.as_ref().map(|symbol| symbol.0.clone());
    let mut all = json!({
        "message-id": properties.message_id.as_ref().map(shown_id),
        "user-id": properties.user_id.as_ref().map(|user| hex(user)),
        "to": properties.to,
        "subject": properties.subject,
        "reply-to": properties.reply_to,
        "correlation-id": properties.correlation_id.as_ref().map(shown_id),
        "content-type": symbol(&properties.content_type),
        "content-encoding": symbol(&properties.content_encoding),
        "absolute-expiry-time": time(&properties.absolute_expiry_time),
        "creation-time": time(&properties.creation_time),
        "group-id": properties.group_id,
        "group-sequence": properties.group_sequence,
        "reply-to-group-id": properties.reply_to_group_id,
    });
    all.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    all
}
