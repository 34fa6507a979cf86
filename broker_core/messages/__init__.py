"""Messages: in columns, as AMQP encodes them, and the conversion between the two. Knows no queue and no disk.

columns         the table of columns, from which the rest follows; the stored form, the schema of a stream
incoming        checks of what a client sends
assembly        stored rows as batches of the columns that a reader asks for
conversion      from one stored form to the other; needs numpy
encoding/       AMQP's encoding of many messages at once
texts           checks that the texts of a record batch are UTF-8
representable   checks that AMQP can hold the values of columns
annotations     names of the message annotations that broker and clients know
delivery_times  when a message is to be delivered: read, and checked on arrival
delivery_key    the column `delivery`, which names a message and its batch

What is stored can leave again: `representable` and `encoding/sections` refuse on arrival what AMQP cannot hold. The stored
form, a mask of columns and then an Arrow IPC record batch, has its recipe for changes in `columns`.
"""
