"""Messages: in columns, as AMQP encodes them, and the conversion between the two. Knows no queue and no disk.

columns         the table of columns, from which schemas and the stored form follow
payloads        messages as the journal stores them, and their stored sizes
assembly        record batches of the columns that a reader asks for, from stored rows
conversion      from one stored form to the other; needs numpy
encoding/       AMQP's encoding of many messages at once
batch_checks    checks of a client's record batch: names, types, contents
text_checks     checks that the texts of a record batch are UTF-8
value_checks    checks that AMQP can hold the values of columns
annotations     names of the message annotations that broker and clients know
delivery_times  when a message is to be delivered: read, and checked on arrival
delivery_key    the column `delivery`, which names a message and its batch

What is stored can leave again: `value_checks` and `encoding/validity` refuse on arrival what AMQP cannot hold. The stored
form, a mask of columns and then an Arrow IPC record batch, has its recipe for changes in `columns`.
"""
