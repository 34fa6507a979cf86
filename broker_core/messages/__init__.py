"""Messages: what one is, in columns and as AMQP encodes it, and the way between the two. Knows no queue and no disk.

columns         the table of columns, from which the rest follows; the stored form, the schema of a stream
incoming        checks of what a client sends
assembly        stored rows as batches of the columns that somebody asked for
conversion      from one stored form to the other, where a column asks for it; needs numpy
encoding/       AMQP's encoding of many messages at once
representable   checks that AMQP can carry what a column says
annotations     names of the message annotations that mean something here
delivery_key    the column `delivery`: which message of which batch a row is

What is stored can leave again: `representable` and `encoding/sections` refuse on arrival what AMQP could not say. The stored
form, a mask of columns and then an Arrow IPC record batch, has its recipe for changes in `columns`.
"""
