"""Events on which the lifetime of a queue or an exchange depends. None is journaled: links end with the broker."""

from __future__ import annotations

from dataclasses import dataclass

from .codec import Event


@dataclass(frozen=True)
class LinkOpened(Event):
    """A link to a queue or an exchange. `makes`: the node was made for it, and `owner` alone may receive."""

    kind = "link.opened"
    journaled = False
    node: str
    link: int
    makes: bool
    owner: str | None


@dataclass(frozen=True)
class LinkGone(Event):
    """The end of a link to a queue or an exchange."""

    kind = "link.gone"
    journaled = False
    node: str
    link: int
