"""Commands on which the lifetime of a queue or an exchange depends: who uses it, and whether it ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

from .command import Command


@dataclass(frozen=True)
class OpenLink(Command[int]):
    """A link to a queue or an exchange begins. Reply: its number. Needed where the node's lifetime depends on links; a queue's
    subscriptions count besides."""

    node: str
    makes: bool = False  # the node was made for this link
    receives: bool = False
    owner: str | None = None  # whose link it is. With `makes`: this connection alone may receive from the node


@dataclass(frozen=True)
class CloseLink(Command[None]):
    """The end of a link. One that is not known, or whose node is gone, changes nothing."""

    node: str
    link: int


@dataclass(frozen=True)
class EndNode(Command[bool]):
    """End a queue or an exchange if its time has come: see `decide.lifetimes`. Reply: whether it had."""

    node: str
