"""What members and the journal say about a group's log, and whose matter it is."""

from zerochat.didcomm.message import Message
from zerochat.errors import Refused, RemoteError
from zerochat.evidence.note import parse_note
from zerochat.evidence.witness import ENTRIES_MAX, parse_entry
from zerochat.group.effects import LookUp, Measure
from zerochat.group.inputs import LookedUp
from zerochat.group.links import rate_limits
from zerochat.group.tlog import follower, operator, submission
from zerochat.group.tlog import witness as witnessing
from zerochat.group.tlog.lookups import (
    Blobs,
    Bytes,
    Hashes,
    Lacking,
    Messages,
    Overdue,
    Piece,
    Records,
    Stretch,
    Unheld,
    Unplaced,
    Unread,
)
from zerochat.group.tlog.messages import can_say, say
from zerochat.group.transaction import Turn
from zerochat.group.wire import tlog
from zerochat.group.wire.messages import read_body
from zerochat.group.wire.tlog import (
    LOG_BLOB,
    LOG_POST,
    LogLineBody,
    LogPieceBody,
    LogPostBody,
    LogWantBody,
    PostedBody,
    packed,
    portions,
    unpacked_blob,
)


def hear(turn: Turn, name: str, sender: str, message: Message) -> None:
    """A member says something about a log. Raises RemoteError, and then nothing has changed."""
    group = turn.group(name)
    if not group.view.ledger or sender not in group.view.members or sender in group.quarantine:
        raise Refused(why="words about a log where there is none, or by somebody who is not a member")
    match message.type:
        case tlog.LOG_POST:
            posts = read_body(message, LogPostBody)
            if _knows(turn, name, posts):
                _hear_post(turn, name, sender, posts)
        case tlog.LOG_PIECE:
            piece = read_body(message, LogPieceBody)
            if _knows(turn, name, piece):
                _hear_piece(turn, name, sender, piece)
        case tlog.LOG_LINE:
            line = read_body(message, LogLineBody)
            if _knows(turn, name, line):
                whole = operator.hear_line(turn, name, sender, line)
                if whole is not None:
                    follower.follow_own(turn, name, line.origin, whole)
        case tlog.LOG_BLOB:
            blobs = read_body(message, LogPostBody)
            if _knows(turn, name, blobs):
                follower.hear_blobs(turn, name, sender, blobs)
        case _:
            want = read_body(message, LogWantBody)
            if _knows(turn, name, want):
                _hear_want(turn, name, sender, want)


def _knows(turn: Turn, name: str, body: LogPostBody | LogPieceBody | LogLineBody | LogWantBody) -> bool:
    """Whether we have to do with this log; whoever has heard of its terms before us says it again."""
    if body.group != name:
        raise Refused(why="words about the log of another group")
    if body.origin not in turn.group(name).logs:
        turn.say(Measure("dropped", "UnknownLog"))
        return False
    return True


def _hear_post(turn: Turn, name: str, sender: str, body: LogPostBody) -> None:
    log = turn.group(name).logs[body.origin]
    records = []
    for said in body.entries:
        record = said.record.encode()
        entry = parse_entry(record)
        if entry.author != sender:
            raise Refused(why="an entry in the name of somebody else")
        records.append(record)
        if said.blob and (log.watched is not None or log.operated is not None):
            blob = unpacked_blob(said.blob)
            rate_limits.charge(turn, name, sender, len(blob))
            witnessing.hold(turn, name, entry, blob, asked=False)
    operator.posted(turn, name, body.origin, sender, tuple(records))


def _hear_piece(turn: Turn, name: str, sender: str, body: LogPieceBody) -> None:
    log = turn.group(name).logs[body.origin]
    note = parse_note(body.note.encode())
    records = tuple(text.encode() for text in body.records)
    witnessing.consider(turn, name, body.origin, sender, body.old, records, note)
    if log.rules.quorum.is_whole(note):
        follower.take(turn, name, body.origin, sender, body.old, records, note)


def _hear_want(turn: Turn, name: str, sender: str, body: LogWantBody) -> None:
    log = turn.group(name).logs[body.origin]
    here = log.followed.frontier.size
    if 0 <= body.after < here:
        turn.say(LookUp(name, body.origin, Piece(sender, body.after, ENTRIES_MAX)))
    elif body.after == here and log.followed.note is not None and log.shown_at > body.at:
        operator.hand_out(turn, name, body.origin, sender, here, (), log.followed.note.written())
    if body.records:
        records = tuple(text.encode() for text in body.records)
        for record in records:
            parse_entry(record)
        turn.say(LookUp(name, body.origin, Bytes((sender,), records)))


# --- what the journal says ------------------------------------------------------------------------------------------


def looked_up(turn: Turn, said: LookedUp) -> None:
    """The journal has answered. What was asked may be no matter any more."""
    name, origin = said.group, said.origin
    group = turn.agent.groups.get(name)
    if group is None or group.state != "active" or origin not in group.logs:
        return
    match said.what, said.found:
        case Unplaced(by), Records(records):
            operator.unplaced(turn, name, origin, by, records)
        case Unheld() as what, Hashes() as hashes:
            _held(turn, name, origin, what, hashes)
        case Piece() as what, Stretch() as stretch:
            _piece(turn, name, origin, what, stretch)
        case Bytes() as what, Blobs(found):
            _blobs(turn, name, origin, what, found)
        case Unread(), Lacking() as lacking:
            follower.lacking(turn, name, origin, lacking)
        case Overdue() as what, Messages() as messages:
            submission.overdue(turn, name, origin, what, messages)


def _held(turn: Turn, name: str, origin: str, what: Unheld, found: Hashes) -> None:
    line = witnessing.cosign(turn, name, origin, what, found)
    if line is not None:
        whole = operator.take_line(turn, name, origin, turn.group(name).me, line.size, line.text)
        if whole is not None:
            follower.follow_own(turn, name, origin, whole)
    elif found.hashes and not found.full:
        lacking = [record for record in what.records if parse_entry(record).hash in found.hashes]
        follower.want(turn, name, origin, lacking)


def _piece(turn: Turn, name: str, origin: str, what: Piece, found: Stretch) -> None:
    """Give a piece of the log to whoever wants it; with a checkpoint that is not whole, to a witness alone."""
    group = turn.group(name)
    log, note = group.logs[origin], found.note
    witness = what.member in log.rules.witnesses
    if not note and witness and log.operated is not None:
        asked = operator.note_behind(log.operated, what.after, found.records)
        note = asked.written() if asked is not None else ""
    if not note:
        return
    if what.member != group.me:
        if can_say(turn, name, what.member):
            operator.hand_out(turn, name, origin, what.member, what.after, found.records, note)
        return
    parsed = parse_note(note.encode())
    try:
        witnessing.consider(turn, name, origin, group.me, what.after, found.records, parsed)
        grown = bool(found.note) and follower.take(turn, name, origin, group.me, what.after, found.records, parsed)
    except RemoteError as error:  # a disk that gives back something else than it was given
        turn.say(Measure("dropped", error.code))
        return
    if grown and log.operated is not None:
        hand_round(turn, name, origin, what.after, found.records, note)


def hand_round(turn: Turn, name: str, origin: str, old: int, records: tuple[bytes, ...], note: str) -> None:
    """Give a piece that is whole to all others at once: whoever does not get it asks for it."""
    for member in turn.group(name).others:
        operator.hand_out(turn, name, origin, member, old, records, note)


def _blobs(turn: Turn, name: str, origin: str, what: Bytes, found: tuple[tuple[bytes, bytes], ...]) -> None:
    """Give the bytes behind entries to who is to hold them, or has asked: then it counts as if it had sent them."""
    posts = [PostedBody(record.decode(), packed(blob)) for record, blob in found]
    for member in what.members:
        for portion in portions(posts):
            said = say(turn, name, member, LOG_POST if what.posted else LOG_BLOB, LogPostBody(name, origin, portion))
            if said and not what.posted:
                rate_limits.charge(turn, name, member, sum(len(one.blob) for one in portion))
