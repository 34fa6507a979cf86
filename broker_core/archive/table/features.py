"""Features of Delta, which any writer of a table can turn on.

Unsupported features are refused, because their rules are unknown. The error has the command of Spark SQL that removes the
feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ArchiveUnsupported

DELETION_VECTORS = "deletionVectors"
MAX_READER, MAX_WRITER = 3, 7  # protocol versions; later changes are features

#: Supported by a read. Column mapping is in use only with the property `delta.columnMapping.mode`.
READ = frozenset({DELETION_VECTORS, "v2Checkpoint", "timestampNtz", "vacuumProtocolCheck", "columnMapping"})
#: Supported by a commit, unless `check_writable` finds a property or column that uses them.
WRITTEN = frozenset(
    {
        *{DELETION_VECTORS, "v2Checkpoint", "timestampNtz", "columnMapping"},
        *{"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"},
    }
)
_OF_READER = {2: ("columnMapping",)}
_OF_WRITER = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}

_DROP = "`ALTER TABLE … DROP FEATURE {}`"
#: Commands that remove a feature, if dropping it is not enough or leaves another feature behind.
_REMEDIES = {
    "rowTracking": "`ALTER TABLE … SET TBLPROPERTIES ('delta.enableRowTracking' = 'false')`, then "
    + " and ".join(_DROP.format(name) for name in ("rowTracking", "domainMetadata")),
    **{
        name: f"`ALTER TABLE … DROP FEATURE {name} TRUNCATE HISTORY`, which Delta allows a day after the feature was last used"
        for name in ("vacuumProtocolCheck", "typeWidening", "checkpointProtection", "variantType")
    },
}
#: Features that Delta cannot remove.
_LASTING = frozenset({"allowColumnDefaults", "identityColumns"})
_AWAY = "move the table away, and the broker makes a new one"
_SPARK_READS = 'read the table with Spark\'s format("delta")'

#: Metadata keys of columns with rules for writers, and their text in an error.
_RULES = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated value",
    "delta.identity.": "an identity",
    "CURRENT_DEFAULT": "a default value",
}
_CONSTRAINT = "delta.constraints."
_MAPPING = "delta.columnMapping.mode"
_FORGETS = "delta.setTransactionRetentionDuration"


def check_readable(table: Any, url: str, instead: str = _SPARK_READS) -> None:
    protocol, properties = table.protocol(), table.metadata().configuration
    version = protocol.min_reader_version
    features = {*(protocol.reader_features or ()), *_implied(_OF_READER, version, MAX_READER)}
    _check(url, "reader", version, MAX_READER, features - READ, instead)
    if (mode := properties.get(_MAPPING, "none")) != "none":
        remedy = f"`ALTER TABLE … SET TBLPROPERTIES ('{_MAPPING}' = 'none')`"
        raise _refusal(url, f"maps its columns by {mode} ({_MAPPING}), so its files have other columns", remedy, instead)


def check_writable(table: Any, url: str) -> None:
    """Check that files can be added and merged."""
    check_readable(table, url, _AWAY)
    protocol, properties = table.protocol(), table.metadata().configuration
    version = protocol.min_writer_version
    features = {*(protocol.writer_features or ()), *_implied(_OF_WRITER, version, MAX_WRITER)}
    _check(url, "writer", version, MAX_WRITER, features - WRITTEN, _AWAY)
    for name, expression in properties.items():
        if name.startswith(_CONSTRAINT):
            constraint = name.removeprefix(_CONSTRAINT)
            remedy = f"`ALTER TABLE … DROP CONSTRAINT {constraint}`"
            raise _refusal(url, f"has the check constraint {constraint!r} ({expression})", remedy)
    if _FORGETS in properties:  # a recording would be committed again after a crash
        remedy = f"`ALTER TABLE … UNSET TBLPROPERTIES ('{_FORGETS}')`"
        raise _refusal(url, f"forgets by its property {_FORGETS} which messages are recorded", remedy)
    for field in table.schema().fields:
        for key, rule in _RULES.items():
            if any(name.startswith(key) for name in field.metadata):
                raise _refusal(url, f"has the column {field.name!r} with {rule}", f"`ALTER TABLE … DROP COLUMN {field.name}`")


def refusal_of(error: Exception, url: str) -> ArchiveUnsupported | None:
    """Return None if an error of delta-rs has another cause than the table's protocol."""
    text = str(error)
    if "Kernel error: Unsupported" not in text and "catalog-managed" not in text:
        return None
    return _refusal(url, f"has a protocol that delta-rs does not support ({text})", None)


def _implied(by_version: Mapping[int, tuple[str, ...]], version: int, most: int) -> set[str]:
    """Return the features of a protocol version without a list of names."""
    return {name for at, names in by_version.items() if at <= version < most for name in names}


def _check(url: str, side: str, version: int, most: int, unknown: set[str], instead: str) -> None:
    if version > most:
        raise _refusal(url, f"needs {side} version {version} of Delta's protocol; this Penstock has {most}", None, instead)
    if unknown:
        # First a feature that cannot be removed, then one whose remedy removes others.
        name = min(unknown, key=lambda feature: (feature not in _LASTING, feature not in _REMEDIES, feature))
        others = f" (and {', '.join(sorted(unknown - {name}))})" if len(unknown) > 1 else ""
        remedy = None if name in _LASTING else _REMEDIES.get(name, _DROP.format(name))
        raise _refusal(url, f"has Delta's {side} feature {name!r}{others}", remedy, instead)


def _refusal(url: str, fault: str, remedy: str | None, instead: str = _AWAY) -> ArchiveUnsupported:
    steps = f"remove it with {remedy}, or {instead}" if remedy else instead
    return ArchiveUnsupported(f"the archive's table {url} {fault}, which Penstock does not support: {steps}")
