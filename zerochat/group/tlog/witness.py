"""A witness' part of a group's log: it holds the bytes, and cosigns what leads on from what it has cosigned before.

What it holds is in the journal, so it looks there before each cosignature (`lookups.Unheld`); and what it has cosigned
is in the state, which is on disk before the cosignature leaves.
"""

from msgspec import Struct

from zerochat.errors import Refused, RemoteError
from zerochat.evidence.case import DEFENCE_BYTES_MAX
from zerochat.evidence.handshake import STATEMENT_BYTES_MAX
from zerochat.evidence.messages import DATA_BYTES_MAX
from zerochat.evidence.note import Note, check_signed, parse_checkpoint, parse_note
from zerochat.evidence.witness import Behind, Entry, Split, is_split
from zerochat.group.effects import KeepBlob, LookUp, Measure, Notify
from zerochat.group.notifications import LogSplit
from zerochat.group.tlog.lookups import Hashes, Unheld
from zerochat.group.tlog.messages import edit_log, say
from zerochat.group.transaction import Turn
from zerochat.group.wire.tlog import LOG_LINE, LogLineBody

HELD_MS = 15 * 24 * 3_600_000
"""So long a witness holds bytes after they came: two weeks, and what it may take until they are in the log."""


_SIZES = {
    "message": DATA_BYTES_MAX,
    "accusation": STATEMENT_BYTES_MAX,
    "defence": DEFENCE_BYTES_MAX,
    "close": STATEMENT_BYTES_MAX,
}
"""What is longer is nothing that counts, and would keep others from fetching what does."""


class Line(Struct, frozen=True):
    """What a witness says below a checkpoint."""

    size: int
    text: str


def may_be_held(entry: Entry) -> bool:
    """Whether what an entry speaks of has a size that anybody takes."""
    return entry.size <= _SIZES[entry.kind]


def hold(turn: Turn, name: str, entry: Entry, blob: bytes, *, asked: bool) -> None:
    """Keep what an entry speaks of, whoever has brought it. Raises Refused where it is something else."""
    if not may_be_held(entry) or not entry.is_of(blob):
        raise Refused(why="bytes of which an entry does not speak")
    turn.say(KeepBlob(name, entry.hash, entry.author, blob, turn.now, asked))


def consider(turn: Turn, name: str, origin: str, sender: str, old: int, records: tuple[bytes, ...], note: Note) -> None:
    """We are shown a piece: see whether we hold what it speaks of. Raises RemoteError."""
    log = turn.group(name).logs[origin]
    state, said = log.watched, parse_checkpoint(note.text)
    if state is None or log.split is not None:
        return
    check_signed(note, log.rules.operator)
    if state.last is not None and is_split(state.last, note, log.rules.operator):
        keep_split(turn, name, origin, Split(state.last, note))
    elif old == state.frontier.size:
        turn.say(LookUp(name, origin, Unheld(sender, old, records, note.written())))
    elif sender == log.rules.operator and (said.size > state.frontier.size or old != said.size):
        tell(turn, name, origin, full=False)


def tell(turn: Turn, name: str, origin: str, *, full: bool) -> None:
    """Say to the operator how far we are."""
    log = turn.group(name).logs[origin]
    if log.watched is not None:
        size = log.watched.frontier.size
        say(turn, name, log.rules.operator, LOG_LINE, LogLineBody(name, origin, size, full=full))


def cosign(turn: Turn, name: str, origin: str, what: Unheld, found: Hashes) -> Line | None:
    """Cosign what we were shown, if we hold all that it speaks of; what we say goes to the operator, or is returned
    where that is ourselves."""
    group = turn.group(name)
    log = group.logs[origin]
    if log.watched is None or log.split is not None:
        return None
    if found.hashes:
        if found.full:
            tell(turn, name, origin, full=True)
        return None
    note = parse_note(what.note.encode())
    try:
        state, text = log.watched.cosigned(
            what.old, what.records, note, may_be_held, group.seed, max(1, turn.now // 1000)
        )
    except Behind:
        if what.by == log.rules.operator:
            tell(turn, name, origin, full=False)
        return None
    except Split as split:
        keep_split(turn, name, origin, split)
        return None
    except RemoteError as error:
        turn.say(Measure("dropped", error.code))
        return None
    edit_log(turn, name, origin, watched=state)
    size = state.frontier.size
    if log.rules.operator == group.me:
        return Line(size, text)
    say(turn, name, log.rules.operator, LOG_LINE, LogLineBody(name, origin, size, text))
    return None


def keep_split(turn: Turn, name: str, origin: str, split: Split) -> None:
    """The operator has signed two logs: keep what shows it, tell it, and post in and cosign neither any more. What a
    quorum has cosigned is believed all the same (`following.take`)."""
    log = turn.group(name).logs[origin]
    if log.split is None:
        one, other = split.one.written(), split.other.written()
        edit_log(turn, name, origin, split=(one, other))
        turn.say(Notify(LogSplit(name, origin, log.rules.operator, one, other)))
        turn.timer("log", name, 1)
