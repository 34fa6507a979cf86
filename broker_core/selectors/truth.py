"""Truth values of many messages: true, false or unknown, as in SQL (JMS 2.0, tables 3-4 to 3-6)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Mask = Any  # a bool for each row, or one for all of them: numpy's bool_ or an array of them

YES, NO = np.bool_(True), np.bool_(False)


class Truth(NamedTuple):
    """Masks of true and of unknown rows; no row is both. All other rows are false."""

    true: Mask
    unknown: Mask

    @property
    def false(self) -> Mask:
        """Mask of rows that are false."""
        return ~(self.true | self.unknown)


def conjunction(left: Truth, right: Truth) -> Truth:
    """Return left AND right (table 3-4)."""
    false = left.false | right.false
    true = left.true & right.true
    return Truth(true, ~(false | true))


def disjunction(left: Truth, right: Truth) -> Truth:
    """Return left OR right (table 3-5)."""
    true = left.true | right.true
    return Truth(true, (left.unknown | right.unknown) & ~true)


def negation(value: Truth) -> Truth:
    """Return NOT of a truth value (table 3-6)."""
    return Truth(value.false, value.unknown)
