"""D7: a copy that follows leaves producers the machine: it is put at a bounded rate."""

from __future__ import annotations

import pytest

from penstock.broker_core.stores.objects import StoreError
from penstock.broker_core.stores.rate_limit import RateLimitedStore

from .faulty_store import FaultyStore

MB = 1_000_000


class _Clock:
    """A clock that moves only during sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_bytes_are_put_at_the_rate_over_time() -> None:
    store, clock = FaultyStore(), _Clock()
    paced = RateLimitedStore(store, 10 * MB, clock, clock.sleep)
    for number in range(10):
        assert paced.create(f"chunks/{number}", [bytes(MB), bytes(MB)])
        paced.put(f"objects/{number}", iter([bytes(MB), bytes(2 * MB)]))
    assert clock.now == pytest.approx((10 * 5 - 3) / 10)  # no put waits after the last one
    assert len(store.objects) == 20


def test_time_without_puts_is_no_credit_and_a_failed_put_counts() -> None:
    store, clock = FaultyStore(), _Clock()
    paced = RateLimitedStore(store, MB, clock, clock.sleep)
    clock.now = 100.0
    store.fail = lambda call, name: StoreError("503 Slow Down")
    with pytest.raises(StoreError):
        paced.create("a", [bytes(3 * MB)])
    store.fail = lambda call, name: None
    paced.create("a", [bytes(MB)])
    assert clock.now == pytest.approx(103.0)


def test_reading_and_deleting_wait_for_nothing() -> None:
    store, clock = FaultyStore(), _Clock()
    paced = RateLimitedStore(store, MB, clock, clock.sleep)
    paced.create("a", [bytes(50 * MB)])
    assert (len(paced.get("a")), paced.get_range("a", 0, 3), paced.names("")) == (50 * MB, bytes(3), ["a"])
    paced.delete("a")
    assert clock.now == 0.0
    assert paced.url == store.url
