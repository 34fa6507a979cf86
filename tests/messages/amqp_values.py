"""The strategies of tests/amqp/values.py: folders of tests are packages of their own, without a parent to import through."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("amqp_values", Path(__file__).parent.parent / "amqp" / "values.py")
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

STEADY = _module.STEADY
symbols = _module.symbols
values = _module.values
arrays = _module.arrays
compounds = _module.compounds
integers = _module.integers
scalar = _module.scalar
scalars = _module.scalars
best = _module.best
chosen = _module.chosen
random = _module.random
