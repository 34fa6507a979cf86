"""Truth values: true, false or unknown, as in SQL (JMS 2.0, tables 3-4 to 3-6)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Mask = Any  # numpy's bool_ for all rows, or an array of them

YES, NO = np.bool_(True), np.bool_(False)


class Truth(NamedTuple):
    """Masks of true and of unknown rows. All other rows are false."""

    true: Mask
    unknown: Mask

    @property
    def false(self) -> Mask:
        return ~(self.true | self.unknown)


def conjunction(left: Truth, right: Truth) -> Truth:
    false = left.false | right.false
    true = left.true & right.true
    return Truth(true, ~(false | true))


def disjunction(left: Truth, right: Truth) -> Truth:
    true = left.true | right.true
    return Truth(true, (left.unknown | right.unknown) & ~true)


def negation(value: Truth) -> Truth:
    return Truth(value.false, value.unknown)
