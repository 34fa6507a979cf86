"""`penstock conf`. Needs no package of an extra."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "conf"


FILES = {
    "spark": ("spark.conf", "settings for Spark: Delta, and short triggers"),
    "broker": ("penstock.toml", "every setting of a broker, at its default"),
    "systemd": ("penstock.service", "a unit for systemd"),
    "container": ("Containerfile", "an image of the broker"),
    "constraints": ("constraints.txt", "versions of the packages in the image"),
    "ignore": ("dockerignore", "the files that the build of the image gets"),
    "alerts": ("alerts.yml", "alert rules for Prometheus"),
    "grafana": ("grafana.json", "a dashboard for Grafana"),
}


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        for name, (file, purpose) in FILES.items():
            print(f"{name:13}{file:18}{purpose}")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(_content(args.name, args.spark))  # UTF-8 in every locale
    return 0


def _content(name: str, spark: str | None) -> bytes:
    """Return a file; the settings for Spark are those of its version."""
    from ...connector.spark_settings import LATEST_WITH_DELTA, conf_for, installed_spark, minor_version
    from .main import UsageError

    content = (FOLDER / FILES[name][0]).read_bytes()
    if name != "spark":
        if spark is not None:
            raise UsageError(f"--spark is for `penstock conf spark`; {name} does not depend on the version of Spark")
        return content
    version = spark or installed_spark() or LATEST_WITH_DELTA
    if spark is not None and not re.fullmatch(r"\d+\.\d+(\..+)?", spark):
        raise UsageError(f"--spark names a version such as {LATEST_WITH_DELTA}, not {spark!r}")
    return content if minor_version(version) == LATEST_WITH_DELTA else conf_for(content.decode(), version).encode()
