"""The commit loop: the requests of all links become few commands and one write, and answers wait for the disk.

- `commit_loop`: one commit, from the requests of links to the answers that leave.
- `requests`, `parties`: the requests; the links as the loop sees them.
- `batch`: the requests since the last commit.
- `gate`: when a commit runs.
- `effects`, `syncs`: answers that wait for the disk; requests to write the log.
- `confirmations`: which messages are in their queue, and which are refused.
- `interest`, `acquisitions`: which link looks for messages next; which messages it acquires.
- `evaluation`: selectors, evaluated in a thread.
- `exchanges`: messages for an exchange.
- `offers`: messages that are stored only if a link takes them immediately.
- `transport`, `acceptor`: the socket of a connection; listening sockets.
"""
