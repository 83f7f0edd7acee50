"""Signed messages that have come and are not taken in: what convicts an author of having withheld what they name.

They matter where a group keeps a log. The journal bounds what it keeps of each author (`agent/storage/signed_messages.py`); whoever
fills that has signed a message for each place that it fills, and owes what that one names.
"""

from collections.abc import Collection

from zerochat.evidence.equivocation import ALIAS, SIGNATURE, TIME
from zerochat.group.effects import KeepStray
from zerochat.group.transaction import Turn

AT_ONCE_MAX = 16
"""Of those that are put aside together, as many are kept whole."""


def came(turn: Turn, name: str, author: str, written: bytes) -> None:
    """This one cannot be taken in, or need not be; but it has come, so nobody has withheld it."""
    _say(turn, name, author, written, b"")


def put_aside(turn: Turn, name: str, author: str, messages: Collection[bytes]) -> None:
    """These wait no longer, and what they name has not come: whoever wants to accuse their author needs them."""
    for number, written in enumerate(sorted(messages)):  # by their time
        _say(turn, name, author, written, written if number < AT_ONCE_MAX else b"")


def _say(turn: Turn, name: str, author: str, written: bytes, message: bytes) -> None:
    if turn.group(name).view.ledger:
        place = written[ALIAS], int.from_bytes(written[TIME], "big"), written[SIGNATURE]
        turn.say(KeepStray(name, author, *place, message, turn.now))
