"""`python -m penstock.connector.pyfiles OUT.zip` writes the modules that executors need, for `spark-submit --py-files OUT.zip`.

The executors' Python must have pyarrow.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from ..broker_core import executor_modules

_ROOT = Path(__file__).parents[2]  # not resolved: in the repository, penstock/connector is a link
# Fixed, for clusters that cache by checksum.
_DATE = (1980, 1, 1, 0, 0, 0)


def write(out: Path) -> list[str]:
    files = [_ROOT / "penstock" / f"{name}.py" for name in executor_modules.MODULES]
    files += [file for folder in executor_modules.FOLDERS for file in sorted((_ROOT / "penstock" / folder).glob("*.py"))]
    names = [file.relative_to(_ROOT).as_posix() for file in files]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, name in zip(files, names, strict=True):
            archive.writestr(zipfile.ZipInfo(name, _DATE), file.read_bytes())
    return names


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m penstock.connector.pyfiles OUT.zip", file=sys.stderr)
        return 2
    print(f"{arguments[0]}: {len(write(Path(arguments[0])))} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
