"""RabbitMQ's definitions of one virtual host, of `rabbitmqctl export_definitions` and the HTTP API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import errors
from . import rabbitmq_policies as policies
from . import rabbitmq_queues as queues
from . import rabbitmq_users as users
from .rabbitmq_policies import RabbitPolicy
from .steps import ImportStep, bind, declare_exchange

#: Sections, with their fields that are texts.
_SECTIONS = {
    "queues": ("name",),
    "exchanges": ("name", "type"),
    "bindings": ("source", "destination", "destination_type", "routing_key"),
    "policies": ("name", "pattern"),
    "permissions": ("user", "configure", "write", "read"),
    "topic_permissions": ("user", "exchange"),
    "users": ("name",),
    "parameters": ("component", "name"),
}
_OBJECTS = {"queues": "arguments", "exchanges": "arguments", "bindings": "arguments", "policies": "definition"}
_TYPES = ("direct", "fanout", "topic", "headers")
#: Exchanges of RabbitMQ itself, which its export omits.
_BUILT_IN = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}
_GLOBAL = ("users",)  # sections without virtual hosts
#: Objects of a section. Each policy is compared with each name.
MAX_OBJECTS, MAX_POLICIES = 100_000, 500


def is_rabbitmq(document: dict[str, Any]) -> bool:
    names = {"rabbit_version", "rabbitmq_version", "vhosts"}
    return bool(names & document.keys()) or ("version" not in document and bool({"queues", "bindings"} & document.keys()))


def steps(document: dict[str, Any], virtual_host: str | None) -> list[ImportStep]:
    """Raises InvalidRequest for a malformed file, or one of several virtual hosts without a choice."""
    sections = {name: _section(document, name) for name in _SECTIONS}
    sections = _of_host(sections, virtual_host)
    applied = [RabbitPolicy.of(table) for table in sections["policies"]]
    kinds = {table["name"]: table["type"] for table in sections["exchanges"]}
    kinds |= {name: kind for name, kind in _BUILT_IN.items() if any(table["source"] == name for table in sections["bindings"])}
    routes = queues.Routes(kinds, sections["bindings"])
    declared = [queues.RabbitQueue(table, applied, routes) for table in sections["queues"]]
    of_exchanges = [policies.of_exchange(applied, table["name"]) for table in sections["exchanges"]]
    return [
        *queues.steps(declared),
        *_exchanges(sections["exchanges"], applied, kinds),
        *(_binding(table, kinds) for table in sections["bindings"]),
        *policies.steps(applied, [*(queue.policy for queue in declared), *of_exchanges]),
        *(ImportStep(f"{table['component']} {table['name']}", ["a parameter of a plugin"]) for table in sections["parameters"]),
        *users.steps(sections["users"], sections["permissions"], sections["topic_permissions"]),
    ]


def _section(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    tables = document.get(name, [])
    if not isinstance(tables, list):
        raise errors.InvalidRequest(f"{name} must be a list")
    for number, table in enumerate(tables):
        where = f"{name}[{number}]"
        if not isinstance(table, dict):
            raise errors.InvalidRequest(f"{where} must be an object")
        for field in _SECTIONS[name]:
            if not isinstance(table.get(field), str):
                raise errors.InvalidRequest(f"{where}.{field} must be a text")
        values = table.get(_OBJECTS.get(name, ""), {})
        if not isinstance(values, dict):
            raise errors.InvalidRequest(f"{where}.{_OBJECTS[name]} must be an object")
        if not isinstance(table.get("vhost", ""), str):
            raise errors.InvalidRequest(f"{where}.vhost must be a text")
    return tables


def _of_host(sections: dict[str, list[dict[str, Any]]], chosen: str | None) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of one virtual host. An export of one host does not name it."""
    local = [table for name, tables in sections.items() if name not in _GLOBAL for table in tables]
    hosts = sorted({table["vhost"] for table in local if "vhost" in table})
    listed = ", ".join(f"{host!r:.80}" for host in hosts[:20])
    if chosen is None and len(hosts) > 1:
        raise errors.InvalidRequest(f"the file has several virtual hosts: choose one of {listed} with --virtual-host")
    if chosen is not None and hosts and chosen not in hosts:
        raise errors.InvalidRequest(f"the file has no objects of virtual host {chosen!r:.80}; it has {listed}")
    host = chosen or (hosts[0] if hosts else None)
    of_host = {
        name: [table for table in tables if name in _GLOBAL or table.get("vhost", host) == host]
        for name, tables in sections.items()
    }
    for name, tables in of_host.items():
        most = MAX_POLICIES if name == "policies" else MAX_OBJECTS
        if len(tables) > most:
            raise errors.InvalidRequest(f"{name} has {len(tables):,} objects; an import reads at most {most:,}")
    return of_host


def _exchanges(tables: list[dict[str, Any]], applied: list[RabbitPolicy], kinds: dict[str, str]) -> Iterator[ImportStep]:
    """An alternate precedes the exchanges that name it. The broker refuses a cycle."""
    declared = {table["name"] for table in tables}
    built_in = [{"name": name, "type": kind} for name, kind in kinds.items() if name not in declared]
    steps = [_exchange(table, applied) for table in (*built_in, *tables)]
    waiting = {step.fields.get("exchange", step.object): step for step in steps}
    for name in list(waiting):
        chain = []
        while name in waiting:
            chain.append(step := waiting.pop(name))
            name = step.fields.get("options", {}).get("alternate")
        yield from reversed(chain)


def _exchange(table: dict[str, Any], applied: list[RabbitPolicy]) -> ImportStep:
    name, kind = table["name"], table["type"]
    if kind not in _TYPES:
        return ImportStep(f"exchange {name}", [f"type {kind!r:.80} is of a plugin; Penstock has {', '.join(_TYPES)}"])
    arguments = policies.merged(table.get("arguments", {}), policies.of_exchange(applied, name))
    options, notes = {}, []
    for argument, value in arguments.items():
        if argument == "alternate-exchange":
            options["alternate"] = value
        else:
            notes.append(f"argument {argument} has no counterpart")
    if table.get("auto_delete") is True:
        options["lifetime"] = "unused"
    if table.get("internal") is True:
        notes.append("internal: here only permissions prevent that clients send to it")
    return declare_exchange(name, kind, options, notes)


def _binding(table: dict[str, Any], kinds: dict[str, str]) -> ImportStep:
    source, target, key = table["source"], table["destination"], table["routing_key"]
    if table["destination_type"] != "queue":
        reason = f"Penstock has no bindings between exchanges: bind the queues of {target} to {source}"
        return ImportStep(f"binding {source} to exchange {target}", [reason])
    kind, arguments = kinds.get(source), table.get("arguments", {})
    fields: dict[str, Any] = {}
    if key and kind not in ("fanout", "headers"):  # they do not compare it
        fields["key"] = key
    if arguments and kind == "headers":
        fields["arguments"] = arguments
    notes = [f"argument {name}: a {kind} exchange compares no headers" for name in arguments if kind != "headers"]
    return bind(source, target, notes, **fields)
