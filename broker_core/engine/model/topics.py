"""Patterns of topic exchanges: words between dots; `*` is one word, `#` is any number of words.

A key is followed through all nodes of a trie that it can reach, so the cost grows with the matches, not with the patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

ONE, ANY = "*", "#"


def words_of(key: str) -> list[str]:
    """The empty key has no words; `a..b` has an empty word in the middle."""
    return key.split(".") if key else []


class _Node:
    __slots__ = ("children", "here", "stays")

    def __init__(self, word: str) -> None:
        self.children: dict[str, _Node] = {}
        self.here: dict[int, None] = {}
        self.stays = word == ANY  # any further word stays here


class Trie:
    """Numbered patterns. Several numbers may have the same pattern."""

    def __init__(self) -> None:
        self._root = _Node("")

    def add(self, pattern: str, number: int) -> None:
        node = self._root
        for word in words_of(pattern):
            node = node.children.setdefault(word, _Node(word))
        node.here[number] = None

    def remove(self, pattern: str, number: int) -> None:
        way, words = [self._root], words_of(pattern)
        for word in words:
            way.append(way[-1].children[word])
        del way[-1].here[number]
        for word, parent, child in zip(reversed(words), reversed(way[:-1]), reversed(way[1:]), strict=True):
            if child.here or child.children:
                break
            del parent.children[word]

    def match(self, key: str) -> Iterator[int]:
        nodes = _with_none([self._root])
        for word in words_of(key):
            nodes = _with_none(_after(nodes, word))
        for node in nodes:
            yield from node.here


def _after(nodes: Iterable[_Node], word: str) -> Iterator[_Node]:
    for node in nodes:
        if node.stays:
            yield node
        for taken in {word, ONE}:
            child = node.children.get(taken)
            if child is not None:
                yield child


def _with_none(nodes: Iterable[_Node]) -> dict[_Node, None]:
    """Add the nodes that these reach by a `#` without words."""
    reached: dict[_Node, None] = {}
    for node in nodes:
        following: _Node | None = node
        while following is not None and following not in reached:
            reached[following] = None
            following = following.children.get(ANY)
    return reached
