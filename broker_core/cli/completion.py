"""`penstock completion`: a script for the shell, from argcomplete."""

from __future__ import annotations

import argparse

from argcomplete.shell_integration import shellcode


def run(args: argparse.Namespace) -> int:
    print(shellcode(["penstock"], shell=args.shell))
    return 0
