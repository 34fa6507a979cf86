"""Tests of the shop, with the fixture of `penstock.testing`."""

from shop import handle

from penstock.testing import InProcessBroker


def test_an_order_is_shipped(penstock_broker: InProcessBroker) -> None:
    penstock_broker.declare("orders")
    with penstock_broker.connect() as connection:
        connection.send("orders", json={"id": 7})
        penstock_broker.work(handle)
    assert penstock_broker.counts("orders").settled == 1
