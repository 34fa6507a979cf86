"""Docstrings of the public API (U8): in Google's style, and consistent with the signatures."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.broker_core import amqp, errors
from penstock.broker_core.client import app
from penstock.broker_core.client.public import Public

MODULES = (
    "penstock",
    "penstock.testing",
    "penstock.broker_core.client.app",
    "penstock.broker_core.client.amqp",
    "penstock.connector",
)
#: Methods of exported classes that other modules of ours call, and no user.
INTERNAL = {
    "Backoff": "plan",
    "ClientLink": "on_event on_outcome",
    "Composite": "encode",
    "amqp.Connection": "session begin end new_link_name step wait_until fail flush congested open start_close finished"
    " disconnect",
    "PenstockError": "to_json",
    "Receiver": "on_event",
    "Sender": "on_event on_outcome",
}
#: Classes that a user makes by calling them; the others come out of a call.
MADE_BY_USERS = {"Backoff", "Broker", "Header", "InProcessBroker", "Message", "Properties"}
#: Numbers without a unit.
UNITLESS = {"factor", "jitter"}

_ENTRY = re.compile(r"(\*{0,2}\w+): (.+)", re.DOTALL)


def exported() -> Iterator[tuple[str, Any]]:
    seen = set()
    for module in MODULES:
        names = vars(importlib.import_module(module))
        for name in names.get("__all__") or [name for name, value in names.items() if _is_of(value, module)]:
            value = getattr(importlib.import_module(module), name)
            if callable(value) and value not in seen:
                seen.add(value)
                yield f"{module}.{name}", value


def _is_of(value: Any, module: str) -> bool:
    """Return True for a public function or class of a module without `__all__`; a pytest fixture is wrapped in something else."""
    return getattr(value, "__module__", None) == module and inspect.isclass(value)


def calls() -> Iterator[tuple[str, Any]]:
    """Every function, method and property that a user calls, once."""
    seen = set()
    for name, value in exported():
        if not inspect.isclass(value):
            yield name, inspect.unwrap(getattr(value, "__func__", value))
            continue
        for owner in value.__mro__:
            if not owner.__module__.startswith("penstock.") or owner in seen:
                continue
            seen.add(owner)
            room = owner.__module__.split(".")[-2]
            named = INTERNAL.get(owner.__name__) or INTERNAL.get(f"{room}.{owner.__name__}") or getattr(owner, "_internal", "")
            internal = named.split()
            for method, made in vars(owner).items():
                function = made.fget if isinstance(made, property) else getattr(made, "__func__", made)
                if inspect.isfunction(function) and not method.startswith("_") and method not in internal:
                    yield f"{owner.__module__}.{owner.__name__}.{method}", made if isinstance(made, property) else function


CALLS = dict(calls())
CLASSES = {name: value for name, value in exported() if inspect.isclass(value)}


PUBLIC = [value for _, value in exported() if inspect.isclass(value) and issubclass(value, Public)]


@pytest.mark.parametrize("owner", PUBLIC, ids=lambda owner: owner.__name__)
def test_dir_shows_the_documented_names(owner: type[Public]) -> None:
    """Attributes of the docstring, and the methods and properties that a user calls."""
    instance = owner.__new__(owner)
    attributes = sections(inspect.getdoc(owner) or "").get("Attributes", {})
    calls_of = {name.rpartition(".")[2] for name in CALLS if name.startswith(f"{owner.__module__}.{owner.__name__}.")}
    assert set(dir(instance)) == {*attributes, *calls_of}


def sections(text: str) -> dict[str, dict[str, str]]:
    """The entries of each section of a docstring, by name; a section without names has its text under the empty one."""
    parts: dict[str, dict[str, str]] = {}
    for part in re.split(r"\n(?=\w+:\n    )", text)[1:]:
        title, _, body = part.partition(":\n")
        body = textwrap.dedent(body.split("\n\n\n")[0])
        entries = re.split(r"\n(?=\S)", body.strip("\n"))
        named = [_ENTRY.fullmatch(entry) for entry in entries]
        parts[title] = {match[1]: match[2] for match in named if match} or {"": body}
    return parts


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    arguments = inspect.signature(function).parameters.values()
    return {stars.get(item.kind, "") + item.name: item for item in arguments if item.name not in ("self", "cls")}


def raised(function: Any) -> set[str]:
    """Names of the exceptions that the function's own text raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    made = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call))
    names = {ast.unparse(call.func).rpartition(".")[2] for call in made}
    return {name for name in names if name[0].isupper()}  # a function that creates an error is documented there


def _exception(name: str) -> Any:
    places = (errors, app, amqp, builtins)
    return next((getattr(place, name) for place in places if hasattr(place, name)), None)


def wrong(text: str, function: Any, named: dict[str, inspect.Parameter], owner: str = "Args") -> list[str]:
    """Return the missing and the surplus parts of a docstring."""
    titles = sections(text)
    entries = titles.get(owner, {})
    complaints = []
    if list(entries) != list(named):
        complaints.append(f"{owner} are {list(entries)}, the signature has {list(named)}")
    complaints += [
        f"{name} has no unit"
        for name, parameter in named.items()
        if "float" in str(parameter.annotation) and name not in UNITLESS and "econds" not in entries.get(name, "")
    ]
    complaints += [f"{name} is no exception" for name in titles.get("Raises", {}) if not inspect.isclass(_exception(name))]
    known = [_exception(name) for name in titles.get("Raises", {})]
    for name in sorted(raised(function)) if function is not None else ():
        if not any(issubclass(_exception(name) or Exception, base) for base in known if base is not None):
            complaints.append(f"{name} is raised, and not documented")
    if re.search(r"\bRaises (?!:)[A-Z]", text):
        complaints.append("raised errors need their own section")
    return complaints


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call_says_what_it_takes_gives_and_raises(name: str) -> None:
    made = CALLS[name]
    function = made.fget if isinstance(made, property) else made
    text = inspect.getdoc(function) or ""
    complaints = wrong(text, function, parameters(function))
    returns = inspect.signature(function).return_annotation
    begins = re.match(r"(Return|Yield)\b", text) is not None
    if not isinstance(made, property) and returns not in (None, "None") and not begins:
        complaints += [] if {"Returns", "Yields"} & set(sections(text)) else [f"it returns {returns}, without a description"]
    assert not complaints, f"{name}:\n{text}"


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_class_says_how_it_is_made_or_what_it_holds(name: str) -> None:
    made = CLASSES[name]
    text = inspect.getdoc(made) or ""
    assert text.strip()
    attributes = sections(text).get("Attributes", {})
    known = set(dir(made)) | set(getattr(made, "__annotations__", {})) | _assigned(made)
    assert set(attributes) <= known, "attributes that it does not have"
    if name.rpartition(".")[2] in MADE_BY_USERS:
        owner = "Attributes" if "Attributes" in sections(text) else "Args"
        assert not wrong(text, None, parameters(made), owner), text


def _assigned(made: type) -> set[str]:
    """Attributes that the class's own `__init__`, or that of a base, gives to `self`."""
    texts = [inspect.getsource(owner) for owner in made.__mro__ if owner.__module__.startswith("penstock.")]
    return {match for text in texts for match in re.findall(r"\bself\.(\w+)", text)}


def test_the_tables_name_what_there_is() -> None:
    owners = {owner for value in CLASSES.values() for owner in value.__mro__}
    for name, methods in INTERNAL.items():
        matching = [owner for owner in owners if owner.__name__ == name.rpartition(".")[2]]
        assert any(set(methods.split()) <= set(dir(owner)) for owner in matching), name
    assert {name.rpartition(".")[2] for name in CLASSES} >= MADE_BY_USERS


def test_a_false_docstring_is_found() -> None:
    def wait(timeout_s: float, often: int) -> None:
        raise errors.PeerError("late")

    text = "Wait.\n\nArgs:\n    timeout_s: How long.\n    seldom: Not there.\n\nRaises:\n    Wrong: Never."
    complaints = wrong(text, wait, parameters(wait))
    assert [part.split()[0] for part in complaints] == ["Args", "timeout_s", "Wrong", "PeerError"]
