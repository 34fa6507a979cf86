"""Links: their attach, their messages and outcomes, and what is left when they are detached.

attaching, termini, options     an attach from its frame to its answer; the termini that it opens; its options
endpoint, incoming              the base of all links; a link on which a client sends
outgoing, consuming, browsing   a link on which it receives: the base that sends, one that acquires, one that only shows
progress                        which deliveries a receiver had begun to work on when its link was lost
deliveries                      messages as AMQP has them when they leave
sender_credit, waiting_list     senders to a queue that blocks when it is full: their credit, or their waiting messages
detached, expiry                detached links that live on; until when
resuming, resumptions           their next attach; the deliveries that are then sent again
dispositions, tags, conditions  AMQP's outcomes as the engine's, delivery tags, our errors as AMQP's
"""
