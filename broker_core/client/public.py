"""`dir()` and completion in a console show the public API of an object."""

from __future__ import annotations

from typing import ClassVar


class Public:
    """Base of the exported classes. Every name without an underscore is public, except `_internal`, and so are `_attributes`.

    Both contain names, separated by spaces; `_attributes` those of the instance that the docstring describes.
    """

    __slots__ = ()
    _attributes: ClassVar[str] = ""
    _internal: ClassVar[str] = ""

    def __dir__(self) -> list[str]:
        owners = [owner for owner in type(self).__mro__ if issubclass(owner, Public)]
        names = {name for owner in owners for name in vars(owner) if not name.startswith("_")}
        internal = {name for owner in owners for name in owner._internal.split()}
        return sorted((names - internal) | {name for owner in owners for name in owner._attributes.split()})
