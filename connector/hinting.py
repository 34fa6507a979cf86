"""Hints in the driver's log: names in the option `selector` that may be meant as fields of the message."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..broker_core import shipped
from .options import Options

log = logging.getLogger("penstock")


class Hints:
    """Hints of one reader, each of which it logs once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, hints: Sequence[str]) -> None:
        """Log the hints that were not logged before."""
        for hint in hints:
            if hint not in self._logged:
                self._logged.add(hint)
                log.warning("option selector: %s", hint)

    def log_of(self, options: Options) -> None:
        """Log the hints for a selector that is evaluated elsewhere, by tasks or another broker, and reports nothing."""
        selectors = shipped.module("selectors")
        self.log(selectors.hints_of(selectors.parse_optional(options["selector"])))
