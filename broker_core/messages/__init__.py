"""Messages: in columns, in AMQP's encoding, and the conversion between both. Independent of queues and disks.

columns         the table of columns, from which schemas and the stored form follow
payloads        messages as the journal stores them, and their stored sizes
assembly        record batches of the columns that a reader asks for, from stored rows
conversion      from one stored form to the other; needs numpy
encoding/       AMQP's encoding of many messages
batch_checks    checks of a client's record batch: names, types, contents
text_checks     checks that the texts of a record batch are UTF-8
value_checks    checks that AMQP can hold the values of columns
annotations     names of the message annotations that broker and clients use
delivery_times  the time at which a message is delivered: read, and checked on arrival
delivery_key    the column `delivery`, which names a message and its batch

Every stored message can leave again: `value_checks` and `encoding/validity` refuse values on arrival that AMQP cannot hold. The
recipe for changes of the stored form is in `columns`.
"""
