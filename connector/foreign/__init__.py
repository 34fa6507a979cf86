"""Foreign brokers: any AMQP 1.0 broker as the source of a stream, and as the sink of a write.

Such a broker has no batches that stay the same, so the planner makes them. It receives messages over links, and writes each batch
as one file into a folder that executors reach (the *spool*). The offset names the file. A message is accepted at the broker when
its file is durable, or when Spark has committed the batch (option `settle`).

- consumer: the planner's side; a trigger is one batch or several, each a file
- write_ahead: a thread that writes files while Spark works
- intake, links: a thread that receives within limits and connects again; connection and links
- arrivals: received messages in columns
- spool, spool_files: the folder of one query; durable files, local or in an object store
- batches, checksums, damage: the form of a batch's file; its checksums; texts for missing or damaged files
- window, recognition, key_files: keys of earlier messages; their computation; their files
- partition, reading: the share of a task; its rows, out of the file
- aside_files: messages that cannot be decoded, in files for people
- sink, attendant: rows to a broker's queues, each confirmed; a thread that serves the connection while a task waits
- message_ids: message ids that a repeated task gives again
"""
