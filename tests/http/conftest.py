"""Brokers with their HTTP: one in a process for each file of tests, and one with users, in this process, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.http_plane.answers import Planes
from penstock.broker_core.http_plane.plane import HttpPlane
from penstock.broker_core.settings.keys import Settings

from ..flight.peers import Site
from .helpers import Http


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data", fsync="never") as running:
        yield running


@pytest.fixture
def http(broker: Broker) -> Http:
    return Http(broker.http_url)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    running = Site(tmp_path)
    yield running
    running.close()


@pytest.fixture
def plane(site: Site) -> Iterator[HttpPlane]:
    """HTTP plane of the broker of `site`, whose users it asks for a login."""
    running = HttpPlane(Settings(data=site.service.settings.data, http_port=0), site.access)
    running.open(site.service, site.plane.actions, Planes(None, {}))
    yield running
    running.close()


@pytest.fixture
def guarded(plane: HttpPlane) -> Http:
    return Http(plane.url)
