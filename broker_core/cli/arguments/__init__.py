"""Every command, flag and help text; modules of commands are imported when their command runs.

commands                       the whole command line; `serve`, `queue`, `lease`, `stage`, `archive`, `completion`
exchange, message, user,
backup, operator               the commands of these names, and those that go with them
parsers                        how they declare a group, a command, a login and a number
"""

from __future__ import annotations

from .commands import parser

__all__ = ["parser"]
