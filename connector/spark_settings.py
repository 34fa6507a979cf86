"""Settings of a Spark session, by version of Spark. conf/spark.conf has the reason for each.

Imports no PySpark, because `penstock conf` prints settings for another machine.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

#: The tested Delta, and the versions of Spark for which it has a jar. Its jar for Spark 4.2 fails on 4.3.
DELTA_VERSION = "4.4.0"
DELTA_SPARKS = ("4.0", "4.1", "4.2")
#: The Spark of conf/spark.conf.
LATEST_WITH_DELTA = DELTA_SPARKS[-1]

CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_STREAMING = "org.apache.spark.sql.execution.streaming"


def minor_version(spark: str) -> str:
    """Return `4.2` for `4.2.1`."""
    return ".".join(spark.split(".")[:2])


def installed_spark() -> str | None:
    """Return the version of this Python's PySpark, if it has one."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


def delta_settings(spark: str) -> dict[str, str]:
    """Empty for a Spark without Delta."""
    minor = minor_version(spark)
    if minor not in DELTA_SPARKS:
        return {}
    return {
        "spark.jars.packages": f"io.delta:delta-spark_{minor}_2.13:{DELTA_VERSION}",
        # Without these jars, for Unity Catalog, the others resolve in seconds.
        "spark.jars.excludes": "io.unitycatalog:unitycatalog-client,io.unitycatalog:unitycatalog-hadoop,"
        "io.delta:delta-kernel-api,io.delta:delta-kernel-defaults,io.delta:delta-kernel-unitycatalog,org.slf4j:slf4j-api",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def recommended_settings(spark: str) -> dict[str, str]:
    """For short triggers, and for times in tables."""
    package = _STREAMING if minor_version(spark) == "4.0" else f"{_STREAMING}.checkpointing"
    return {
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        CHECKPOINT_MANAGER: f"{package}.FileSystemBasedCheckpointFileManager",
    }


def conf_for(text: str, spark: str) -> str:
    """Return conf/spark.conf with the settings that this version lacks commented out."""
    settings = {**delta_settings(spark), **recommended_settings(spark)}
    lines = []
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if not line or line.startswith("#"):
            lines.append(line)
        elif name in settings:
            lines.append(line.replace(value.strip(), settings[name]))
        else:
            lines.append(f"# {line}")
    head = [f"# For Spark {minor_version(spark)}."]
    if not delta_settings(spark):
        head.append(f"# Delta {DELTA_VERSION} supports Spark {' '.join(DELTA_SPARKS)}. Its settings are commented out.")
    return "\n".join([*head, *lines, ""])
