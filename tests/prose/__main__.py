"""The prose of the project, checked by Vale with the rules in `styles`.

python tests/prose --vale PATH            checks everything; exit code 1 if a sentence has a habit
python tests/prose --vale PATH FILE …     checks these files or folders
python tests/prose --count                counts the words in docstrings and comments
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import views

ROOT = Path(__file__).resolve().parents[2]
CODE = ("broker_core", "connector", "jobs")


def tracked(paths: list[str]) -> Iterator[Path]:
    """Name the files of the repository that git tracks, or would."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    for name in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink():
            yield Path(name)


def check(vale: str, paths: list[str]) -> Counter[str]:
    """Print each habit with its file and line, and count the habits by rule."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in tracked(paths):
            view = views.of_file(ROOT / name)
            if view is not None:
                target = Path(folder, f"{name}.md")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(view)
        config = Path(__file__).with_name("vale.ini")
        command = [vale, "--config", str(config), "--output", "JSON", "--no-exit", folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        for target, alerts in sorted(json.loads(done.stdout).items()):
            name = str(Path(target).relative_to(folder)).removesuffix(".md")
            for alert in alerts:
                rule = alert["Check"].removeprefix("Penstock.")
                counts[rule] += 1
                print(f"{name}:{alert['Line']}: {rule}: {alert['Message']}")
    return counts


def main() -> int:
    """Check or count, and return the exit code."""
    parser = argparse.ArgumentParser(prog="tests/prose")
    parser.add_argument("--vale", default=str(ROOT / "build/vale/vale"), help="the program Vale")
    parser.add_argument("--count", action="store_true", help="count the words in docstrings and comments, by folder")
    parser.add_argument("paths", nargs="*", help="files or folders; everything if none is named")
    options = parser.parse_args()
    if options.count:
        rooms: Counter[str] = Counter()
        for name in tracked(options.paths or list(CODE)):
            if name.suffix == ".py":
                rooms["/".join(name.parts[:2])] += views.words_in_code(ROOT / name)
        for room, words in rooms.most_common():
            print(f"{words:>8,}  {room}")
        print(f"{rooms.total():>8,}  words in docstrings and comments")
        return 0
    counts = check(options.vale, options.paths)
    print("\n".join(f"{count:>6} {rule}" for rule, count in counts.most_common()) or "no habits found")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
