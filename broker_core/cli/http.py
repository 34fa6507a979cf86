"""The process of the HTTP plane."""

from __future__ import annotations

import argparse


def work(args: argparse.Namespace) -> int:
    """Run `penstock http`, the process that serves HTTP: its broker starts it."""
    from ..http_plane.web.process import run

    return run()
