"""The command `penstock`, also as `python -m penstock`."""

from __future__ import annotations

import sys

from penstock.extras import run


def main() -> int:
    """Run the command line and return its exit code."""
    return run(_command)


def _command() -> int:
    from penstock.broker_core.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
