"""`python -m connector.pyfiles OUT.zip` writes what executors need, for `spark-submit --py-files OUT.zip`.

The executors' Python must have pyarrow; everything else is in the zip: the connector, and what it uses of `broker_core`.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_BROKER_CORE = ("__init__.py", "errors.py", "shipped.py")
_PACKAGES = (
    *("broker_core/amqp", "broker_core/amqp_client", "broker_core/client", "broker_core/messages"),
    *("broker_core/messages/encoding", "broker_core/selectors", "connector"),
)
# The same content gives the same bytes, so that a cluster that caches by checksum does so.
_DATE = (1980, 1, 1, 0, 0, 0)


def write(out: Path) -> list[str]:
    """Write the zip; return the names in it."""
    files = [_ROOT / "broker_core" / name for name in _BROKER_CORE]
    files += [file for package in _PACKAGES for file in sorted((_ROOT / package).glob("*.py"))]
    names = []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            name = file.relative_to(_ROOT).as_posix()
            archive.writestr(zipfile.ZipInfo(name, _DATE), file.read_bytes())
            names.append(name)
    return names


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m connector.pyfiles OUT.zip", file=sys.stderr)
        return 2
    print(f"{arguments[0]}: {len(write(Path(arguments[0])))} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
