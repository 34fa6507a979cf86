"""`penstock status`"""

from __future__ import annotations

import argparse

from . import calls, show


def status(given: argparse.Namespace) -> int:
    """Run `penstock status`."""
    with calls.broker(given) as broker:
        answer = broker.call("broker.status")
    if given.json:
        show.print_json(answer)
        return 0
    copy = answer.pop("copy")
    copied = {"copy": "none"} if copy is None else {f"copy {name}": value for name, value in copy.items()}
    show.print_facts({**answer, **copied})
    return 0
