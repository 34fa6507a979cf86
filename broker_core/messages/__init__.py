"""Messages in columns, in AMQP's encoding, and the conversion between both.

columns         the declaration of all columns
payloads        messages as the journal stores them
assembly        record batches of requested columns
conversion      from one stored form to the other
encoding/       AMQP's encoding of many messages
batch_checks    a client's record batch
text_checks     texts are UTF-8
value_checks    AMQP can hold the values
annotations     names of message annotations
delivery_times  annotations with the time of delivery
delivery_key    the column `delivery`

Every stored message can leave again: values that AMQP cannot hold are refused on arrival.
"""
