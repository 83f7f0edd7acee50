"""Teaches Textual the keys of plain terminals that it reads as something else.

A terminal without the kitty keyboard protocol (tmux, xterm, most of them) sends Alt+X as ESC X. Textual 8.2 takes
ESC 1 … ESC 9 for what macOS types with Option ("¡", "™", …), and ESC CR for a plain Enter; so Alt+1 would type "¡", and
Alt+Enter would send half a message. Its table of sequences is a plain dictionary, and these are the entries it lacks.
"""

from types import SimpleNamespace

from textual import _ansi_sequences

_SEQUENCES = {
    **{f"\x1b{digit}": f"alt+{digit}" for digit in "123456789"},
    "\x1b\r": "alt+enter",
    "\x1b\n": "alt+enter",
}


def teach_keys() -> None:
    """Add the sequences; again does nothing more."""
    table: dict[str, object] = _ansi_sequences.ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    for sequence, key in _SEQUENCES.items():
        table[sequence] = (SimpleNamespace(value=key),)
