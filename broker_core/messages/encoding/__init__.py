"""Conversion between encoded AMQP messages and columns, without a Python object for a message or a field.

arriving          complete messages of AMQP clients into the stored form
leaving           the way back
foreign_messages  another broker's messages into the stored form, and their keys
uniform_messages  messages with the same header, kept without Arrow
decoding          encoded messages into columns
bare_encoder      columns into bare messages
reference         the reference decoder: one message at a time, every form
texts, rendering  AMQP values as text: one at a time, and in vectors
walk              sections and values of many bare messages in lock step
octets, arrays    vector operations on bytes, and on Arrow arrays
maps, entries     maps of many messages: decoded, and encoded
headers, annotation  sections before the bare message
fields            fields of the properties
validity, shapes  checks of bare messages, and a quick one
"""
