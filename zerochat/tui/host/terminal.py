"""Workarounds for terminals: Alt key sequences, and mouse reporting at run time."""

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from textual import _ansi_sequences

_SEQUENCES = {
    **{f"\x1b{digit}": f"alt+{digit}" for digit in "123456789"},
    "\x1b\r": "alt+enter",
    "\x1b\n": "alt+enter",
}


def register_keys() -> None:
    """Register the sequences in Textual's table; idempotent."""
    table: dict[str, object] = _ansi_sequences.ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    for sequence, key in _SEQUENCES.items():
        table[sequence] = (SimpleNamespace(value=key),)


def mouse_wanted(setting: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to use the mouse. Not in GNU screen: with it, screen holds Escape back until the next key."""
    return setting and "STY" not in environ


def set_mouse(driver: Any, wanted: bool) -> None:
    """Turn mouse reporting on or off. Drivers without mouse support are left alone."""
    if not hasattr(driver, "_disable_mouse_support") or driver._mouse == wanted:
        return
    if not wanted:
        driver._disable_mouse_support()
    driver._mouse = wanted
    if wanted:
        driver._enable_mouse_support()
