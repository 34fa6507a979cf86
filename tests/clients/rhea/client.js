'use strict';
// rhea as a client that takes orders: one JSON command a line on stdin, one JSON answer a line on stdout. See ../driving.py.

const fs = require('fs');
const readline = require('readline');
const rhea = require('rhea');
const WebSocket = require('ws');
const { messageOf, mapOf, shown } = require('./values.js');

class Failed extends Error {
    constructor(level, error) {
        super(level);
        const said = error || {};
        this.answer = { level, condition: said.condition || said.code || null, description: said.description || said.message || String(said) };
    }
}

// A waiting command looks again after each event.
const waiting = new Set();
const wake = () => waiting.forEach((look) => look());

function until(condition, seconds = 20) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(() => { waiting.delete(look); reject(new Error(`not within ${seconds} s`)); }, seconds * 1000);
        function look() {
            try {
                if (!condition()) return;
            } catch (error) {
                clearTimeout(timer); waiting.delete(look); reject(error);
                return;
            }
            clearTimeout(timer); waiting.delete(look); resolve();
        }
        waiting.add(look);
        look();
    });
}

const container = rhea.create_container();
let connection;
let gone; // why the connection ended
const sessions = new Map();
const links = new Map();

for (const event of ['connection_open', 'sender_open', 'receiver_open', 'sendable', 'settled', 'receiver_drained', 'receiver_flow',
    'connection_close', 'session_close']) {
    container.on(event, wake);
}
container.on('connection_error', (context) => { gone = context.connection.error; wake(); });
container.on('disconnected', (context) => { gone = gone || context.error || { description: 'disconnected' }; wake(); });
container.on('session_error', (context) => { gone = context.session.error; wake(); });
container.on('error', (error) => { gone = error; wake(); });
for (const kind of ['sender', 'receiver']) {
    container.on(`${kind}_error`, () => {}); // the close follows
    container.on(`${kind}_close`, (context) => {
        context[kind].failure = context[kind].error || { description: 'detached without an error' };
        wake();
    });
}
for (const outcome of ['accepted', 'rejected', 'released', 'modified']) {
    container.on(outcome, (context) => {
        const error = context.delivery.remote_state && context.delivery.remote_state.error;
        context.delivery.outcome = { outcome, ...(error ? { condition: error.condition, description: error.description } : {}) };
        wake();
    });
}
container.on('message', (context) => {
    context.receiver.arrived.push([context.message, context.delivery]);
    wake();
});

function alive(link) {
    if (gone) throw new Failed('connection', gone);
    if (link && link.failure) throw new Failed('link', link.failure);
    return true;
}

const read = (path) => (path ? fs.readFileSync(path) : undefined);

async function open({ url, user, password, mechanism, ca, cert, key, idle, container: id }) {
    const { protocol, hostname, port } = new URL(url);
    const options = { host: hostname, port: Number(port), reconnect: false, username: user, password };
    if (idle) options.idle_time_out = idle * 1000;
    if (id) options.container_id = id;
    if (mechanism === 'ANONYMOUS') options.username = 'anonymous';
    const tls = { ca: read(ca), cert: read(cert), key: read(key) };
    if (protocol === 'amqps:') Object.assign(options, tls, { transport: 'tls', servername: hostname });
    if (cert && mechanism === 'EXTERNAL') options.enable_sasl_external = true;
    if (protocol.startsWith('ws')) {
        options.connection_details = container.websocket_connect(WebSocket)(url, ['amqp'], tls);
    }
    connection = container.connect(options);
    await until(() => alive() && connection.is_open() && connection.is_remote_open());
    return { properties: connection.remote.open.properties || {} };
}

function session(number) {
    if (!sessions.has(number)) {
        const made = connection.create_session();
        made.begin();
        sessions.set(number, made);
    }
    return sessions.get(number);
}

async function link(kind, number, name, make) {
    const known = JSON.stringify([kind, number, name]);
    if (!links.has(known)) {
        const made = make(number ? session(number) : connection);
        made.arrived = [];
        made.held = [];
        // A refused link is attached without its terminus, and then detached with the error.
        const terminus = kind === 'sender' ? 'target' : 'source';
        await until(() => alive(made) && made.is_remote_open() && made[terminus]);
        links.set(known, made);
    }
    return links.get(known);
}

async function send({ to, messages, session: number = 0, settled = false, wait = 30 }) {
    const options = { target: to === null ? {} : { address: to }, snd_settle_mode: settled ? 1 : 0 };
    const sender = await link('sender', number, [to, settled], (where) => where.open_sender(options));
    const deliveries = [];
    for (const message of messages) {
        await until(() => alive(sender) && sender.sendable(), wait);
        deliveries.push(sender.send(messageOf(message)));
    }
    await until(() => alive(sender) && deliveries.every((delivery) => settled || delivery.remote_settled), wait);
    return { outcomes: deliveries.map((delivery) => delivery.outcome || { outcome: 'none' }) };
}

function receiver({ from, session: number = 0, browse = false, second = false, selector, subscription }) {
    const source = { address: from, ...(browse ? { distribution_mode: 'copy' } : {}) };
    if (selector) source.filter = rhea.filter.selector(selector);
    if (subscription) Object.assign(source, { durable: 2, expiry_policy: 'never' });
    const options = { source, name: subscription, credit_window: 0, autoaccept: false, rcv_settle_mode: second ? 1 : 0 };
    const known = [from, browse, second, selector, subscription];
    return link('receiver', number, known, (where) => where.open_receiver(options));
}

async function dynamic() {
    const options = { source: { dynamic: true }, credit_window: 0, autoaccept: false };
    const made = await link('receiver', 0, ['dynamic'], (where) => where.open_receiver(options));
    const { address } = made.source;
    links.delete(JSON.stringify(['receiver', 0, ['dynamic']]));
    links.set(JSON.stringify(['receiver', 0, [address, false, false, undefined, undefined]]), made);
    return { address };
}

async function receive(command) {
    const { count = 1, credit = 0, wait = 20 } = command;
    const taking = await receiver(command);
    taking.add_credit((credit || count) - taking.credit - taking.arrived.length);
    await until(() => alive(taking) && taking.arrived.length >= count, wait);
    return take(taking, count, command);
}

async function drain(command) {
    const taking = await receiver(command);
    let drained = false;
    taking.once('receiver_drained', () => { drained = true; wake(); });
    taking.drain = true;
    taking.add_credit(command.credit);
    await until(() => alive(taking) && drained);
    taking.drain = false;
    return take(taking, taking.arrived.length, command);
}

function settle(delivery, outcome) {
    if (outcome === 'accept') delivery.accept();
    else if (outcome === 'reject') delivery.reject();
    else if (outcome === 'release') delivery.release();
    else if (outcome.reject) delivery.reject(outcome.reject);
    else {
        const { failed, undeliverable, annotations } = outcome.modify;
        delivery.modified({
            delivery_failed: failed, undeliverable_here: undeliverable, message_annotations: annotations && mapOf(annotations),
        });
    }
}

async function take(taking, count, command) {
    const { outcome = 'accept' } = command;
    const taken = taking.arrived.splice(0, count);
    for (const [, delivery] of taken) {
        if (outcome === 'hold') taking.held.push(delivery);
        else settle(delivery, outcome);
    }
    if (command.second) await until(() => alive(taking) && taken.every(([, delivery]) => delivery.remote_settled));
    return { messages: taken.map(([message]) => shown(message)) };
}

async function settleHeld(command) {
    const taking = await receiver(command);
    taking.held.splice(0).forEach((delivery) => settle(delivery, command.outcome || 'accept'));
    return {};
}

async function detach(where) {
    for (const [known, made] of links) {
        const [kind, , [address]] = JSON.parse(known);
        if (address !== (kind === 'sender' ? where.to : where.from)) continue;
        links.delete(known);
        made.close();
        await until(() => !made.is_remote_open());
    }
    return {};
}

async function close() {
    connection.close();
    await until(() => connection.is_closed() && !connection.is_remote_open());
    return {};
}

const commands = { open, send, receive, dynamic, drain, settle: settleHeld, detach, close };

async function main() {
    for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
        const command = JSON.parse(line);
        let answer;
        try {
            answer = await commands[command.do](command);
            await new Promise(setImmediate); // all frames leave before the answer does
        } catch (error) {
            answer = { error: error.answer || { level: 'client', condition: null, description: String(error) } };
        }
        process.stdout.write(JSON.stringify(answer) + '\n');
    }
    process.exit(0);
}

main();
