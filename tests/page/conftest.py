"""One headless Chromium for a run, and brokers for it: starting either costs more than most tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.amqp import scram
from penstock.broker_core.client.amqp import Connection, connect
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client
from penstock.broker_core.security import Right, users_file
from penstock.broker_core.security.users import User, credentials_of

from ..programs import needs
from .pages import PASSWORD, Page
from .webdriver import Browser

ROOT = Credentials("root", PASSWORD)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser. Skipped without it on a laptop, failing on the build machine."""
    running = Browser(needs("chromedriver", "chromium-driver"), needs("chromium", "chromium"))
    yield running
    running.quit()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with two users: `root` with all rights, and `look` with rights to view."""
    data = tmp_path_factory.mktemp("page") / "data"
    data.mkdir()
    for name, rights in (("root", tuple(Right)), ("look", (Right.BROWSE,))):
        _add_user(data, name, *rights)
    with Broker(data, fsync="never") as running:
        yield running


def _add_user(data: Path, name: str, *rights: Right) -> None:
    user = User(credentials_of(PASSWORD, b"0123456789abcdef", scram.MIN_ITERATIONS))
    users_file.edit(data / users_file.FILE_NAME, lambda users: users.add(name, user).permit(name, "*", rights))


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.url, ROOT) as connected:
        yield connected


@pytest.fixture
def amqp(broker: Broker) -> Iterator[Connection]:
    with connect(broker.amqp_url, "root", PASSWORD) as connection:
        yield connection


@pytest.fixture
def page(chromium: Browser, broker: Broker) -> Iterator[Page]:
    """The page of the broker, logged in as root, on a screen of 1280 by 860. In the end nothing may have gone wrong in it."""
    opened = Page(chromium, broker.http_url)
    opened.log_in("root")
    yield opened
    problems = opened.problems()
    with contextlib.suppress(Exception):
        opened.leave()
    assert problems == []
