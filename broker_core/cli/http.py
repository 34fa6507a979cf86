"""The process of the HTTP plane."""

from __future__ import annotations

import argparse


def work(args: argparse.Namespace) -> int:
    from ..http_plane.web.process import run

    return run()
