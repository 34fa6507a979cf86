"""The commands of README.md and docs/spark.md and the notebooks run unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from penstock.broker_core.server.child import Broker

from ..documents import BEGIN, PRELUDE, as_program, check_readme

if TYPE_CHECKING:
    from jupyter_client.manager import KernelManager

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

#: Both in one program, because a start of Spark takes longer than either.
DOCUMENTS = ("README.md", "docs/spark.md")
SESSION = """
from penstock.jobs.session import session
spark = session("documents")
"""


def certify(folder: Path) -> None:
    """The files that examples with TLS name."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("spark.example")
    certificate.cert_chain_pems[0].write_to_path(str(folder / "spark.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "spark.key"))


def test_readme_and_docs_spark_from_top_to_bottom(repository: Path, tmp_path: Path) -> None:
    """In one Spark session, each with a broker of its own."""
    parts = [PRELUDE, SESSION]
    certify(tmp_path)  # there Spark's workers look for them
    with ExitStack() as stack:
        for document in DOCUMENTS:
            folder = tmp_path / Path(document).stem
            folder.mkdir()
            broker = stack.enter_context(Broker(folder / "broker", fsync="never"))
            parts.append(as_program(repository / document, broker.amqp_url, folder))
        program = tmp_path / "documents.py"
        program.write_text("".join(parts))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, str(program)],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=850,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    _, readme, spark = done.stdout.split(BEGIN)
    check_readme(readme)
    # The table by subject, JSON, outcomes, an error, a broker in a program, and the jobs.
    assert re.search(r"\| *shop-0\| *143\|", spark)
    assert re.search(r"\| +10\| +0\| +0\| +0.0\|\n\| +11\| +1\| +1\| +1.5\|", spark)
    assert re.search(r"\|accepted\| *\d+\|", spark)
    assert "\nthere is no queue 'no-such-queue'" in spark
    assert "\n1000 messages\n" in spark
    assert re.search(r"done: [\d,]+ messages of orders into \S+/data-out/all", spark)
    assert re.search(r"from orders.* into orders-again", spark)
    assert re.search(r"chosen.*: 0 dead letters", spark)


def test_the_readme_shows_only_commands_that_exist(repository: Path) -> None:
    text = (repository / "README.md").read_text()
    help_text = subprocess.run([str(repository / "dev"), "help"], capture_output=True, text=True, check=True).stdout
    for command in re.findall(r"\./dev (\w+)", text):
        assert f"\n  {command} " in help_text


def test_every_column_is_in_the_documents(repository: Path) -> None:
    from penstock.connector.schema import TYPES

    pages = [repository / "README.md", *(page for page in [repository / "docs" / "spark.md"] if page.exists())]
    text = "".join(page.read_text() for page in pages)
    for name in TYPES:
        assert f"`{name}`" in text, f"neither README.md nor docs/spark.md describes column {name!r}"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """One process for all notebooks, and so one start of Spark; each begins without the names of the last."""
    from jupyter_client.manager import KernelManager

    folder = tmp_path_factory.mktemp("notebooks")
    backend = "module://matplotlib_inline.backend_inline"
    manager = KernelManager(kernel_name="python3")
    # Without this variable, the kernel shows the output of child processes in its cells, as it does for users.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    manager.start_kernel(cwd=str(folder), env={**environment, "TMPDIR": str(folder), "MPLBACKEND": backend})
    yield manager
    manager.shutdown_kernel(now=True)


def executed(notebook: Path, kernel: KernelManager) -> tuple[str, str]:
    """Run a notebook; return its printed text, and the values of its cells. It must have a plot, and no warnings in any cell."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(notebook, as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells), "commit the notebook without outputs"
    book.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    client = NotebookClient(book, timeout=300, km=kernel)
    client.execute()
    client.kc.stop_channels()  # it does so itself only where the kernel is its own
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output["text"] for output in outputs if output.get("name") == "stderr"]
    (first,) = next(cell.outputs for cell in book.cells[1:] if cell.cell_type == "code")  # the broker's url
    assert first["data"]["text/plain"].startswith("'grpc")
    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    assert "\x1b" not in printed, "an animation for terminals"
    return printed, "\n".join(output["data"]["text/plain"] for output in outputs if "data" in output)


def test_the_notebook_of_flights(repository: Path, kernel: KernelManager) -> None:
    """U4: each flight once in the table, and a day again."""
    _, values = executed(repository / "notebooks" / "flights.ipynb", kernel)
    assert "(27004, 27004)" in values
    assert re.search(r"\('2013-01-\d\d', [\d.]+, \d{3}\)", values)


def test_the_notebook_of_dead_letters(repository: Path, kernel: KernelManager) -> None:
    """U4 U5: finally each order is accepted once, other dead letters stay, and a second run sends nothing."""
    printed, values = executed(repository / "notebooks" / "dead_letters.ipynb", kernel)
    assert "(2000, 2000, 0, 60)" in values
    assert re.search(r"chosen: 0 dead letters\n", printed)


def test_the_notebook_of_a_day_again(repository: Path, kernel: KernelManager) -> None:
    """U4 D4 S9: the archive has each message once, and the replay has it in order and at its pace.

    No message is early, and the last one is only slightly late, as a ratio of the day's duration.
    """
    printed, values = executed(repository / "notebooks" / "replay_a_day.ipynb", kernel)
    assert re.search(r"\|accepted\| +842\| +842\|", printed)
    assert "[(842, 842)]" in values
    assert "(842, True)" in values
    took = re.search(r"original: ([\d.]+) s, replay: ([\d.]+) s, early messages: 0", printed)
    assert took, "some came before their time"
    original, replayed = map(float, took.groups())
    assert 0.5 < original / replayed <= 2.05  # 2, minus the time of the last batch on a busy machine


def test_the_notebook_of_the_history_of_a_message(repository: Path, kernel: KernelManager) -> None:
    """D8 S14 U10: one table has the orders of both clients, and a trace has the history of one."""
    printed, values = executed(repository / "notebooks" / "what_happened.ipynb", kernel)
    assert re.search(r"app +data +accepted", values)
    assert re.search(r"web shop +string +accepted", values)
    for reason in ("rejected", "delivery_limit", "expired"):
        assert reason in values
    assert re.search(r"message order-0413\b", printed)
    for event in ("arrived in orders", "dead-lettered to dead", "redriven", "accepted"):
        assert event in printed
    assert re.search(r"\b1224 +1200 +1100\b", values)
