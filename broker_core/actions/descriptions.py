"""Descriptions: what each action does and what each field means, in a line each, for the API's description and docs/http.md.

A test compares the names with the table of requests, and what is said here of GET with what the engine does.
"""

from __future__ import annotations

#: Actions that change nothing.
READS = frozenset(
    {
        "hello",
        "broker.status",
        "broker.journal",
        "connection.list",
        "user.list",
        "queue.list",
        "queue.stat",
        "queue.messages",
        "archive.status",
        "exchange.list",
        "browse.plan",
        "archive.plan",
        "archive.files",
        "stage.published",
        "stage.list",
        "lease.list",
    }
)

ABOUT: dict[str, str] = {
    "hello": "Names the broker and its version.",
    "broker.status": "Tells what the broker is, where the log ends, what is free on the disk, and how far the copy is.",
    "connection.list": "Lists connections of clients: one's own, or all of them with admin on everything.",
    "connection.close": "Closes a connection of a client; what it holds goes back.",
    "user.list": "Lists users and their rights.",
    "broker.journal": "Tells how large the journal is, how much of it is needed, and by whom.",
    "queue.declare": "Makes a queue; nothing happens where it is there already, declared alike.",
    "queue.delete": "Deletes a queue.",
    "queue.list": "Lists the queues that the caller may know of, each with its counts.",
    "queue.stat": "Tells the counts and options of a queue.",
    "archive.status": "Tells what waits to be recorded in the archive, and what went wrong.",
    "queue.messages": "Shows messages of a queue to people, some at a time, with long texts cut.",
    "queue.alter": "Changes the options that are named, all of them or none.",
    "queue.pause": "Stops deliveries of a queue; messages still come in.",
    "queue.resume": "Lets a paused queue deliver again.",
    "queue.purge": "Ends all messages of a queue that nobody holds.",
    "queue.move": "Moves messages that nobody holds to another queue, in order.",
    "queue.copy": "Copies messages that nobody holds to another queue, in order.",
    "queue.discard": "Ends messages for good, whoever holds them.",
    "queue.redrive": "Returns dead letters to the queues they came from.",
    "exchange.declare": "Makes an exchange; nothing happens where it is there already, declared alike.",
    "exchange.delete": "Deletes an exchange and its bindings.",
    "exchange.list": "Lists the exchanges that the caller may know of, each with its bindings.",
    "exchange.bind": "Binds a queue to an exchange.",
    "exchange.unbind": "Removes bindings of a queue to an exchange.",
    "browse.plan": "Divides a browse of a queue into parts of about as many messages.",
    "archive.plan": "As browse.plan, for a reader that reads the archive's table by itself.",
    "archive.files": "Names the files of the archive's table that may have such messages.",
    "stage.publish": "Publishes what was staged, all of it at once.",
    "stage.published": "Tells whether a publish with this key would be a repetition.",
    "stage.discard": "Drops what was staged.",
    "stage.list": "Lists the writes that are staged and not published.",
    "lease.advance": "Settles what a query has finished, and takes its next batch.",
    "lease.plan": "Divides batches of a lease into parts.",
    "lease.settle": "Settles what a query has finished.",
    "lease.renew": "Keeps a lease from timing out.",
    "lease.list": "Lists the leases on queues that the caller may know of.",
    "lease.release": "Ends what a lease holds: settles it, or gives it back.",
    "lease.settleRow": "Ends one message that a lease holds.",
    "lease.setAside": "Sets messages of a batch aside that no reader can decode.",
    "lease.delete": "Deletes a lease that holds nothing.",
}

_QUERY = "id of the Spark query that asks, with queryBatch"
_SIGN = "sign of that batch, as the checkpoint has it"

FIELDS: dict[str, str] = {
    "after": "batch after which the parts begin",
    "afterSign": _SIGN,
    "alone": "whether one message larger than `bytes` is taken alone",
    "arguments": "what a headers exchange compares",
    "attempts": "numbers of a write's attempts, in order",
    "base": "number from which the attempts count",
    "batch": "number of a batch",
    "batchSign": _SIGN,
    "bytes": "how many bytes at most; null: any",
    "count": "how many messages to show, at most 200",
    "epoch": "epoch of the lease that the caller knows; null: takes the lease up",
    "error": "why, for those who look at the messages later",
    "exchange": "name of the exchange",
    "exclude": "whether what this epoch gave back unread is not taken again",
    "failOnDataLoss": "whether messages that are gone are an error",
    "finished": "batch up to which the query is done",
    "first": "sequence number of the first message, included",
    "force": "delete it also where it has messages or somebody uses it",
    "fresh": "whether the query begins without a checkpoint",
    "head": "lease, and its epoch, that a query over several queues took up first",
    "how": "settle, or return",
    "ifEmpty": "whether to delete it only when every message is settled",
    "ifUnused": "whether to delete it only when nobody consumes from it, and no lease is on it",
    "id": "id of the stream or transaction that publishes",
    "key": "routing key; of an unbind null: every key",
    "kind": "stream, or txn",
    "last": "sequence number of the last message, included; null: no end",
    "lease": "name of the lease",
    "leaseTimeout": "seconds after which an unused lease gives back what it holds; null: never",
    "lineages": "histories whose passes the table has, each a name and a number of passes, one after another",
    "maxMessages": "how many messages a part has at most; null: any number",
    "measure": "whether the answer has the size of the batch",
    "messages": "how many messages at most; null: any number",
    "minPartitions": "how many parts at least",
    "noLocal": "container id whose own messages do not arrive; null: none",
    "number": "number of the publish",
    "options": "options by name, as in docs/queues.md; null: the default",
    "outcome": "only messages with this outcome; null: any",
    "plan": "whether the answer has the parts of the batch",
    "query": _QUERY,
    "queryBatch": "number of the batch of that query",
    "queue": "name of the queue",
    "ranges": "sequence numbers in pairs: first, last, first, last …; null: all",
    "reason": "what the client is told; null: that an operator did it",
    "reasons": "by a text that says why, the sequence numbers it concerns",
    "recordedAfter": "pass of the archive up to which the caller reads by itself; null: none",
    "run": "the query's run, as its checkpoint has it",
    "selector": "only what matches, in the syntax of JMS; null: everything",
    "sequence": "sequence number of the message",
    "settledSince": "only messages that ended at or after, microseconds since 1970; null: any",
    "settledUntil": "only messages that ended before, microseconds since 1970; null: any",
    "sign": _SIGN,
    "since": "only messages that arrived at or after, microseconds since 1970; null: any",
    "stages": "ids of stages, in order",
    "states": "available, acquired, archived",
    "target": "queue to which the messages go",
    "type": "type of the queue or exchange",
    "until": "only messages that arrived before, microseconds since 1970; null: any",
    "version": "version of the table; null: the newest",
    "waitMs": "milliseconds for which an empty queue is waited for, 100 at most",
    "write": "id of a write; null: stages are named one by one",
}

#: Fields that mean something else in one action.
FIELDS_OF: dict[tuple[str, str], str] = {
    ("connection.close", "id"): "id of the connection, as connection.list has it",
    ("lease.advance", "until"): "take nothing at or after this sequence number; null: no end",
    ("lease.settleRow", "outcome"): "accepted, rejected, released or modified",
    ("stage.publish", "key"): "kind, id and number of the publish, by which a repetition is known; null: none",
    ("queue.declare", "type"): "fifo, priority or lastvalue",
    ("exchange.declare", "type"): "direct, fanout, topic or headers",
}


def of_field(action: str, name: str) -> str:
    """Return what a field of an action means, in a line."""
    return FIELDS_OF.get((action, name), FIELDS[name])
