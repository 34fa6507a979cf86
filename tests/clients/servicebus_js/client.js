'use strict';
// A program with the vendor's JavaScript SDK: the commands and answers of ../servicebus/client.py.

const fs = require('fs');
const readline = require('readline');
const { ServiceBusClient } = require('@azure/service-bus');
const Long = require('long');
const WebSocket = require('ws');

const FIELDS = {
    message_id: 'messageId', session_id: 'sessionId', subject: 'subject', to: 'to', reply_to: 'replyTo',
    reply_to_session_id: 'replyToSessionId', correlation_id: 'correlationId', content_type: 'contentType',
    partition_key: 'partitionKey', delivery_count: 'deliveryCount', dead_letter_reason: 'deadLetterReason',
    dead_letter_error_description: 'deadLetterErrorDescription', dead_letter_source: 'deadLetterSource',
};
const TIMES = {
    enqueued_time_utc: 'enqueuedTimeUtc', locked_until_utc: 'lockedUntilUtc', expires_at_utc: 'expiresAtUtc',
    scheduled_enqueue_time_utc: 'scheduledEnqueueTimeUtc',
};

let client;
let options; // of the client
const others = []; // clients with another time limit
const senders = new Map();
const receivers = new Map();
const loops = [];
const locked = new Map(); // receiver and message, by lock token

async function open({ connection, websocket, ca, retries = 0 }) {
    if (client) await close({});
    options = { retryOptions: { maxRetries: retries, retryDelayInMs: 200, timeoutInMs: 15000 } };
    if (websocket) {
        const trust = ca ? { ca: fs.readFileSync(ca) } : {};
        options.webSocketOptions = { webSocket: WebSocket, webSocketConstructorOptions: trust };
    }
    client = new ServiceBusClient(connection, options);
    client.connection = connection;
}

function senderOf(to) {
    if (!senders.has(to)) senders.set(to, client.createSender(to));
    return senders.get(to);
}

const entityOf = (from) => from.split('#')[0].split('/'); // QUEUE or TOPIC, SUBSCRIPTION

const modeOf = ({ delete: isDeleting = false, auto_renew: renewal = 0 }) => ({
    receiveMode: isDeleting ? 'receiveAndDelete' : 'peekLock', maxAutoLockRenewalDurationInMs: renewal * 1000,
    skipParsingBodyAsJson: true,
});

function receiverOf(from, how = {}) {
    if (receivers.has(from)) return receivers.get(from);
    const entity = entityOf(from);
    const mode = modeOf(how);
    if (entity[entity.length - 1] === 'dead') {
        mode.subQueueType = 'deadLetter';
        entity.pop();
    }
    const made = client.createReceiver(...entity, mode);
    receivers.set(from, made);
    return made;
}

// The SDK waits for the next session as long as for any answer.
async function accept({ from, session, wait, ...how }) {
    let by = client;
    if (wait !== undefined) {
        by = new ServiceBusClient(client.connection, { retryOptions: { ...options.retryOptions, timeoutInMs: wait * 1000 } });
        others.push(by);
    }
    const made = session === undefined ? await by.acceptNextSession(...entityOf(from), modeOf(how))
        : await by.acceptSession(...entityOf(from), session, modeOf(how));
    receivers.set(from, made);
    return { session: made.sessionId, until: made.sessionLockedUntilUtc.getTime() / 1000 };
}

const renewSession = async ({ from }) => ({ until: (await receivers.get(from).renewSessionLock()).getTime() / 1000 });

async function state({ from }) {
    const octets = await receivers.get(from).getSessionState();
    return { state: octets === null || octets === undefined ? null : octets.toString() };
}

async function setState({ from, state: text }) {
    await receivers.get(from).setSessionState(text === null ? null : Buffer.from(text));
}

async function send({ to, messages, batch = false, together = false }) {
    const several = messages.map(messageOf);
    if (together) await senderOf(to).sendMessages(several);
    else if (!batch) for (const message of several) await senderOf(to).sendMessages(message);
    else {
        const packed = await senderOf(to).createMessageBatch();
        for (const message of several) if (!packed.tryAddMessage(message)) throw new Error('the batch is full');
        await senderOf(to).sendMessages(packed);
    }
}

async function schedule({ to, messages, at }) {
    const numbers = await senderOf(to).scheduleMessages(messages.map(messageOf), new Date(at * 1000));
    return { numbers: numbers.map(Number) };
}

async function cancel({ to, numbers }) {
    await senderOf(to).cancelScheduledMessages(numbers.map((number) => Long.fromNumber(number)));
}

async function receive({ from, count = 1, wait = 5, ...mode }) {
    const receiver = receiverOf(from, mode);
    const messages = [];
    while (messages.length < count) { // a call ends early if messages come in several reads
        const more = await receiver.receiveMessages(count - messages.length, { maxWaitTimeInMs: wait * 1000 });
        if (!more.length) break;
        messages.push(...more);
    }
    messages.forEach((message) => locked.set(message.lockToken, [receiver, message]));
    return { messages: messages.map(seen) };
}

async function receiveDeferred({ from, numbers, ...mode }) {
    const receiver = receiverOf(from, mode);
    const messages = await receiver.receiveDeferredMessages(numbers.map((number) => Long.fromNumber(number)));
    messages.forEach((message) => locked.set(message.lockToken, [receiver, message]));
    return { messages: messages.map(seen) };
}

// The SDK's own loop. It completes handled messages, abandons failed ones, and runs until `leave`.
function process_({ from, count, fail = [], auto_renew: renewal, busy = 0 }) {
    const receiver = receiverOf(from, { auto_renew: renewal });
    const messages = [];
    return new Promise((resolve, reject) => {
        loops.push(receiver.subscribe({
            processMessage: async (message) => {
                if (busy) await new Promise((wake) => setTimeout(wake, busy * 1000));
                messages.push(seen(message));
                if (fail.includes(text(message.body)) && message.deliveryCount === 0) throw new Error('not yet');
            },
            processError: async ({ error, errorSource }) => {
                if (errorSource !== 'processMessageCallback') { clearInterval(timer); reject(error); }
            },
        }));
        const timer = setInterval(() => {
            if (messages.length < count) return;
            clearInterval(timer);
            resolve({ messages });
        }, 20);
    });
}

async function peek({ from, count = 1, number = 0 }) {
    const first = number ? { fromSequenceNumber: Long.fromNumber(number) } : {};
    return { messages: (await receiverOf(from).peekMessages(count, first)).map(seen) };
}

async function settle({ token, how = 'complete', reason, description, changed }) {
    const [receiver, message] = locked.get(token);
    if (how === 'complete') await receiver.completeMessage(message);
    else if (how === 'abandon') await receiver.abandonMessage(message, changed);
    else if (how === 'defer') await receiver.deferMessage(message, changed);
    else {
        const reasons = { deadLetterReason: reason, deadLetterErrorDescription: description };
        await receiver.deadLetterMessage(message, { ...reasons, ...changed });
    }
}

async function renew({ token }) {
    const [receiver, message] = locked.get(token);
    return { until: (await receiver.renewMessageLock(message)).getTime() / 1000 };
}

async function rules({ from }) {
    const names = [];
    for await (const rule of client.createRuleManager(...entityOf(from)).listRules()) names.push(rule.name);
    return { names };
}

async function createRule({ from, name, sql, correlation: { properties, ...fields } = {} }) {
    const filter = sql ? { sqlExpression: sql } : { applicationProperties: properties, ...fields };
    await client.createRuleManager(...entityOf(from)).createRule(name, filter);
}

const deleteRule = ({ from, name }) => client.createRuleManager(...entityOf(from)).deleteRule(name);

async function close({ from }) {
    if (from !== undefined) {
        await receivers.get(from).close();
        receivers.delete(from);
        return;
    }
    await leave();
    await client.close();
    client = undefined;
}

// Forget all links, but keep the connection.
async function leave() {
    for (const loop of loops.splice(0)) await loop.close();
    for (const end of [...receivers.values(), ...senders.values(), ...others.splice(0)]) await end.close();
    [receivers, senders, locked].forEach((some) => some.clear());
}

function messageOf({ body, value, sequence, application_properties: properties, time_to_live: ttl, ...fields }) {
    const message = { body: body === undefined ? body : Buffer.from(body) };
    if (value !== undefined) Object.assign(message, { bodyType: 'value', body: value });
    if (sequence !== undefined) Object.assign(message, { bodyType: 'sequence', body: sequence });
    if (properties) message.applicationProperties = properties;
    if (ttl) message.timeToLive = ttl * 1000;
    for (const [name, content] of Object.entries(fields)) {
        if (name in TIMES) message[TIMES[name]] = new Date(content * 1000);
        else message[FIELDS[name]] = content;
    }
    return message;
}

const text = (body) => (Buffer.isBuffer(body) ? body.toString() : body);

function seen(message) {
    const answer = { body: text(message.body), token: message.lockToken || null, state: message.state.toUpperCase() };
    answer.properties = message.applicationProperties || {};
    answer.sequence_number = Number(message.sequenceNumber);
    for (const [name, ours] of Object.entries(FIELDS)) answer[name] = message[ours] === undefined ? null : message[ours];
    for (const [name, ours] of Object.entries(TIMES)) if (message[ours]) answer[name] = message[ours].valueOf() / 1000;
    return answer;
}

const commands = {
    open, send, schedule, cancel, receive, process: process_, peek, settle, renew, close, leave, accept, state, rules,
    receive_deferred: receiveDeferred, renew_session: renewSession, set_state: setState, create_rule: createRule,
    delete_rule: deleteRule,
};

async function main() {
    for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
        const command = JSON.parse(line);
        let answer;
        try {
            answer = (await commands[command.do](command)) || {};
        } catch (error) {
            answer = { error: { level: error.code || error.name, condition: null, description: String(error.message) } };
        }
        process.stdout.write(JSON.stringify(answer) + '\n');
    }
    process.exit(0);
}

main();
