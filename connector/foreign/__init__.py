"""Foreign brokers: any AMQP 1.0 broker as the source of a stream, and as the sink of a write.

Such a broker has no repeatable batches, so the planner makes them: each batch is one durable file in a folder that executors
reach, the *spool*. The offset names the file. A message is accepted at the broker when its file is durable, or when Spark has
committed the batch (option `settle`).

- consumer, write_ahead: the planner's side; a thread that writes files while Spark works
- intake, arrivals: a thread that receives messages; their columns
- spool, spool_files: the folder of one query; durable files, local or in an object store
- batches, checksums: the format of a batch's file; its checksums
- window, recognition, key_files: keys of earlier messages; their computation; their files
- partition, reading: the share of a task; its rows
- aside_files: files of messages that cannot be decoded
- sink, attendant, message_ids: writes; a thread that serves the connection of a task; repeatable message ids
"""
