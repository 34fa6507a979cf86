"""Other programs that write to a table of the archive: entries of Delta's log, as they would write them."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_OF_BASE85 = str.maketrans("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~", _ALPHABET)


def newest(folder: Path | str) -> int:
    """The number of the newest commit."""
    return max(int(path.stem) for path in (Path(folder) / "_delta_log").glob("*.json"))


def commit(folder: Path | str, *actions: dict[str, Any]) -> None:
    """Commit actions, as another program would."""
    path = Path(folder) / "_delta_log" / f"{newest(folder) + 1:020d}.json"
    path.write_text("\n".join(map(json.dumps, actions)))


def actions(folder: Path | str, kind: str) -> list[dict[str, Any]]:
    """The actions of one kind in the commits, oldest first."""
    paths = sorted((Path(folder) / "_delta_log").glob("*.json"))
    entries = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [entry[kind] for entry in entries if kind in entry]


def protocol(reader: int = 3, writer: int = 7, features: tuple[str, ...] = (), *, writer_only: bool = False) -> dict[str, Any]:
    """A protocol with these features in addition to those of every table."""
    action: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader == 3:
        action["readerFeatures"] = [] if writer_only else list(features)
    if writer == 7:
        action["writerFeatures"] = ["appendOnly", "invariants", *features]
    return {"protocol": action}


def metadata(folder: Path | str, properties: dict[str, str], field: dict[str, Any] | None = None) -> dict[str, Any]:
    """The table's metadata with more properties, and with one more column."""
    current = actions(folder, "metaData")[-1]
    current["configuration"] = {**current["configuration"], **properties}
    schema = json.loads(current["schemaString"])
    if field is not None:
        schema["fields"].append({"name": "more", "type": "string", "nullable": True, "metadata": {}, **field})
    if "delta.columnMapping.mode" in properties:
        current["configuration"]["delta.columnMapping.maxColumnId"] = str(len(schema["fields"]))
        for number, entry in enumerate(schema["fields"], 1):
            mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": entry["name"]}
            entry["metadata"] = {**entry["metadata"], **mapped}
    current["schemaString"] = json.dumps(schema)
    return {"metaData": current}


def delete(folder: Path | str, places: dict[str, list[int]]) -> None:
    """Delete rows of files, by their places, with deletion vectors in the log, as delta-spark does."""
    removed, added = [], []
    for add in active(folder):
        if add["path"] in places:
            removed.append({"remove": {**_key(add), "dataChange": True, "deletionTimestamp": 1, "extendedFileMetadata": False}})
            added.append({"add": {**add, "deletionVector": _vector(places[add["path"]]), "dataChange": True}})
    commit(folder, protocol(features=("deletionVectors",)), *removed, *added)


def active(folder: Path | str) -> list[dict[str, Any]]:
    """The files of the newest version, by their commits."""
    added: dict[str, dict[str, Any]] = {}
    for path in sorted((Path(folder) / "_delta_log").glob("*.json")):
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        for entry in entries:
            if "remove" in entry:
                added.pop(entry["remove"]["path"], None)
        added |= {entry["add"]["path"]: entry["add"] for entry in entries if "add" in entry}
    return list(added.values())


def _key(add: dict[str, Any]) -> dict[str, Any]:
    return {name: add[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in add}


def _vector(places: list[int]) -> dict[str, Any]:
    """A deletion vector in the log itself: a roaring bitmap of 64 bits, with one container of 16 bits."""
    values = sorted(places)
    container = struct.pack("<IIHHI", 12346, 1, 0, len(values) - 1, 16) + struct.pack(f"<{len(values)}H", *values)
    octets = struct.pack("<IQI", 1681511377, 1, 0) + container
    padded = octets + bytes(-len(octets) % 4)
    text = base64.b85encode(padded).decode().translate(_OF_BASE85)
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(octets), "cardinality": len(values)}
