'use strict';
// Between the JSON form of messages (../driving.py) and rhea's. A received value shows JavaScript's types: every number is "number".

const rhea = require('rhea');
const types = rhea.types;

const makers = {
    null: () => types.wrap(null),
    boolean: types.wrap_boolean,
    ubyte: types.wrap_ubyte,
    ushort: types.wrap_ushort,
    uint: types.wrap_uint,
    ulong: types.wrap_ulong,
    byte: types.wrap_byte,
    short: types.wrap_short,
    int: types.wrap_int,
    long: types.wrap_long,
    float: types.wrap_float,
    double: types.wrap_double,
    char: (text) => types.wrap_char(text.codePointAt(0)),
    timestamp: types.wrap_timestamp,
    uuid: (text) => types.wrap_uuid(rhea.string_to_uuid(text)),
    binary: (hex) => types.wrap_binary(Buffer.from(hex, 'hex')),
    string: types.wrap_string,
    symbol: types.wrap_symbol,
    list: (items) => types.wrap_list(items.map(valueOf)),
    map: (pairs) => types.wrap_map_as_map(new Map(pairs.map(([key, value]) => [valueOf(key), valueOf(value)]))),
};

function valueOf(typed) {
    const [[name, value]] = Object.entries(typed);
    return makers[name](value);
}

function mapOf(typed) {
    return Object.fromEntries(Object.entries(typed).map(([name, value]) => [name, valueOf(value)]));
}

function typed(value) {
    if (value === null || value === undefined) return { null: null };
    if (Buffer.isBuffer(value)) return { binary: value.toString('hex') };
    if (value instanceof Date) return { timestamp: value.getTime() };
    if (Array.isArray(value)) return { list: value.map(typed) };
    if (typeof value === 'object') return { map: Object.entries(value).map(([key, item]) => [typed(key), typed(item)]) };
    return { [typeof value]: value };
}

function typedMap(map) {
    return Object.fromEntries(Object.entries(map || {}).map(([name, value]) => [name, typed(value)]));
}

const IDS = ['message-id', 'correlation-id'];
const PLAIN = ['to', 'subject', 'reply-to', 'content-type', 'content-encoding', 'group-id', 'group-sequence', 'reply-to-group-id'];
const TIMES = ['absolute-expiry-time', 'creation-time'];
const field = (name) => name.replace(/-/g, '_');

function messageOf(given) {
    const message = {};
    for (const name of ['durable', 'priority', 'ttl']) {
        if (given[name] !== undefined) message[name] = given[name];
    }
    const properties = given.properties || {};
    for (const [name, value] of Object.entries(properties)) {
        if (IDS.includes(name)) message[field(name)] = valueOf(value);
        else if (name === 'user-id') message.user_id = Buffer.from(value, 'hex');
        else message[field(name)] = value;
    }
    if (given.application) message.application_properties = mapOf(given.application);
    if (given.annotations) message.message_annotations = mapOf(given.annotations);
    const [[kind, body]] = Object.entries(given.body);
    if (kind === 'data') message.body = rhea.message.data_section(Buffer.from(body, 'hex'));
    else if (kind === 'sequence') message.body = rhea.message.sequence_section(body.map(valueOf));
    else message.body = valueOf(body);
    return message;
}

function bodyOf(body) {
    if (!body || body.typecode === undefined) return { value: typed(body) };
    if (body.typecode === 0x75) return { data: Buffer.concat([].concat(body.content)).toString('hex') };
    return { sequence: body.content.map(typed) };
}

function shown(message) {
    const properties = {};
    for (const name of PLAIN) {
        if (message[field(name)] !== undefined) properties[name] = message[field(name)];
    }
    for (const name of IDS) {
        if (message[field(name)] !== undefined) properties[name] = typed(message[field(name)]);
    }
    for (const name of TIMES) {
        if (message[field(name)] !== undefined) properties[name] = message[field(name)].getTime();
    }
    if (message.user_id !== undefined) properties['user-id'] = message.user_id.toString('hex');
    return {
        durable: message.durable || false,
        priority: message.priority === undefined ? 4 : message.priority,
        ttl: message.ttl || 0,
        firstAcquirer: message.first_acquirer || false,
        deliveryCount: message.delivery_count || 0,
        annotations: typedMap(message.message_annotations),
        properties,
        application: typedMap(message.application_properties),
        body: bodyOf(message.body),
    };
}

module.exports = { messageOf, mapOf, shown };
