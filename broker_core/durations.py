"""The longest time that anything may be told to wait."""

from __future__ import annotations

MAX_MILLISECONDS = 10 * 366 * 24 * 3600 * 1000
"""Milliseconds that a delay, or a time among a queue's options, has to be below: ten years. Longer is a mistake of units."""
