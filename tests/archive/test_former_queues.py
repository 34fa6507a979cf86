"""U10: a message of a deleted queue is found in the archive, also if a later queue has its name, and so its table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.broker_core.actions import traces
from penstock.broker_core.archive.table.layout import FOLDER_BYTES
from penstock.broker_core.engine import commands as c
from penstock.broker_core.security import Right, users_file
from penstock.broker_core.security.users import User

from ..s3 import BUCKET, S3Server, environment
from .rig import Rig
from .test_traces import ask, batch

SEARCHES = ({"id": "m"}, {"selector": "JMSMessageID = 'm'"}, {"id": "m", "queue": "q"}, {"queue": "q", "sequence": 0})


def fill(rig: Rig, queue: str, *ids: str, record: bool = True) -> None:
    rig.send(queue, batch(*ids))
    rig.settle(queue, len(ids), user="ann")
    if record:
        rig.record()


def delete(rig: Rig, queue: str) -> None:
    rig.service.submit(c.DeleteQueue(queue))


def found(rig: Rig, **fields: Any) -> list[tuple[str, int, bool]]:
    """Return queue, sequence number, and whether the queue is deleted, over as many calls as it takes."""
    stays: list[dict[str, Any]] = []
    place = None
    while True:
        answer = ask(rig, **fields, resume=place)
        stays += [stay for message in answer["messages"] for stay in message["stays"]]
        place = answer["next"]
        if place is None:
            return sorted((stay["queue"], stay["sequenceNumber"], stay.get("deleted", False)) for stay in stays)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_message_of_a_deleted_queue_is_found(rig: Rig, search: dict[str, Any]) -> None:
    fill(rig, "q", "m", "other")
    delete(rig, "q")
    for reopen in (lambda: None, rig.reopen):
        reopen()
        (message,) = ask(rig, **search)["messages"]
        assert message["where"] == "settled in q (deleted) as accepted by ann"
        assert [event["text"] for event in message["events"]] == [
            "arrived in q (deleted, sequence number 0)",
            "settled in q (deleted) as accepted by ann",
            "recorded in the archive of q (deleted)",
        ]
        assert all(event["deleted"] for event in message["events"])


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_later_queue_with_the_name(rig: Rig, is_recorded: bool) -> None:
    """Both messages are found once. A sequence number is that of the later queue, if it has a message with this number."""
    fill(rig, "q", "m", "m")
    delete(rig, "q")
    rig.service.submit(c.DeclareQueue("q"))
    fill(rig, "q", "m", record=is_recorded)
    for search in SEARCHES[:3]:
        assert found(rig, **search) == [("q", 0, False), ("q", 0, True), ("q", 1, True)]
    assert found(rig, queue="q", sequence=0) == found(rig, id="m")
    delete(rig, "q")
    rig.record()
    assert found(rig, id="m") == [("q", 0, True), ("q", 0, True), ("q", 1, True)]


def test_a_message_without_an_id_is_that_of_the_latest_queue(rig: Rig) -> None:
    for subjects in (["first", "second"], ["third"]):
        rig.service.submit(c.DeclareQueue("q"))
        rig.send("q", [subject.encode() for subject in subjects])
        rig.settle("q", len(subjects))
        delete(rig, "q")
        rig.record()
    (first,) = ask(rig, queue="q", sequence=0)["messages"]
    (second,) = ask(rig, queue="q", sequence=1)["messages"]
    assert first["stays"][0]["queueId"] == second["stays"][0]["queueId"] + 1
    assert len(ask(rig, selector="JMSPriority = 4")["messages"]) == 3


def test_messages_that_are_not_recorded_yet_are_named(rig: Rig) -> None:
    fill(rig, "q", "m")
    fill(rig, "q", "late", record=False)
    delete(rig, "q")
    answer = ask(rig, id="late")
    assert answer["messages"] == []
    assert answer["hints"] == [f"settled messages of q were not searched: {traces._NOT_YET}"]
    rig.record()
    assert found(rig, id="late") == [("q", 1, True)]
    assert "hints" not in ask(rig, id="late")


def test_a_search_is_bounded_and_finished_by_several_calls(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a", "q", "z"]
    for name in names:
        rig.service.submit(c.DeclareQueue(name))
        for _ in range(2):
            fill(rig, name, "m")
        if name != "a":
            delete(rig, name)
    expected = [(name, number, name != "a") for name in names for number in range(2)]
    for limit_s in (5.0, -1.0):
        monkeypatch.setattr(traces, "SEARCH_S", limit_s)
        for count in (1, 3, 100):
            assert found(rig, id="m", count=count) == expected
    place, places = None, []
    while (place := ask(rig, id="m", resume=place)["next"]) is not None:
        places.append((place["queue"], place["archive"], place["file"]))
    assert places == [("a", True, 0), ("a", True, 1), ("q", True, 0), ("q", True, 1), ("z", True, 0), ("z", True, 1)]


def test_a_name_that_is_too_long_for_a_folder(rig: Rig) -> None:
    name = "x" * (FOLDER_BYTES + 1)
    for queue in (name, "ü.1"):
        rig.service.submit(c.DeclareQueue(queue))
        fill(rig, queue, "m")
        delete(rig, queue)
    assert found(rig, id="m") == [(name, 0, True), ("ü.1", 0, True)]
    assert found(rig, queue=name, sequence=0) == [(name, 0, True), ("ü.1", 0, True)]


def test_other_folders_and_tables_are_ignored(rig: Rig, make_rig: Callable[..., Rig]) -> None:
    other = make_rig("other")
    other.service.submit(c.DeclareQueue("theirs"))
    for one, queue in ((rig, "q"), (other, "theirs")):
        fill(one, queue, "m")
        delete(one, queue)
    archive = Path(rig.recorder.url)
    shutil.copytree(Path(other.recorder.url) / "theirs", archive / "theirs")
    shutil.copytree(archive / "q", archive / "copy")
    (archive / "folder").mkdir()
    (archive / "not a queue").mkdir()
    answer = ask(rig, id="m")
    assert [stay["queue"] for message in answer["messages"] for stay in message["stays"]] == ["q"]
    assert "hints" not in answer
    for name in ("folder", "copy-of-nothing"):
        with pytest.raises(errors.QueueNotFound):
            ask(rig, id="m", queue=name)
        with pytest.raises(errors.QueueNotFound):
            ask(rig, queue=name, sequence=0)


def test_a_damaged_table_of_a_deleted_queue_stops_no_search(rig: Rig) -> None:
    for queue in ("q", "damaged"):
        if queue != "q":
            rig.service.submit(c.DeclareQueue(queue))
        fill(rig, queue, "m")
        delete(rig, queue)
    for path in Path(rig.recorder.url, "damaged").rglob("*.parquet"):
        path.unlink()
    answer = ask(rig, id="m")
    assert [stay["queue"] for message in answer["messages"] for stay in message["stays"]] == ["q"]
    (hint,) = answer["hints"]
    assert hint.startswith("deleted queues were not searched: the archive's file ")


def test_the_rights_on_the_name_apply(rig: Rig) -> None:
    fill(rig, "q", "m")
    delete(rig, "q")
    rights = {"reader": [Right.BROWSE, Right.REPLAY], "browser": [Right.BROWSE], "admin": [Right.ADMIN]}
    for name, some in rights.items():
        users_file.edit(
            rig.data / "users.json",
            lambda users, name=name, some=some: (
                users.add(name, User(certificates=(name,))).permit(name, "q", some).permit(name, "p", list(Right))
            ),
        )
    assert [len(ask(rig, user, id="m")["messages"]) for user in rights] == [1, 0, 0]
    assert ask(rig, "browser", id="m")["hints"] == ["settled messages of q were not searched: that needs the right replay"]
    assert "hints" not in ask(rig, "admin", id="m")
    assert "q" not in json.dumps(ask(rig, "admin", id="m")["next"])
    with pytest.raises(errors.NotAllowed, match="'q'"):
        ask(rig, "admin", id="m", queue="q")


def test_an_archive_in_an_object_store(
    make_rig: Callable[..., Rig], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the store cannot be reached for the list of tables: other queues are searched, and the answer names the reason."""
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    rig = make_rig(archive=f"s3://{BUCKET}/{tmp_path.name}/archive")
    long_name = "x" * (FOLDER_BYTES + 1)
    for queue in ("q", long_name):
        rig.service.submit(c.DeclareQueue(queue))
        fill(rig, queue, "m")
        delete(rig, queue)
    assert found(rig, id="m") == [("q", 0, True), (long_name, 0, True)]
    assert found(rig, queue="q", sequence=0) == found(rig, id="m")
    rig.service.submit(c.DeclareQueue("waits"))
    rig.send("waits", batch("m"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    answer = ask(rig, id="m", queue=None)
    assert [stay["queue"] for message in answer["messages"] for stay in message["stays"]] == ["waits"]
    assert answer["hints"][0].startswith("deleted queues were not searched: the tables of the archive ")
