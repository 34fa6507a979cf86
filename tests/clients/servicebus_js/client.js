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
const senders = new Map();
const receivers = new Map();
const loops = [];
const locked = new Map(); // receiver and message, by lock token

async function open({ connection, websocket, ca, retries = 0 }) {
    if (client) await close({});
    const options = { retryOptions: { maxRetries: retries, retryDelayInMs: 200, timeoutInMs: 15000 } };
    if (websocket) {
        const trust = ca ? { ca: fs.readFileSync(ca) } : {};
        options.webSocketOptions = { webSocket: WebSocket, webSocketConstructorOptions: trust };
    }
    client = new ServiceBusClient(connection, options);
}

function senderOf(to) {
    if (!senders.has(to)) senders.set(to, client.createSender(to));
    return senders.get(to);
}

function receiverOf(from, { delete: isDeleting = false, auto_renew: renewal = 0 } = {}) {
    if (receivers.has(from)) return receivers.get(from);
    const entity = from.split('#')[0].split('/'); // QUEUE or TOPIC, SUBSCRIPTION
    const options = {
        receiveMode: isDeleting ? 'receiveAndDelete' : 'peekLock', maxAutoLockRenewalDurationInMs: renewal * 1000,
        skipParsingBodyAsJson: true,
    };
    if (entity[entity.length - 1] === 'dead') {
        options.subQueueType = 'deadLetter';
        entity.pop();
    }
    const made = client.createReceiver(...entity, options);
    receivers.set(from, made);
    return made;
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

async function settle({ token, how = 'complete', reason, description }) {
    const [receiver, message] = locked.get(token);
    if (how === 'complete') await receiver.completeMessage(message);
    else if (how === 'abandon') await receiver.abandonMessage(message);
    else if (how === 'defer') await receiver.deferMessage(message);
    else await receiver.deadLetterMessage(message, { deadLetterReason: reason, deadLetterErrorDescription: description });
}

async function renew({ token }) {
    const [receiver, message] = locked.get(token);
    return { until: (await receiver.renewMessageLock(message)).getTime() / 1000 };
}

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
    for (const end of [...receivers.values(), ...senders.values()]) await end.close();
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

const commands = { open, send, schedule, cancel, receive, process: process_, peek, settle, renew, close, leave };

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
