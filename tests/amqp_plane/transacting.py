"""A client of the coordinator of transactions: its requests and the answers."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp import Coordinator, Declare, Declared, Discharge, TransactionalState
from penstock.broker_core.amqp.performatives import Accepted, Attach, Detach, Disposition, Flow, Transfer
from penstock.broker_core.amqp.transactions import LOCAL_TRANSACTIONS, request

from .frames import sends, symbol, transfer
from .harness import Script
from .scenarios_incoming import _conditions

CONTROL = 9  # the control link's handle
UNKNOWN, ROLLBACK = "amqp:transaction:unknown-id", "amqp:transaction:rollback"


def control(a: Script, handle: int = CONTROL, channel: int = 0, **fields: Any) -> Attach:
    target = Coordinator(capabilities=(symbol(LOCAL_TRANSACTIONS),))
    a.send(sends(handle=handle, name=f"control {handle}", target=target, **fields), channel=channel)
    answer = a.expect(Attach, channel)
    a.expect(Flow, channel)
    return answer


def asked(number: int, body: Declare | Discharge, handle: int = CONTROL, **fields: Any) -> tuple[Transfer, bytes]:
    return transfer(number, request(body), handle, **fields)


def declare(a: Script, number: int, handle: int = CONTROL, channel: int = 0) -> bytes:
    a.send(asked(number, Declare(), handle), channel=channel)
    state = a.expect(Disposition, channel, role=True, first=number, settled=True).state
    assert isinstance(state, Declared)
    return state.txn_id


def commit(a: Script, number: int, txn: bytes) -> None:
    a.send(asked(number, Discharge(txn_id=txn, fail=False)))


def roll_back(a: Script, number: int, txn: bytes) -> None:
    a.send(asked(number, Discharge(txn_id=txn, fail=True)))


def within(txn: bytes, outcome: Any = None) -> TransactionalState:
    return TransactionalState(txn_id=txn, outcome=outcome)


def discharged(a: Script, number: int) -> None:
    a.expect(Disposition, role=True, first=number, settled=True, state=Accepted())


def rejected(a: Script, number: int) -> str | None:
    return _conditions(a.expect(Disposition, role=True, first=number, settled=True))


def unknown_id(a: Script, handle: int, tag: bytes) -> None:
    """Expect the end of a link because of this message, which names an unknown transaction."""
    end = a.expect(Detach, handle=handle, closed=True)
    assert _conditions(end) == UNKNOWN
    assert end.error is not None
    assert end.error.info == {symbol("delivery-tag"): tag}
