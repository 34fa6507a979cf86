"""Every command, flag and help text. The module of a command is imported when the command runs.

- commands: the whole command line; `serve`, `queue`, `lease`, `stage`, `archive`, `completion`.
- exchange, message, user, backup, operator: groups of commands.
- parsers: functions that declare a group, a command, a login and a number.
"""

from __future__ import annotations

from .commands import parser

__all__ = ["parser"]
