"""Features of a Delta table, which any writer can turn on: those that a read honours, and those that a commit honours.

A feature that is not listed here is refused, because its rules for readers or writers are unknown. The texts of the errors name
the table, the feature and the command of Spark SQL that takes it back. Needs a table that deltalake has opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ArchiveUnsupported

DELETION_VECTORS = "deletionVectors"
MAX_READER, MAX_WRITER = 3, 7  # protocol versions; features have taken the place of later ones

#: Features that a read honours. Deletion vectors are applied, delta-rs reads the checkpoints; the others are about other columns,
#: or about writers. Column mapping is in use if the property `delta.columnMapping.mode` says so.
READ = frozenset({DELETION_VECTORS, "v2Checkpoint", "timestampNtz", "vacuumProtocolCheck", "columnMapping"})
#: Features that a commit honours, as long as no property or column uses those that `check_writable` refuses.
WRITTEN = frozenset(
    {
        *{DELETION_VECTORS, "v2Checkpoint", "timestampNtz", "columnMapping"},
        *{"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"},
    }
)
#: Features that the protocol versions before named features have.
_OF_READER = {2: ("columnMapping",)}
_OF_WRITER = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}

_DROP = "`ALTER TABLE … DROP FEATURE {}`"
#: Commands of Spark SQL that take a feature back, if dropping it is not enough, or leaves another feature behind.
_REMEDIES = {
    "rowTracking": "`ALTER TABLE … SET TBLPROPERTIES ('delta.enableRowTracking' = 'false')`, then "
    + " and ".join(_DROP.format(name) for name in ("rowTracking", "domainMetadata")),
    **{
        name: f"`ALTER TABLE … DROP FEATURE {name} TRUNCATE HISTORY`, which Delta allows a day after the feature was last used"
        for name in ("vacuumProtocolCheck", "typeWidening", "checkpointProtection", "variantType")
    },
}
#: Features that Delta itself cannot take back.
_LASTING = frozenset({"allowColumnDefaults", "identityColumns"})
_AWAY = "move the table away, and the broker makes a new one"
_SPARK_READS = 'read the table with Spark\'s format("delta")'

#: Keys in the metadata of a column whose rules a writer has to follow, and what the column then has.
_RULES = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated value",
    "delta.identity.": "an identity",
    "CURRENT_DEFAULT": "a default value",
}
_CONSTRAINT = "delta.constraints."
_MAPPING = "delta.columnMapping.mode"
_FORGETS = "delta.setTransactionRetentionDuration"


def check_readable(table: Any, url: str) -> None:
    """Check that the rows of a table can be read right. Raises ArchiveUnsupported."""
    _check_reader(table, url, _SPARK_READS)


def _check_reader(table: Any, url: str, instead: str) -> None:
    protocol, properties = table.protocol(), table.metadata().configuration
    version = protocol.min_reader_version
    features = {*(protocol.reader_features or ()), *_implied(_OF_READER, version, MAX_READER)}
    _check(url, "reader", version, MAX_READER, features - READ, instead)
    if (mode := properties.get(_MAPPING, "none")) != "none":
        remedy = f"`ALTER TABLE … SET TBLPROPERTIES ('{_MAPPING}' = 'none')`"
        raise _refusal(url, f"maps its columns by {mode} ({_MAPPING}), so its files have other columns", remedy, instead)


def check_writable(table: Any, url: str) -> None:
    """Check that rows can be added to a table, and files put together, by the rules of the table. Raises ArchiveUnsupported."""
    _check_reader(table, url, _AWAY)
    protocol, properties = table.protocol(), table.metadata().configuration
    version = protocol.min_writer_version
    features = {*(protocol.writer_features or ()), *_implied(_OF_WRITER, version, MAX_WRITER)}
    _check(url, "writer", version, MAX_WRITER, features - WRITTEN, _AWAY)
    for name, expression in properties.items():
        if name.startswith(_CONSTRAINT):
            constraint = name.removeprefix(_CONSTRAINT)
            raise _refusal(
                url, f"has the check constraint {constraint!r} ({expression})", f"`ALTER TABLE … DROP CONSTRAINT {constraint}`"
            )
    if _FORGETS in properties:  # a pass that was committed before a crash would be committed again after it
        raise _refusal(
            url,
            f"forgets by its property {_FORGETS} which messages are recorded",
            f"`ALTER TABLE … UNSET TBLPROPERTIES ('{_FORGETS}')`",
        )
    for field in table.schema().fields:
        for key, rule in _RULES.items():
            if any(name.startswith(key) for name in field.metadata):
                raise _refusal(url, f"has the column {field.name!r} with {rule}", f"`ALTER TABLE … DROP COLUMN {field.name}`")


def refusal_of(error: Exception, url: str) -> ArchiveUnsupported | None:
    """Return the error for a table that delta-rs does not open because of its protocol; None if it failed for another reason."""
    text = str(error)
    if "Kernel error: Unsupported" not in text and "catalog-managed" not in text:
        return None
    return _refusal(url, f"has a protocol that delta-rs does not support ({text})", None)


def _implied(by_version: Mapping[int, tuple[str, ...]], version: int, most: int) -> set[str]:
    """Name the features that a protocol version has without listing them: that of the features lists them all."""
    return {name for at, names in by_version.items() if at <= version < most for name in names}


def _check(url: str, side: str, version: int, most: int, unknown: set[str], instead: str) -> None:
    if version > most:
        raise _refusal(url, f"needs {side} version {version} of Delta's protocol; this Penstock has {most}", None, instead)
    if unknown:
        # First a feature that decides what can be done, then one whose remedy takes others back.
        name = min(unknown, key=lambda each: (each not in _LASTING, each not in _REMEDIES, each))
        others = f" (and {', '.join(sorted(unknown - {name}))})" if len(unknown) > 1 else ""
        remedy = None if name in _LASTING else _REMEDIES.get(name, _DROP.format(name))
        raise _refusal(url, f"has Delta's {side} feature {name!r}{others}", remedy, instead)


def _refusal(url: str, what: str, remedy: str | None, instead: str = _AWAY) -> ArchiveUnsupported:
    steps = f"take that back with {remedy}, or {instead}" if remedy else instead
    return ArchiveUnsupported(f"the archive's table {url} {what}, which Penstock does not support: {steps}")
