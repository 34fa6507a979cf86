"""The `penstock` command line.

- main: from the command line to a function, and from an error to a sentence and an exit code.
- arguments: every command, flag and help text.
- serve, send, receive: the commands of these names.
- queue, moves, exchange, lease, stage, status, connection, top, definitions: commands that call the broker over Flight.
- archive: `penstock archive`, and the archiver's process.
- http: the process of the HTTP plane.
- backup: `penstock backup`, `restore` and `check`, which work on a data directory.
- work: `penstock work`, which runs the functions of a module on messages.
- conf: `penstock conf`, which prints the files of conf/.
- doctor: `penstock doctor`, which looks for misconfiguration.
- completion: scripts that complete the command line in a shell.
- user: `penstock user` and `penstock permit`, which change the users file.
- calls, amqp_calls, login: connections to a broker by Flight and by AMQP, and their credentials.
- broker_totals: sums over the brokers of `--url a,b`.
- pairs, show: NAME=VALUE arguments; tables and JSON as output.
- stdout: messages as lines, written to a pipe as fast as they are read.

Exit codes:
- 0: done.
- 1: refused, because the request is wrong or no longer allowed.
- 2: usage, a wrong command line, value or config file.
- 3: unreachable, no broker answers at this address.
- 4: storage, the broker's disk failed, or its data is damaged or locked.
- 130: interrupted with Ctrl-C.
"""

from __future__ import annotations

from .main import main

__all__ = ["main"]
