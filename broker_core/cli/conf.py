"""`penstock conf`. Needs no package of an extra."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "conf"


class ConfFile(NamedTuple):
    """A file of `conf/`."""

    name: str
    purpose: str


FILES = {
    "spark": ConfFile("spark.conf", "settings for Spark: Delta, and short triggers"),
    "broker": ConfFile("penstock.toml", "every setting of a broker, at its default"),
    "systemd": ConfFile("penstock.service", "a unit for systemd"),
    "container": ConfFile("Containerfile", "an image of the broker"),
    "alerts": ConfFile("alerts.yml", "alert rules for Prometheus"),
    "grafana": ConfFile("grafana.json", "a dashboard for Grafana"),
}


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        for name, file in FILES.items():
            print(f"{name:11}{file.name:18}{file.purpose}")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write((FOLDER / FILES[args.name].name).read_bytes())  # UTF-8 in every locale
    return 0
