"""The `penstock` command line.

- main: from the command line to a function, and from an error to a sentence and an exit code.
- arguments: every command, flag and help text.
- serve, send, receive, work, conf, doctor, user: the commands of these names.
- queue, moves, exchange, lease, stage, trace, explain, audit, events, status, connection, top, definitions: commands over
  Flight.
- backup: `penstock backup`, `restore` and `check`.
- calls, amqp_calls, login: connections to a broker and their credentials, and NAME=VALUE arguments.
- broker_totals: sums over the brokers of `--url a,b`.
- local_audit: entries of the audit log by commands without a broker.
- show, stdout: tables and JSON; messages as lines.
"""

from __future__ import annotations

from .main import main as main
