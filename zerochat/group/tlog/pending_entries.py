"""Entries of ours that wait for their place in a log; and that a subscription to our stream is over, which is one."""

from collections.abc import Collection

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.evidence.handshake import Close
from zerochat.evidence.witness import Entry, entry_of
from zerochat.group.effects import KeepBlob, KeepStatement
from zerochat.group.state import Ended, Mine
from zerochat.group.tlog.adoption import ENDED_MAX, LOGS_MAX, SOON_MS, digest_of, is_current, replaced
from zerochat.group.tlog.messages import edit_log
from zerochat.group.transaction import Turn

MINE_MAX = 256
"""Of one log. What does not go in waits in the journal."""
CLOSES_MAX = 64
"""And so many more that say that a subscription is over: nothing else makes up for these."""


def add(turn: Turn, name: str, origin: str, entry: Entry, blob: bytes) -> bool:
    """Keep an entry of ours until it has its place, and what it speaks of; False: too many wait."""
    if not keep(turn, name, origin, entry):
        return False
    turn.say(KeepBlob(name, entry.hash, turn.group(name).me, blob, turn.now, asked=True))
    return True


def keep(turn: Turn, name: str, origin: str, entry: Entry, most: int = MINE_MAX) -> bool:
    """The same where what it speaks of is here already."""
    log, record = turn.group(name).logs[origin], entry.record()
    key = b64url(sha256(record))
    if key not in log.mine:
        if len(log.mine) >= most:
            return False
        edit_log(turn, name, origin, mine={**log.mine, key: Mine(record, turn.now)})
        turn.timer("log", name, SOON_MS)
    return True


def end(turn: Turn, name: str, member: str) -> bool:
    """A member has gone, or its subscription can be owed no longer: that is over as soon as the log has it, and what it
    was to get until now is owed still. False: too much waits for that log."""
    group = turn.group(name)
    one = group.subscribers.get(member)
    origin = next((origin for origin, log in group.logs.items() if one and digest_of(log.rules) == one.rules), None)
    if one is None or origin is None:
        return False
    replaced(turn, name, member, one)
    group = turn.group(name)
    said = Close(time=max(1, turn.now), accept=one.digest, by=group.me).signed(group.seed)
    entry = entry_of("close", group.me, said.written())
    kept = keep(turn, name, origin, entry, MINE_MAX + CLOSES_MAX)
    if kept:
        until = group.stream.time if group.stream is not None else 0
        ended = Ended(member, one.rules, one.begun, until, b64url(sha256(entry.record())))
        rest = [other for other in turn.group(name).ended if (other.member, other.begun) != (member, one.begun)]
        turn.edit(name, ended=(*rest, ended)[-ENDED_MAX:])
        turn.say(KeepStatement(name, member, "close", said.digest, said.written(), turn.now))
        turn.say(KeepBlob(name, entry.hash, group.me, said.written(), turn.now, asked=True))
    return kept


def end_old(turn: Turn, name: str) -> None:
    """The log that is forgotten with the next terms: whoever hears us by its rules yet, since it has been away all the
    time, asks anew when it is back. What is owed by a log that nobody keeps could not be posted."""
    group = turn.group(name)
    if len(group.logs) < LOGS_MAX:
        return
    oldest = min(group.logs.values(), key=lambda log: (log.lamport, log.rules.origin))
    if is_current(group, oldest):
        return
    digest = digest_of(oldest.rules)
    for member in [did for did, one in group.subscribers.items() if one.rules == digest][:CLOSES_MAX]:
        if not end(turn, name, member):
            return
        rest = {did: one for did, one in turn.group(name).subscribers.items() if did != member}
        turn.edit(name, subscribers=rest)


def placed(turn: Turn, name: str, keys: Collection[str], at: int) -> None:
    """These of ours have their place in a log since `at` (UTC ms, by the witnesses): where they say that a subscription
    is over, what was said until then is owed by it, and no more."""
    group = turn.group(name)
    if any(one.close in keys for one in group.ended):
        until = max(at, group.stream.time if group.stream is not None else 0)
        ended = [replace(one, until=until, close="") if one.close in keys else one for one in group.ended]
        turn.edit(name, ended=tuple(ended))
