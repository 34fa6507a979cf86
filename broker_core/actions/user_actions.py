"""Actions that change users and their rights. The first user is added on the broker's machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from .. import errors
from ..security import keys_file
from ..security.rights import Right
from ..security.users import SALT_BYTES, User, Users, check_user_name, credentials_of
from .declaration import ActionCall, Reply, action
from .fields import About, Request
from .permissions import Need
from .schemas import TEXT, list_of, map_of, object_of

_OF_ALL = Need(Right.ADMIN, "all", "change the users of")


@dataclass(frozen=True, kw_only=True)
class _OfUser(Request):
    user: Annotated[str, About("name of the user")]


@dataclass(frozen=True, kw_only=True)
class _AddUser(_OfUser):
    password: Annotated[str, About("password; the audit log does not contain it", is_confidential=True)]
    replace: Annotated[bool, About("whether to replace the password of an existing user")] = False


@dataclass(frozen=True, kw_only=True)
class _SetRights(_OfUser):
    pattern: Annotated[str, About("name or pattern of queues and exchanges; * is any text")]
    rights: Annotated[list[str], About("all rights of the user on this pattern; empty: none")]


@action("user.add", _OF_ALL, object_of(user=TEXT))
def _add(call: ActionCall, request: _AddUser) -> Reply:
    """Adds a user with a password, or replaces the password of a user."""
    check_user_name(request.user)
    credentials = credentials_of(request.password, os.urandom(SALT_BYTES))

    def change(users: Users) -> Users:
        if request.replace:
            return users.add(request.user, replace(users.need(request.user), credentials=credentials))
        if request.user in users.users:
            raise errors.AlreadyExists(f"user {request.user!r} exists already: change its password instead")
        return users.add(request.user, User(credentials))

    _edit(call, change)
    return {"user": request.user}


@action("user.remove", _OF_ALL, object_of(user=TEXT))
def _remove(call: ActionCall, request: _OfUser) -> Reply:
    """Removes a user with its rights and keys. Open connections of the user are closed."""
    _edit(call, lambda users: users.remove(request.user))
    keys_file.forget(call.access.path, request.user)
    return {"user": request.user}


@action("user.setRights", _OF_ALL, object_of(user=TEXT, rights=map_of(list_of(TEXT))))
def _set_rights(call: ActionCall, request: _SetRights) -> Reply:
    """Sets all rights of a user on a name or pattern of queues and exchanges."""
    unknown = [right for right in request.rights if right not in set(Right)]
    if unknown:
        raise errors.InvalidRequest(f"user.setRights: {unknown[0]!r:.80} is not a right; rights are {', '.join(Right)}")
    rights = frozenset(map(Right, request.rights))

    def change(users: Users) -> Users:
        held = users.permissions.get(request.user, {}).get(request.pattern, frozenset())
        permitted = users.permit(request.user, request.pattern, rights)
        return permitted.revoke(request.user, request.pattern, held - rights) if held - rights else permitted

    _edit(call, change)
    return {"user": request.user, "rights": call.access.permissions_of(request.user)}


def _edit(call: ActionCall, change: Callable[[Users], Users]) -> None:
    """Raises InUse if no user could change users afterwards."""
    if not call.access.user_count:
        raise errors.NotFound("this broker has no users: add the first one on its machine, with `penstock user add`")

    def checked(users: Users) -> Users:
        after = change(users)
        held = [after.permissions.get(name, {}) for name in after.users]
        if not any(Right.ADMIN in rights for of_user in held for pattern, rights in of_user.items() if not pattern.strip("*")):
            raise errors.InUse("nothing was changed: no user would have the right admin on everything (*) any more")
        return after

    call.access.edit(checked)
