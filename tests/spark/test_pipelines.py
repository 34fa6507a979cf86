"""`spark-pipelines` runs the declarative pipelines of docs/spark.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..spark_versions.pipelines import run_pipelines
from ..spark_versions.processes import installed_in

if TYPE_CHECKING:
    from conftest import Rig


@pytest.mark.timeout(400)
def test_the_pipelines_of_the_page(rig: Rig) -> None:
    run_pipelines(rig, installed_in(rig.folder / "installed"), runs=1)
