"""The file of shared-access keys, next to the users file.

    {"version": 1, "keys": {USER: [KEY, …]}}, the newest key first

The broker computes each signature again, so keys are readable. A key is never a password: it is random, and proves its user to
listeners for Service Bus only. A client with this file can act as its users. To change the format, raise `VERSION` and keep
reading older versions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import errors
from ..settings import strict_json
from . import users_file

SUFFIX = ".keys"  # of the users file's name
VERSION = 1
KEY_BYTES = 32
MOST_KEYS = 2  # of a user, so that programs can change keys one after the other
MAX_FILE_BYTES = 16 << 20

Keys = Mapping[str, tuple[str, ...]]  # by user


def path_of(users: Path) -> Path:
    return users.with_name(users.name + SUFFIX)


def read(path: Path) -> Keys:
    """Return no keys if there is no file. Raises InvalidRequest if it cannot be used, ResourceLimit without descriptors."""
    data = users_file.octets(path, "the file of shared-access keys", MAX_FILE_BYTES)
    if data is None:
        return {}
    try:
        content = strict_json.loads(data)
        return {str(user): _checked(keys) for user, keys in _entries(content)}
    except (ValueError, UnicodeDecodeError) as error:
        raise errors.InvalidRequest(f"the file of shared-access keys {path} cannot be used: {error}") from None


def _entries(content: Any) -> Any:
    if not isinstance(content, dict) or content.get("version") != VERSION or not isinstance(content.get("keys"), dict):
        raise ValueError(f'it must be {{"version": {VERSION}, "keys": {{USER: [KEY]}}}}')
    return content["keys"].items()


def _checked(keys: Any) -> tuple[str, ...]:
    if not isinstance(keys, list) or not all(isinstance(key, str) and key.isascii() and key for key in keys):
        raise ValueError("the keys of a user are a list of texts")
    return tuple(keys)


def edit(path: Path, change: Callable[[Keys], Keys]) -> None:
    """Change or create the file. Other editing processes wait."""
    with users_file.changing(path):
        after = {user: list(keys) for user, keys in change(read(path)).items() if keys}
        users_file.write(path, json.dumps({"version": VERSION, "keys": after}, indent=1).encode() + b"\n")


def with_new(keys: Keys, user: str, random: bytes) -> Keys:
    """Add a key of `random` octets. The previous key stays valid, older ones do not."""
    key = base64.b64encode(random).decode()
    return {**keys, user: (key, *keys.get(user, ()))[:MOST_KEYS]}


def without(keys: Keys, user: str) -> Keys:
    return {name: theirs for name, theirs in keys.items() if name != user}


def forget(users: Path, user: str) -> None:
    """Remove the keys of a removed user: a later user of the name must not have them."""
    path = path_of(users)
    if path.exists():
        edit(path, lambda keys: without(keys, user))
