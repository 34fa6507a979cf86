"""S5 C3: the size of a batch, and a message that is too large to be combined with others."""

from __future__ import annotations

import numpy as np

from penstock.broker_core.engine import commands as c

from .harness import Engine


def test_a_larger_message_waits_where_something_travels_already() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 3, np.array([500, 20, 30])))
    assert engine.advance("l", epoch=None, finished=0, max_bytes=100, alone=False) == (None, 0)
    assert engine.advance("l", epoch=None, finished=0, max_bytes=100) == (1, 1)
    assert engine.run(c.MeasureBatch("l", 1)) == (1, 500)
    assert engine.advance("l", epoch=1, finished=1, max_bytes=520, alone=False) == (1, 2)  # 1 was not read: returned
    assert engine.run(c.MeasureBatch("l", 2)) == (2, 520)


def test_what_a_lease_does_not_hold_measures_nothing() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 3, 7))
    assert engine.run(c.MeasureBatch("l", 1)) == (0, 0)
    engine.advance("l", epoch=None, finished=0)
    assert engine.run(c.MeasureBatch("l", 1)) == (3, 21)
    assert engine.run(c.MeasureBatch("l", 2)) == (0, 0)
    engine.read("l", epoch=1, batch=1)
    engine.advance("l", epoch=1, finished=1)
    assert engine.run(c.MeasureBatch("l", 1)) == (0, 0)
