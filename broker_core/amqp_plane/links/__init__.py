"""Links: how they come, what goes over them, and how they end or wait for their client.

attaching, termini, options     an attach from its frame to its answer; what it opens; what it may ask for beside its node
endpoint, incoming              what links have in common; one on which a client sends
outgoing, consuming, browsing   one on which it receives: what sends, and below it what acquires and what only shows
deliveries                      messages as AMQP has them when they leave
sender_credit, waiting_list     for a queue that blocks when it is full: credit, or a wait with the outcome
detached, expiry                links that are detached and live on, and until when
resuming, resumptions           how they are attached again, and what is then sent again
dispositions, tags, conditions  AMQP's outcomes as the engine's, delivery tags, our errors as AMQP's
"""
