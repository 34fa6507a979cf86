"""A scripted client of a listener for Service Bus."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp import Message, Source, Target, decode_message
from penstock.broker_core.amqp.performatives import Attach, Detach, Disposition, Flow, Properties, Transfer
from penstock.broker_core.client.shared_access import SharedAccess
from penstock.broker_core.settings.listeners import SERVICE_BUS, TOKEN_MECHANISMS, Listener

from .harness import Script, Stage

LISTENER = Listener(mechanisms=TOKEN_MECHANISMS, without_sasl=True, dialect=SERVICE_BUS, settles_first=True)


class Cbs:
    """A scripted client with both links to $cbs. `keys` are by user."""

    def __init__(self, stage: Stage, keys: dict[str, str], **fields: Any) -> None:
        """`fields`: of the open."""
        self.stage, self.keys = stage, keys
        self.script = stage.script(**fields).usual()
        self.script.sender("$cbs", 0, source=Source(address="$cbs"))
        self.script.receiver("$cbs", 1, 100, target=Target(address="$cbs"))
        self._count = 0

    def put(self, body: object, name: str = "sb://localhost/orders", **properties: Any) -> tuple[int, str]:
        """Put a token; return status and description."""
        self._count += 1
        message = Message(
            properties=Properties(message_id=f"m{self._count}"),
            application_properties={"operation": "put-token", "type": "jwt", "name": name, **properties},
            value=body,
            has_value=True,
        )
        transfer = Transfer(handle=0, delivery_id=self._count - 1, delivery_tag=bytes([self._count]), message_format=0)
        self.script.send((transfer, message.encode()))
        while (frame := self.script._frame()) is not None and isinstance(frame[1], (Disposition, Flow)):
            pass
        assert frame is not None
        assert isinstance(frame[1], Transfer)
        assert (frame[1].handle, frame[1].settled) == (1, True)
        answer = decode_message(frame[2])
        assert answer.properties is not None
        assert answer.properties.correlation_id == f"m{self._count}"
        assert answer.application_properties is not None
        return answer.application_properties["status-code"], answer.application_properties["status-description"]

    def token(self, who: str = "alice", address: str = "orders", seconds: float = 3600) -> str:
        expiry = int(self.stage.service.wall_ms() / 1000 + seconds)
        return SharedAccess("localhost", who, self.keys[who]).token(address, expiry)


def attached(script: Script, *frames: Any) -> Any:
    """Attach; return the error of the detach that follows a refused attach, else None."""
    script.send(*frames)
    script.expect(Attach)
    frame = script._frame()
    assert frame is not None
    if isinstance(frame[1], Detach):
        assert frame[1].error is not None
        script.send(Detach(handle=frames[0].handle, closed=True))
        return frame[1].error
    assert isinstance(frame[1], Flow)
    return None
