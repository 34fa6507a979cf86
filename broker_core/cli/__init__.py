"""The `penstock` command line.

- main: runs a command, and reports an error.
- arguments: every command, flag and help text.
- serve, send, receive, work, conf, doctor, user: commands of these names.
- queue, moves, exchange, lease, stage, trace, explain, audit, events, status, connection, top, definitions: commands over
  Flight.
- backup: `penstock backup`, `restore` and `check`.
- calls, amqp_calls, login: connections to a broker, credentials, and NAME=VALUE arguments.
- broker_totals: sums over the brokers of `--url a,b`.
- local_audit: audit entries of commands without a broker.
- show, stdout: tables and JSON; messages as lines.
"""

from __future__ import annotations

from .main import main as main
