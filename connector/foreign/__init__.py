"""Any AMQP 1.0 broker as the source of a stream, and as the sink of a write.

Such a broker knows no batches that stay the same, so the planner makes them: it receives by links, writes what came as one file
a batch into a folder that executors reach (the *spool*), and names the file in the offset. The broker is told that a message is
done with when its file is durable, or when Spark has committed the batch (option `settle`).

consumer    the planner's side: a trigger is one batch or several, each a file
write_ahead a thread that writes files while Spark works
intake      a thread that receives within limits, and takes lost links up again
arrivals    what came, in columns
links       connection and links to the broker
spool       whose folder it is, and its batches
batches     the form of a file: record batches of encoded messages
checksums   what is written behind them, and a reader that checks
damage      texts for files that are missing or damaged
key_files   which files of keys there are, and which become one
store       files of a folder, local or in an object store: durable or not there
window      which messages came before, by their ids
recognition by what a message is known when it comes again
partition   what the planner tells a task, and how batches are cut into tasks
aside_files what cannot be decoded, in files for people
reading     a task's rows, out of the file
sink        rows to a broker's queues, each confirmed
attendant   a thread that serves the connection while a task waits for rows
message_ids message ids that a repeated task gives again
"""
