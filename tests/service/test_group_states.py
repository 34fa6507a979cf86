"""States of message groups on the disk: after a kill, in snapshots, and in backups."""

from __future__ import annotations

from pathlib import Path

from penstock.broker_core.cli import main
from penstock.broker_core.engine import commands as c
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from ..journal.lying_disk import LyingDisk
from .helpers import killed, open_service, running


def lock(service: BrokerService, group: str, queue: str = "q") -> int:
    link = service.submit(c.Subscribe(queue, one_group=True))
    assert service.submit(c.LockGroup(queue, link, group)) == group
    return link


def states(service: BrokerService) -> dict[str, bytes]:
    known = service.state.queues["q"].states
    return {group: state.octets for group in known.groups() if (state := known.get(group)) is not None}


def test_confirmed_states_survive_kills_before_and_after_a_snapshot() -> None:
    disk = LyingDisk()
    service = open_service(disk)
    service.submit(c.DeclareQueue("q", options={"groups": "held"}))
    red, blue = lock(service, "red"), lock(service, "blue")
    service.submit(c.SetGroupState("q", red, b"one"))
    service.submit(c.SetGroupState("q", blue, b"\0\xff" * 1000))
    disk = killed(service, disk)
    service = open_service(disk)
    assert states(service) == {"red": b"one", "blue": b"\0\xff" * 1000}
    service.take_snapshot()
    red, blue = lock(service, "red"), lock(service, "blue")
    service.submit(c.SetGroupState("q", red, b"two"))
    service.submit(c.SetGroupState("q", blue, None))
    disk = killed(service, disk)
    with running(disk) as service:
        assert states(service) == {"red": b"two"}
        lock(service, "red")


def test_a_backup_contains_the_states(tmp_path: Path) -> None:
    service = BrokerService(Settings(data=tmp_path / "data"))
    service.submit(c.DeclareQueue("q", options={"groups": "held"}))
    link = lock(service, "red")
    service.submit(c.SetGroupState("q", link, b"one"))
    service.close()  # with a snapshot
    service = BrokerService(Settings(data=tmp_path / "data"))
    service.submit(c.SetGroupState("q", lock(service, "blue"), b"after the snapshot"))
    assert main(["backup", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "backup")]) == 0
    service.close()
    assert main(["restore", "--from", str(tmp_path / "backup"), "--data", str(tmp_path / "restored")]) == 0
    restored = BrokerService(Settings(data=tmp_path / "restored"))
    assert states(restored) == {"red": b"one", "blue": b"after the snapshot"}
    restored.close()
