"""Everybody's part of a group's log: it is followed from one whole checkpoint to the next, and what we lack is fetched.

Of messages we lack what has not come by itself; whoever was away when they were said gets them from a witness, though
their author may be gone by now. Of accusations, and of what is said against them, everybody keeps the bytes: without
them nobody could judge.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import RemoteError, Unauthentic
from zerochat.evidence.note import Note, parse_checkpoint
from zerochat.evidence.witness import ENTRIES_MAX, Split, is_kind, parse_entry
from zerochat.group.effects import KeepEntries, KeepNote, LookUp, Measure, Notify
from zerochat.group.notifications import Logged
from zerochat.group.signed_streams import receiver
from zerochat.group.state import Group, Log, Wanted
from zerochat.group.tlog import pending_entries, witness
from zerochat.group.tlog.lookups import Lacking, Piece, Unread
from zerochat.group.tlog.messages import can_say, edit_log, say
from zerochat.group.transaction import Turn
from zerochat.group.wire.tlog import LOG_WANT, WANT_MAX, LogPostBody, LogWantBody, unpacked_blob

WANTED_MAX = 512
"""Entries whose bytes we look for at once; what comes behind them in the log has to wait."""
TRIES_MAX = 8
AGAIN_MS, AGAIN_MS_MAX = 10_000, 600_000
"""Whoever was asked for bytes is given this long, and twice as long each time; then somebody else is asked. After so
many tries others may take its place."""
ASK_MS = 2_000
"""At most one question for more of a log in this time."""
SLACK_MS = 60_000
"""So long after the time for defending is over the clocks of all witnesses have got there too, but for few."""


def follow_own(turn: Turn, name: str, origin: str, note: Note) -> None:
    """A quorum has cosigned what we operate: follow it as all others do. The journal has what it brings."""
    log = turn.group(name).logs[origin]
    size = parse_checkpoint(note.text).size
    if size == log.followed.frontier.size:
        take(turn, name, origin, turn.group(name).me, size, (), note)
        return
    turn.say(KeepNote(name, origin, size, log.rules.quorum.whole_ms(note), note.written()))
    turn.say(LookUp(name, origin, Piece(turn.group(name).me, log.followed.frontier.size, ENTRIES_MAX)))


def take(turn: Turn, name: str, origin: str, sender: str, old: int, records: Sequence[bytes], note: Note) -> bool:
    """Go on to a checkpoint that a quorum has cosigned; whether there was news in it. Raises RemoteError.

    Also where the operator is convicted of two logs: a quorum has one of them at most, and others may have posted in
    that before they knew, for whoever was away.
    """
    log = turn.group(name).logs[origin]
    at = log.rules.quorum.whole_ms(note)
    here, said = log.followed.frontier.size, parse_checkpoint(note.text)
    if said.origin != origin:
        raise Unauthentic()
    if old > here:
        ask(turn, name, origin, sender)
        return False
    try:
        followed = log.followed.followed(tuple(records[here - old :]), note)
    except Split as split:
        witness.keep_split(turn, name, origin, split)
        return False
    if followed is log.followed:
        if said.size != here or at <= log.shown_at or log.shown_at >= log.refresh_at:
            return False
        turn.say(KeepNote(name, origin, here, at, note.written()))
        edit_log(turn, name, origin, followed=replace(followed, note=note), shown_at=at)
        turn.say(Notify(Logged(name, origin, (), here)))
        return True
    fresh, group = tuple(records[here - old :]), turn.group(name)
    me = group.view.known(group.me)
    before = me is not None and log.rules.quorum.time_ms(note) <= me.joined
    _grown(turn, name, origin, said.size, fresh)
    pending_entries.placed(turn, name, {b64url(sha256(record)) for record in fresh}, log.rules.quorum.time_ms(note))
    filed = any(is_kind(record, "accusation") for record in fresh)
    window = log.rules.quorum.time_ms(note) + log.rules.window_ms if filed else 0
    edit_log(turn, name, origin, followed=followed, shown_at=at, refresh_at=max(log.refresh_at, window))
    if before:
        edit_log(turn, name, origin, past=said.size)
    turn.say(KeepNote(name, origin, said.size, at, note.written()))
    read_on(turn, name, origin)
    return True


def _grown(turn: Turn, name: str, origin: str, size: int, records: tuple[bytes, ...]) -> None:
    """The log has these entries more: keep them, and what of ours is among them waits no more."""
    log = turn.group(name).logs[origin]
    here = log.followed.frontier.size
    placed = {b64url(sha256(record)) for record in records}
    waits = {key: one for key, one in log.mine.items() if key not in placed}
    edit_log(turn, name, origin, mine=waits, told=log.told if waits else 0)
    if turn.group(name).stalls:
        turn.edit(name, stalls=0)
    turn.say(KeepEntries(name, origin, here, records))
    turn.say(Notify(Logged(name, origin, tuple(enumerate(records, here)), size)))


def ask(turn: Turn, name: str, origin: str, member: str) -> None:
    """Ask a member for what comes behind what we have of a log."""
    log = turn.group(name).logs[origin]
    if 0 <= turn.now - log.asked_at < ASK_MS:
        return
    body = LogWantBody(name, origin, log.followed.frontier.size, log.shown_at)
    if say(turn, name, member, LOG_WANT, body):
        edit_log(turn, name, origin, asked_at=turn.now)


def told(turn: Turn, name: str, member: str, size: int) -> None:
    """A member says that the log by the terms in force is so long."""
    terms = turn.group(name).view.terms
    log = turn.group(name).logs.get(terms.rules.origin) if terms is not None else None
    if log is not None and size > log.followed.frontier.size:
        ask(turn, name, log.rules.origin, member)


def somebody(turn: Turn, name: str, log: Log, but: str = "") -> str | None:
    """Whom to ask about a log: its operator or one of its witnesses, by lot, of those who are there; else anybody."""
    group = turn.group(name)
    keepers = dict.fromkeys((log.rules.operator, *log.rules.witnesses))
    for among in (keepers, group.view.members):
        able = [did for did in among if did not in (group.me, but) and can_say(turn, name, did)]
        if able:
            return able[turn.moment.random(1)[0] % len(able)]
    return None


# --- what we lack ---------------------------------------------------------------------------------------------------


def read_on(turn: Turn, name: str, origin: str) -> None:
    """Look at the entries that we have not looked at yet, if there is room for what we lack of them."""
    log = turn.group(name).logs[origin]
    hoped = sum(one.tries < TRIES_MAX for one in log.wanted.values())
    if log.read < log.followed.frontier.size and hoped + ENTRIES_MAX <= WANTED_MAX:
        turn.say(LookUp(name, origin, Unread(turn.group(name).me, log.read, ENTRIES_MAX)))


def lacking(turn: Turn, name: str, origin: str, found: Lacking) -> None:
    """What of these entries is not here."""
    group = turn.group(name)
    log = group.logs[origin]
    if found.upto <= log.read:
        return
    edit_log(turn, name, origin, read=found.upto)
    old = found.upto <= log.past
    want(turn, name, origin, [record for record in found.records if _is_useful(group, record, old=old)])
    read_on(turn, name, origin)


def _is_useful(group: Group, record: bytes, *, old: bool) -> bool:
    """Whether we could do something with what an entry speaks of: a message that nobody can open here is of none."""
    entry = parse_entry(record)
    return witness.may_be_held(entry) and (entry.kind != "message" or (entry.author in group.streams and not old))


def want(turn: Turn, name: str, origin: str, records: Sequence[bytes]) -> None:
    """Look for what these entries speak of, and ask for it."""
    log = turn.group(name).logs[origin]
    hashes = {parse_entry(record).hash: record for record in records}
    wanted = {**log.wanted, **{hash_: Wanted(one) for hash_, one in hashes.items() if hash_ not in log.wanted}}
    for hash_ in [one for one in wanted if wanted[one].tries >= TRIES_MAX]:
        if len(wanted) <= WANTED_MAX:
            break
        del wanted[hash_]
    wanted = dict(list(wanted.items())[: WANTED_MAX + ENTRIES_MAX])
    if wanted != log.wanted:
        edit_log(turn, name, origin, wanted=wanted)
    seek(turn, name, origin)


def seek(turn: Turn, name: str, origin: str) -> None:
    """Ask somebody for what it is time to ask for: for accusations first, since whoever is accused has little time, and
    else in the order of the log."""
    log = turn.group(name).logs[origin]
    due = [hash_ for hash_, one in log.wanted.items() if one.at <= turn.now or one.at > turn.now + AGAIN_MS_MAX]
    due = sorted(due, key=lambda hash_: not is_kind(log.wanted[hash_].record, "accusation"))[:WANT_MAX]
    whom = somebody(turn, name, log) if due else None
    if whom is None:
        return
    first = parse_entry(log.wanted[due[0]].record).author
    if log.wanted[due[0]].tries % 4 == 3 and can_say(turn, name, first):
        whom = first
    body = LogWantBody(name, origin, records=[log.wanted[hash_].record.decode() for hash_ in due])
    if say(turn, name, whom, LOG_WANT, body):
        asked = {hash_: _asked(turn, log.wanted[hash_]) for hash_ in due}
        edit_log(turn, name, origin, wanted={**log.wanted, **asked})


def _asked(turn: Turn, one: Wanted) -> Wanted:
    return replace(one, tries=one.tries + 1, at=turn.now + min(AGAIN_MS << min(one.tries, 10), AGAIN_MS_MAX))


def hear_blobs(turn: Turn, name: str, sender: str, body: LogPostBody) -> None:
    """What we have asked for has come, or something else, which is passed over. Raises Malformed."""
    for said in body.entries:
        group = turn.group(name)
        log = group.logs[body.origin]
        record = said.record.encode()
        entry = parse_entry(record)
        if entry.hash not in log.wanted or log.wanted[entry.hash].record != record:
            continue
        blob = unpacked_blob(said.blob)
        if not entry.is_of(blob):
            continue
        edit_log(turn, name, body.origin, wanted={one: it for one, it in log.wanted.items() if one != entry.hash})
        if log.watched is not None or entry.kind != "message":
            witness.hold(turn, name, entry, blob, asked=True)
        if entry.kind == "message" and entry.author != group.me:
            _read(turn, name, entry.author, blob)
        elif entry.kind != "message":
            turn.say(Notify(Logged(name, body.origin, (), log.followed.frontier.size)))
    log = turn.group(name).logs[body.origin]
    seek(turn, name, body.origin)
    read_on(turn, name, body.origin)
    if not log.wanted:
        witness.tell(turn, name, body.origin, full=False)


def _read(turn: Turn, name: str, author: str, written: bytes) -> None:
    """Take in a message of somebody's stream that a witness had."""
    before, said = turn.agent, len(turn.effects)
    try:
        receiver.hear_posted(turn, name, author, written)
    except RemoteError as error:
        turn.agent = before
        del turn.effects[said:]
        turn.say(Measure("dropped", error.code))
