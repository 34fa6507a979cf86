"""`penstock conf`. Needs no package of an extra."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "conf"


FILES = {
    "spark": ("spark.conf", "settings for Spark: Delta, and short triggers"),
    "broker": ("penstock.toml", "every setting of a broker, at its default"),
    "systemd": ("penstock.service", "a unit for systemd"),
    "container": ("Containerfile", "an image of the broker"),
    "alerts": ("alerts.yml", "alert rules for Prometheus"),
    "grafana": ("grafana.json", "a dashboard for Grafana"),
}


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        for name, (file, purpose) in FILES.items():
            print(f"{name:11}{file:18}{purpose}")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write((FOLDER / FILES[args.name][0]).read_bytes())  # UTF-8 in every locale
    return 0
