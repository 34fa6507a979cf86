"""Between encoded AMQP messages and stored columns, both ways, without a Python object per field.

arriving, leaving           encoded messages into the stored form, and back
whole                       messages of another broker, cut, and recognised when they come again
lone, alike                 a single message in the stored form, without Arrow; several with the same header
decode, bare                encoded messages into columns; columns into bare messages
walk, octets, maps, arrays  vector operations: many messages in lock step, octets, maps, Arrow arrays
plain, texts, render        one message at a time; values as text, one at a time and in vectors
headers, fields, entries    header sections; fields of the properties; maps of properties and annotations
annotation, overlaid        annotation sections; those that outcomes added, laid over them
validity, shapes, sections  whether bare messages are valid: by decoding, at a glance, in a column of somebody else's
message_ids, user_id        ids against duplicates; whose a message says it is
"""
