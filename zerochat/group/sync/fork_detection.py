"""Finding where an author has told two members different things, although both have its chain up to the same place.

Posts of pairwise groups are not signed: an author can say one thing to us and another one to somebody else, in the same
place of its chain, and neither of the two can tell. Their syncs can (`tips.py`). Where they differ twice, some seconds
apart, one member asks the other to compare what both have been told since both were in the group, by range-based set
reconciliation (`negentropy.py`). The one who asks remembers how far it is, the other one nothing; the log is read by
the machine room. What comes out is the first place of the author's chain in which we have something that the other one
lacks. Then that one is asked what it has there: it is looked at, and taken into nobody's log.

It proves nothing, not even to us: the author may be two-faced, or the member lies. A person is told who says so, once
for each author and member.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import Compare, Measure, Notify
from zerochat.group.event_log.event import Event
from zerochat.group.inputs import Compared
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import pack
from zerochat.group.notifications import Differs
from zerochat.group.state import Comparison, Difference, Group
from zerochat.group.sync import acknowledgements, negentropy, pull_requests
from zerochat.group.sync.chain_heads import differing
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import COMPARE, COMPARE_BYTES_MAX, CompareBody, SyncBody

AGAIN_MS = 3_000
"""Two members differ when they do so twice, with at least so much time in between."""
EVERY_MS = 600_000
"""We begin at most one comparison with a member in this time."""
TIME_MS = EVERY_MS // 2
"""After so long one is over, wherever it is."""
ROUNDS_MAX = 8
"""Questions in one comparison; and answers to a member in half of EVERY_MS."""
LOOKED_UP_MAX = 4_096
"""Events that a member lacks, by one of its answers: the first so many are looked up. It may claim to have nothing."""
DIFFERENCES_MAX, DIFFERENCES_OF_ONE_MAX = 64, 8
"""How many are kept, and how many that one member has told of: nobody can fill all the room with lies."""


# --- noticing -------------------------------------------------------------------------------------------------------


def hear_tips(turn: Turn, name: str, member: str, salt: str, body: SyncBody) -> None:
    """A member says how far it has all chains and, shortly, what is at their ends; `salt`: the id of that message.
    Raises Malformed."""
    group = turn.group(name)
    if not body.tips or body.view != group.view.checksum or not _beside_us(group, member):
        return
    one = group.comparisons.get(member, Comparison())
    told = differing(group, member, salt, body.have, body.tips)
    authors = tuple(author for author in told if _may_note(group, author, member))
    if not authors:
        if one.noticed:
            _put(turn, name, member, replace(one, noticed=0))
    elif 0 <= turn.now - one.begun < EVERY_MS:
        pass
    elif not 0 < one.noticed <= turn.now:
        _put(turn, name, member, replace(one, noticed=turn.now))
        turn.timer("tips", f"{name} {member}", AGAIN_MS)  # it notices too, and says its own once more
    elif turn.now >= one.noticed + AGAIN_MS and mediator_mail.reachable(turn, name, member):
        begun = Comparison(begun=turn.now, authors=authors, asked=one.asked, answers=one.answers)
        _put(turn, name, member, begun)
        turn.say(Compare(name, member, "", True, _since(group, member), b"", authors))


def tell(turn: Turn, name: str, member: str) -> None:
    """Say our own tips to a member who may see the same."""
    if _beside_us(turn.group(name), member):
        acknowledgements.send_sync(turn, name, member)


def _beside_us(group: Group, member: str) -> bool:
    """Whether both of us are members, as far as we know."""
    known = member in group.view.members and group.me in group.view.members
    return known and member in group.peers and member not in group.quarantine


def _since(group: Group, member: str) -> int:
    """The Lamport time from which on both have been told everything, or have been there to ask for it."""
    return max(group.view.members[did].joined for did in (group.me, member))


def _may_note(group: Group, author: str, member: str) -> bool:
    """Whether it would be news that a member has something else of an author, and there is room for it."""
    theirs = [one for one in group.differences if one.member == member]
    room = len(group.differences) < DIFFERENCES_MAX and len(theirs) < DIFFERENCES_OF_ONE_MAX
    return room and all(one.author != author for one in theirs)


def _put(turn: Turn, name: str, member: str, one: Comparison) -> None:
    group = turn.group(name)
    rest = {did: other for did, other in group.comparisons.items() if did in group.view.members}
    turn.edit(name, comparisons={**rest, member: one})


# --- asking and answering -------------------------------------------------------------------------------------------


def hear(turn: Turn, name: str, member: str, message: Message, body: CompareBody) -> None:
    """A member asks us to compare, or answers. Raises RemoteError."""
    group = turn.group(name)
    if body.group != name or not _beside_us(group, member):
        raise Refused(why="a comparison of another group, or with somebody who is not a member")
    one, said = group.comparisons.get(member, Comparison()), b64url_bytes(body.message)
    if message.thid:
        if not (one.thread and message.thid == one.thread and _under_way(turn, one)):
            raise Refused(why="an answer to nothing that we have asked")
        _put(turn, name, member, replace(one, thread=""))  # once: to look at it takes time
        turn.say(Compare(name, member, one.thread, True, _since(group, member), said, one.authors))
        return
    if body.since < group.view.members[member].joined:
        raise Refused(why="a comparison of what the member may not have")
    if not 0 <= turn.now - one.asked < EVERY_MS // 2:
        one = replace(one, asked=turn.now, answers=0)
    if one.answers >= ROUNDS_MAX:
        raise Refused(why="too many comparisons")
    _put(turn, name, member, replace(one, answers=one.answers + 1))
    turn.say(Compare(name, member, message.id, False, body.since, said, ()))


def compared(turn: Turn, found: Compared) -> None:
    """The log has been looked at: say what comes of it."""
    name, member = found.group, found.member
    group = turn.agent.groups.get(name)
    relationship = group.relationships.get(member) if group is not None else None
    if group is None or relationship is None or not relationship.established or not _beside_us(group, member):
        return
    if not found.ours:
        if found.message:
            _send(turn, name, member, found, found.thread)
        else:
            turn.say(Measure("dropped", Malformed.__name__))
        return
    one = group.comparisons.get(member, Comparison())
    if one.thread or not _under_way(turn, one):
        return
    one = replace(one, places=_first_of_each((*one.places, *found.places)))
    if found.message and one.rounds < ROUNDS_MAX:
        thread = _send(turn, name, member, found)
        _put(turn, name, member, replace(one, thread=thread, rounds=one.rounds + 1))
        return
    _put(turn, name, member, replace(one, authors=()))
    fetch(turn, name, member)


def _under_way(turn: Turn, one: Comparison) -> bool:
    return bool(one.authors) and 0 <= turn.now - one.begun < TIME_MS


def _send(turn: Turn, name: str, member: str, found: Compared, thid: str | None = None) -> str:
    body = {"group": name, "since": found.since, "message": b64url(found.message)}
    message = Message(type=COMPARE, id=new_id(turn.moment.random), thid=thid, body=body)
    relationship, packer = turn.group(name).relationships[member], turn.packer_of(name)
    mediator_mail.send(turn, name, member, pack(relationship, message, packer, turn.moment.random))
    return message.id


# --- what the other one has there -----------------------------------------------------------------------------------


def fetch(turn: Turn, name: str, member: str) -> None:
    """Ask a member what it has in the places where we have something that it lacks."""
    one = turn.group(name).comparisons.get(member)
    if one is None or not one.places:
        return
    if not 0 <= turn.now - one.begun < TIME_MS:
        _put(turn, name, member, replace(one, places=()))
        return
    pull_requests.give_up(turn, name)
    if pull_requests.free(turn, name, member):
        want = [(author, seq - 1, seq) for author, seq, _ in one.places]
        pull_requests.ask_for(turn, name, member, want, len(want), purpose="compare")
    turn.timer("compare", f"{name} {member}", pull_requests.PATIENCE_MS + 1)


def hear_other(turn: Turn, name: str, member: str, events: Sequence[Event]) -> None:
    """What a member has in the places that we have asked it for."""
    one = turn.group(name).comparisons.get(member)
    if one is None or not one.places:
        return
    ours = {(author, seq): event for author, seq, event in one.places}
    for event in events:
        place = event.author, event.seq
        if ours.get(place, event.id) != event.id:
            note(turn, name, *place, member)
    _put(turn, name, member, replace(one, places=()))
    turn.timer("tips", f"{name} {member}", AGAIN_MS)  # it may want to know too


def note(turn: Turn, name: str, author: str, seq: int, member: str, by: str = "") -> None:
    """A member has something else than we there; `by`: who has handed ours over, if its author has not."""
    group = turn.group(name)
    if _may_note(group, author, member):
        turn.edit(name, differences=(*group.differences, Difference(author, seq, member, turn.now, by)))
        turn.say(Notify(Differs(name, author, seq, member, by)))


# --- for whoever reads the log --------------------------------------------------------------------------------------


def look(asked: Compare, items: negentropy.Items, place_of: Callable[[str], tuple[str, int] | None]) -> Compared:
    """What comes of a comparison with these `items`: the posts of our log from `asked.since` on.

    `place_of`: the author and the place of an event, by its id; None where that is not its author's own word.
    """

    def outcome(message: bytes, places: Iterable[tuple[str, int, str]] = ()) -> Compared:
        return Compared(asked.group, asked.member, asked.thread, asked.ours, asked.since, message, tuple(places))

    try:
        if not asked.ours:
            return outcome(negentropy.answer(items, asked.message, COMPARE_BYTES_MAX))
        if not asked.message:
            return outcome(negentropy.ask(items))
        learned = negentropy.learn(items, asked.message, COMPARE_BYTES_MAX)
    except Malformed:
        return outcome(b"")
    lacking = map(b64url, learned.have[:LOOKED_UP_MAX])
    found = [(place, name) for name in lacking if (place := place_of(name)) is not None]
    places = [(author, seq, name) for (author, seq), name in found if author in asked.authors]
    return outcome(learned.ask or b"", _first_of_each(places))


def _first_of_each(places: Iterable[tuple[str, int, str]]) -> tuple[tuple[str, int, str], ...]:
    """Of each author the first place."""
    first = {author: (author, seq, event) for author, seq, event in sorted(places, reverse=True)}
    return tuple(sorted(first.values()))
