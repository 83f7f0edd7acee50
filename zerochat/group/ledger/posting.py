"""What of ours has to be in the log: kept, and said again and again until it has its place."""

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, NotAMember
from zerochat.evidence.case import DEFENCE_BYTES_MAX
from zerochat.evidence.witness import ENTRY_BYTES_MAX, Entry, entry_of
from zerochat.group.effects import Changed, KeepBlob
from zerochat.group.find import find_group
from zerochat.group.ledger.adopting import SOON_MS, current
from zerochat.group.ledger.terms import NoLog
from zerochat.group.state import Mine
from zerochat.group.stimuli import PostToLog
from zerochat.group.turn import Turn

MINE_MAX = 256
"""Entries of ours that wait for a place: as many as an operator takes of one member at once, and four times more."""


class NoTerms(LocalError):
    """{group} is not accountable yet: it takes three members to witness, and terms that say who they are."""


class LogFull(LocalError):
    """So much waits for a place in the log of {group} that nothing more can be posted now. It goes on as soon as its
    witnesses answer again."""

    retry = "later"


class NotForTheLog(LocalError):
    """This cannot be posted: {why}."""


def post(turn: Turn, wanted: PostToLog) -> Changed:
    """Keep an entry that a face asks for, and post it. Raises LocalError."""
    group = find_group(turn.agent, wanted.group)
    if group.state != "active":
        raise NotAMember(group=group.name)
    if not group.view.ledger:
        raise NoLog(group=group.name)
    now = current(group)
    origin = wanted.origin or (now.rules.origin if now is not None else "")
    if origin not in group.logs:
        raise NoTerms(group=group.name)
    if not 0 < len(wanted.blob) <= DEFENCE_BYTES_MAX:
        raise NotForTheLog(why=f"it has {len(wanted.blob)} bytes, and may have {DEFENCE_BYTES_MAX}")
    entry = entry_of(wanted.kind, group.me, wanted.blob, wanted.about)
    if wanted.kind == "defence":
        entry = entry.signed(group.seed)
    if len(entry.record()) > ENTRY_BYTES_MAX:
        raise NotForTheLog(why="what it is about is too long")
    if not add(turn, group.id, origin, entry, wanted.blob):
        raise LogFull(group=group.name)
    return Changed(group.id)


def add(turn: Turn, name: str, origin: str, entry: Entry, blob: bytes) -> bool:
    """Keep an entry of ours until it has its place; False: too many wait."""
    group = turn.group(name)
    log, record = group.logs[origin], entry.record()
    key = b64url(sha256(record))
    if key in log.mine:
        return True
    if len(log.mine) >= MINE_MAX:
        return False
    mine = {**log.mine, key: Mine(record, turn.now)}
    turn.edit(name, logs={**group.logs, origin: replace(log, mine=mine)})
    turn.say(KeepBlob(name, entry.hash, group.me, blob, turn.now))
    turn.timer("log", name, SOON_MS)
    return True
