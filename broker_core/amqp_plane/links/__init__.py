"""Links.

- `attach`, `options`: an attach, from its frame to its answer; its options.
- `endpoint`, `termini`: the bases of all links and termini; the sources and targets that an attach opens.
- `activity`: ages, rates and the last settlement of a link's deliveries.
- `incoming_link`: a link on which a client sends.
- `outgoing_link`: a link on which a client receives, the base of the next two.
- `consumer`, `browser`: a link that acquires messages; a link that only shows them.
- `dispositions`: AMQP's outcomes as the engine's.
- `registry`, `resumptions`: all links by name, with detached ones; deliveries that a new attach resumes.
- `sender_credit`, `waiting_list`: senders to a full queue that blocks: their credit, or their waiting messages.
"""
