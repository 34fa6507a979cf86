"""The dialect of Azure Service Bus: the conversation of its clients, translated into plain AMQP links and requests.

Only listeners with `dialect = "service-bus"` make a `ServiceBusPeer`. No other room depends on it, so other
listeners pay nothing. The engine learns only features that any queue can use.

Parts that are not implemented, with their places:

- Rules of subscriptions: `add-rule` and others in `management`, as bindings.
- Batches in transactions: `sending`.

| part of the conversation | here | used of the plane | owner of the state |
|---|---|---|---|
| tokens, `$cbs` | `claims`, `cbs` | `Peer.may`, `tick`, `Containers.rename` | the connection: its claims, until they expire |
| requests and responses | `requests` | `IncomingLink`, `LinkEnd`, actions of a commit | the connection: its response links |
| batches, scheduled messages | `sending` | `IncomingLink`, the route `Whole` | the message: its annotation |
| locks, annotations, outcomes | `receiving`, `annotations` | hooks of `ConsumerLink` | the engine, by holder |
| sessions | `sessions` | `LinkEnd.open`, `Acquisitions`, `LockGroup` | the engine: locks by holder, states by group |
| lock renewal, peek, schedule, cancel | `management` | `Turn`, `RenewLock`, `CancelDelayed`, `messages_of` | the engine |
| deferred messages | `deferral` | `AcquireDeferred`, `messages_of` | the engine, by holder; tokens: the request link |
| names of entities | `entities` | `nodes.addresses.find` | none: an address is translated at each attach |
| any refusal | `peer` | `Peer.refuse`: a whole attach, then a detach with the error | none |

A dialect's peer is a `Dispatcher` with another `make_endpoint`, which returns links of this room. They are
subclasses of the plane's links.

- `peer`: the connection: its links, claims and time limits.
- `claims`, `cbs`: tokens of a connection, and the node that receives them.
- `management`: requests about an entity.
- `deferral`: deferred messages, and their locks.
- `requests`: nodes with a request link and a response link.
- `sending`: links on which a client sends.
- `receiving`, `annotations`: links on which a client receives; annotations of its messages.
- `sessions`: links on which a client receives one session, and requests about sessions.
- `entities`: addresses of entities.
- `vendor`: names of the vendor.
"""
