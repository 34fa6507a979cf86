"""Hypothesis on a shared machine: how long one example takes says nothing here."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("connector", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("connector")
