"""Every command, flag and help text.

- commands: the whole command line.
- exchange, message, user, backup, operator: parts of it.
- parsers: functions that declare commands, and parse numbers.
"""

from __future__ import annotations

from .commands import parser as parser
