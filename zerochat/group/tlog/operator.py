"""The operator's part of a group's log: what waits gets a place, and the witnesses are shown it until a quorum has
cosigned. `evidence/operator.py` has the rules; here is what it takes from the journal and from members."""

from msgspec.structs import replace

from zerochat.errors import Refused, RemoteError
from zerochat.evidence.note import Note, parse_checkpoint
from zerochat.evidence.operator import Operated
from zerochat.evidence.witness import ENTRIES_MAX, checkpoint, parse_entry
from zerochat.group.effects import KeepEntries, LookUp, Measure
from zerochat.group.links import rate_limits
from zerochat.group.state import Log
from zerochat.group.tlog.lookups import Piece, Unplaced
from zerochat.group.tlog.messages import can_say, edit_log, say
from zerochat.group.tlog.witness import may_be_held
from zerochat.group.transaction import Turn
from zerochat.group.wire.tlog import LOG_PIECE, LogLineBody, LogPieceBody

PLACE_MS = 1_000
"""What is posted within this time gets its places together."""


def posted(turn: Turn, name: str, origin: str, by: str, records: tuple[bytes, ...]) -> None:
    """A member posts these: see which of them have no place yet."""
    log = turn.group(name).logs[origin]
    if log.operated is not None and log.split is None:
        turn.say(LookUp(name, origin, Unplaced(by, records)))


def unplaced(turn: Turn, name: str, origin: str, by: str, records: tuple[bytes, ...]) -> None:
    """These have no place in the log, and the bytes behind them are here: let them wait for one."""
    log = turn.group(name).logs[origin]
    state = log.operated
    if state is None:
        return
    for record in records:
        if not may_be_held(parse_entry(record)):
            continue
        try:
            state = state.posted(by, record)
        except RemoteError as error:
            turn.say(Measure("dropped", error.code))
    if state is not log.operated:
        edit_log(turn, name, origin, operated=state)
        turn.timer("place", name, PLACE_MS, keep=True)


def place(turn: Turn, name: str) -> None:
    """Put what waits behind the logs that we operate, one checkpoint at a time, and show it."""
    for origin, log in turn.group(name).logs.items():
        if log.operated is None or log.split is not None:
            continue
        state, placed = log.operated.asking(turn.group(name).seed)
        if placed:
            turn.say(KeepEntries(name, origin, log.operated.frontier.size, placed))
            edit_log(turn, name, origin, operated=state)
            show(turn, name, origin)


def look_again(turn: Turn, name: str, origin: str) -> None:
    """Have the witnesses say once more how long the log is, though nothing is new: only so can anybody show that
    nothing was posted until now."""
    log = turn.group(name).logs[origin]
    state = log.operated
    if state is not None and state.asked is None and not state.waiting and state.frontier.size:
        asked = checkpoint(origin, state.frontier, turn.group(name).seed)
        edit_log(turn, name, origin, operated=replace(state, asked=asked))
        show(turn, name, origin)


def show(turn: Turn, name: str, origin: str) -> None:
    """Show the checkpoint under way to the witnesses who have not cosigned it."""
    log = turn.group(name).logs[origin]
    if log.operated is None or log.operated.asked is None:
        return
    for witness in log.rules.witnesses:
        if not any(one.name == witness for one in log.operated.asked.signatures[1:]) and may_show(turn, name, witness):
            turn.say(LookUp(name, origin, Piece(witness, reached(log, witness), ENTRIES_MAX)))


def may_show(turn: Turn, name: str, witness: str) -> bool:
    return witness == turn.group(name).me or can_say(turn, name, witness)


def reached(log: Log, witness: str) -> int:
    """How far a witness is, as far as we know."""
    assert log.operated is not None
    whole = log.operated.whole
    return log.reached.get(witness, parse_checkpoint(whole.text).size if whole is not None else 0)


def note_behind(state: Operated, after: int, records: tuple[bytes, ...]) -> Note | None:
    """The checkpoint under way, where these entries after so many lead to it."""
    if state.asked is None:
        return None
    return state.asked if after + len(records) == state.frontier.size else None


def hear_line(turn: Turn, name: str, sender: str, body: LogLineBody) -> Note | None:
    """A witness cosigns, or says how far it is. The checkpoint that is whole by that. Raises RemoteError."""
    log = turn.group(name).logs[body.origin]
    if log.operated is None or log.split is not None:
        return None
    if sender not in log.rules.witnesses:
        raise Refused(why="a line by somebody who does not witness the log")
    if body.line:
        return take_line(turn, name, body.origin, sender, body.size, body.line)
    size = min(body.size, log.operated.frontier.size)
    edit_log(turn, name, body.origin, reached={**log.reached, sender: size})
    if body.full:
        turn.say(Measure("WitnessFull"))
    elif log.operated.asked is not None or size < log.operated.frontier.size:
        turn.say(LookUp(name, body.origin, Piece(sender, size, ENTRIES_MAX)))
    return None


def take_line(turn: Turn, name: str, origin: str, by: str, size: int, line: str) -> Note | None:
    """A witness cosigns, ourselves perhaps. The checkpoint that is whole by that. Raises RemoteError."""
    log = turn.group(name).logs[origin]
    assert log.operated is not None
    state = log.operated.cosigned(by, line)
    reached_ = {**log.reached, by: min(size, state.frontier.size)}
    edit_log(turn, name, origin, operated=state, reached=reached_)
    return state.whole if state.asked is None and log.operated.asked is not None else None


def hand_out(turn: Turn, name: str, origin: str, member: str, old: int, records: tuple[bytes, ...], note: str) -> None:
    """Give a member a piece of the log. It counts as if the member had sent it: a question is much shorter."""
    texts = [record.decode() for record in records]
    if say(turn, name, member, LOG_PIECE, LogPieceBody(name, origin, old, texts, note)):
        rate_limits.charge(turn, name, member, sum(map(len, texts)) + len(note))
