"""Output of the demo: numbered steps, facts, and lines of other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


class Output:
    """Prints to the stdout of the moment at which it is created, even if stdout is redirected later."""

    def __init__(self, steps: int = 1) -> None:
        self._console = Console(file=os.fdopen(os.dup(1), "w", buffering=1), highlight=False, soft_wrap=True)
        self._started = time.monotonic()
        self._step, self._steps = 0, steps

    def step(self, text: str) -> None:
        """Begin the next numbered step."""
        self._step += 1
        place = f"[bold cyan]{self._step}[/] of {self._steps}"
        self._console.print(f"\n{place}  [bold]{text}[/]  [dim](after {self.seconds():.0f} s)[/]")

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """Show that work of some seconds is running: a spinner in a terminal, otherwise a line. Not nested."""
        if self._console.is_terminal:
            with self._console.status(f"{text} …"):
                yield
        else:
            self.fact(f"… {text}")
            yield

    def fact(self, text: str) -> None:
        """Print a fact."""
        self._console.print(f"   {text}")

    def quote(self, text: str) -> None:
        """Print a line of another process."""
        self._console.print(f"   │ {text}", style="dim", markup=False)

    def kill(self, text: str) -> None:
        """Report a killed process."""
        self._console.print(f"   [bold red]kill -9[/] {text}")

    def good(self, text: str) -> None:
        """Report a check that holds."""
        self._console.print(f"   [bold green]✓[/] {text}")

    def bad(self, text: str) -> None:
        """Report a check that fails."""
        self._console.print(f"   [bold red]✗[/] {text}")

    def text(self, text: str) -> None:
        """Print a text unchanged."""
        self._console.print(text, markup=False)

    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._started
