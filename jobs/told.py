"""The demo's voice: steps, facts and what other processes say."""

from __future__ import annotations

import os
import time

from rich.console import Console


class Told:
    """Prints to the stdout that there is when it is made."""

    def __init__(self) -> None:
        # A copy of stdout, made before Spark's noise is sent elsewhere.
        self._console = Console(file=os.fdopen(os.dup(1), "w", buffering=1), highlight=False, soft_wrap=True)
        self._started = time.monotonic()
        self._step = 0

    def step(self, text: str) -> None:
        """Begin the next numbered step."""
        self._step += 1
        self._console.print(f"\n[bold cyan]{self._step}[/]  [bold]{text}[/]  [dim]({self.seconds():.0f} s)[/]")

    def fact(self, text: str) -> None:
        """Tell a fact."""
        self._console.print(f"   {text}")

    def other(self, text: str) -> None:
        """Repeat a line of another process."""
        self._console.print(f"   │ {text}", style="dim", markup=False)

    def kill(self, text: str) -> None:
        """Tell of a process that is killed."""
        self._console.print(f"   [bold red]kill -9[/] {text}")

    def good(self, text: str) -> None:
        """Tell of a check that holds."""
        self._console.print(f"   [bold green]✓[/] {text}")

    def bad(self, text: str) -> None:
        """Tell of a check that fails."""
        self._console.print(f"   [bold red]✗[/] {text}")

    def plain(self, text: str) -> None:
        """Print a text as it is."""
        self._console.print(text, markup=False)

    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._started
