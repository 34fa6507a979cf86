"""The dialect of Azure Service Bus, translated into plain AMQP links and requests.

Only listeners with `dialect = "service-bus"` make a `ServiceBusPeer`. No other room depends on it, so other
listeners pay nothing. The engine learns only features that any queue can use.

| part of the conversation | here | used of the plane | owner of the state |
|---|---|---|---|
| tokens, `$cbs` | `claims`, `cbs` | `Peer.may`, `tick`, `Containers.rename` | the connection: its claims, until they expire |
| requests and responses | `requests`, `request_fields` | `IncomingLink`, `LinkEnd`, `in_commit` | the connection: its links |
| batches, scheduled messages | `sending` | `IncomingLink`, the routes `Whole` and `Posting` | the message: its annotation |
| outcomes in a transaction | `receiving` | `ConsumerLink.retired`, `answer_in` | the engine: the transaction |
| rules of subscriptions | `rules`, `rule_filters` | `Bind`, `Unbind` | the engine: named bindings |
| locks, annotations, outcomes | `receiving`, `annotations` | hooks of `ConsumerLink` | the engine, by holder |
| sessions | `sessions` | `LinkEnd.open`, `Acquisitions`, `LockGroup` | the engine: locks by holder, states by group |
| lock renewal, peek, schedule, cancel | `management`, `peeks` | `Turn`, `RenewLock`, `CancelDelayed` | the engine |
| deferred messages | `deferral` | `AcquireDeferred`, `messages_of` | the engine, by holder; tokens: connection or session |
| names of entities | `entities` | `nodes.addresses.find` | none: an address is translated at each attach |
| any refusal | `peer`, `incoming` | `Peer.refuse`: a whole attach, then a detach with the error | none |
| names of links, unique in one AMQP session | `peer` | `Peer.scope_of`, `names_per_session` | none |

A dialect's peer is a `Dispatcher` with another `make_endpoint`, which returns subclasses of the plane's links.
`vendor` contains names of the vendor.
"""
