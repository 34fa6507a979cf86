"""The `penstock` command line.

Exit codes:
  0  done
  1  refused: the request is wrong, or no longer allowed
  2  usage: the command line itself is wrong (also a wrong value or config file)
  3  unreachable: no broker answers there, or it went away
  4  storage: the broker's disk failed, or what is on it is damaged or locked
  130  interrupted with Ctrl-C
"""

from __future__ import annotations

from penstock.broker_core.cli.main import main

__all__ = ["main"]
