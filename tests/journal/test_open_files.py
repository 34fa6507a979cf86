"""A process without file descriptors: it does not stop, no file counts as damaged, and it continues with new descriptors.

Each test runs in its own process, with a low limit.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

BEGIN = """
    import errno, logging, os, resource, sys
    from penstock.broker_core.errors import DamagedJournal, PenstockError, ResourceLimit
    from penstock.broker_core.journal import Journal, JournalOptions, LocalDisk

    data = sys.argv[1]
    hoard = []

    def take_all(leave=0):
        try:
            while True:
                hoard.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
        for _ in range(leave):
            os.close(hoard.pop())

    def give_back():
        while hoard:
            os.close(hoard.pop())

    class GivesBack(logging.Handler):
        # Descriptors are available again as soon as the journal logs its wait.

        def emit(self, record):
            if "the journal waits" in record.getMessage():
                print("the journal waits")
                give_back()

    def opened(**options):
        journal = Journal.open(LocalDisk(data), JournalOptions(segment_bytes=400, **options), on_failure=failures.append)
        journal.start()
        return journal

    def add(journal, count):
        for _ in range(count):
            number = len(positions)
            positions.append(journal.append(b"%d" % number, [b"%d" % number * 100]).position)
            journal.wait(journal.end, 30)

    def check(journal, first=0):
        for number in range(first, len(positions)):
            assert bytes(journal.payload(positions[number])) == b"%d" % number * 100, number

    failures, positions = [], []
    resource.setrlimit(resource.RLIMIT_NOFILE, (140, 140))
"""


def run(code: str, data: Path) -> str:
    program = textwrap.dedent(BEGIN) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program, str(data)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_with_none_left_the_journal_rolls_reads_writes_snapshots_and_drops(tmp_path: Path) -> None:
    run(
        """
        journal = opened()
        add(journal, 5)
        take_all()
        add(journal, 200)
        assert len(journal.segments()) > 80
        check(journal)  # more segments than there are descriptors for
        for _ in range(3):
            journal.write_snapshot(journal.end, b"", [b"x" * 1000])
            add(journal, 10)
        dropped = journal.drop(each for each in journal.segments() if each.end <= positions[150])
        assert len(dropped) > 30
        check(journal, 151)
        assert journal.free_bytes() and not failures
        journal.close()
        give_back()
        again = Journal.open(LocalDisk(data))
        assert [int(record.meta) for record in again.replay(positions[160])] == list(range(160, len(positions)))
        """,
        tmp_path / "data",
    )


def test_where_others_are_quicker_to_take_what_is_let_go_the_journal_waits(tmp_path: Path) -> None:
    out = run(
        """
        journal = opened()
        add(journal, 5)
        take_all()
        while journal._disk._descriptors._reserve:
            os.close(journal._disk._descriptors._reserve.pop())
            take_all()
        logging.getLogger("penstock.broker_core.journal.shortages").addHandler(GivesBack())
        try:
            journal.write_snapshot(journal.end, b"", [])
        except ResourceLimit as error:
            print(error)
        try:
            journal._payloads._young.clear()
            journal._chain._files.clear()
            journal.payload(positions[0])
        except ResourceLimit as error:
            print(error)
        add(journal, 50)  # waits until there are some again
        journal.write_snapshot(journal.end, b"", [])
        check(journal)
        assert not failures
        journal.close()
        """,
        tmp_path / "data",
    )
    assert "was given up, and will be tried again" in out
    assert "the record at position 40 cannot be read now" in out
    assert "raise its limit of open files" in out
    assert "the journal waits" in out


def test_a_start_with_too_few_calls_no_file_damaged(tmp_path: Path) -> None:
    out = run(
        """
        journal = opened()
        add(journal, 20)
        journal.write_snapshot(journal.end, b"state", [b"x" * 100])
        add(journal, 20)
        journal.close()
        started = refused = 0
        for left in range(40):
            take_all(left)
            disk = None
            try:
                disk = LocalDisk(data)
                journal = Journal.open(disk)
                assert journal.snapshot.meta == b"state" and journal.repaired is None
                started += 1
            except DamagedJournal as error:
                raise AssertionError(f"with {left} left: {error}")
            except (OSError, PenstockError) as error:
                assert "Too many open files" in str(error), error
                refused += 1
            if disk is not None:
                disk.close()
            journal = None
            give_back()
        print(started > 10, refused > 2)
        """,
        tmp_path / "data",
    )
    assert out == "True True\n"
