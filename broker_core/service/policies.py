"""Policies of the settings: which queues and exchanges are made by their first use, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .. import errors
from ..engine.model.policies import Policies, Policy

if TYPE_CHECKING:
    from ..settings.keys import Settings

R = TypeVar("R")


def policies_of(settings: Settings) -> Policies:
    """Return the policies of the settings, which hold from the start on. Raises InvalidRequest, which names the wrong one."""
    policies = [Policy(one.pattern, one.create, one.type, one.options) for one in settings.policies]
    for number, policy in enumerate(policies):
        in_field(f"policies[{number}]", policy.check)
    return Policies(policies)


def in_field(field: str, action: Callable[[], R]) -> R:
    """Return what `action` returns. Raises InvalidRequest with the name of the settings' field for what it refuses."""
    try:
        return action()
    except errors.StorageError:
        raise
    except errors.PenstockError as error:
        raise errors.InvalidRequest(f"{field} of the settings: {error}") from error
