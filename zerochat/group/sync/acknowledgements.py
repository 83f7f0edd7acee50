"""Who has what: cumulative acknowledgements, repair by the author, and agreement on the view.

One message says it all, `sync`: how far its sender has every chain, where its own chain begins for the reader, and
which membership events it knows. It answers and it asks. Acknowledgements ride on posts; alone they go only to the
authors concerned, after a quiet moment, so n members cost n of them and not n squared. An author repeats what a member
has not acknowledged, in order, ever more slowly, for as long as it takes; what the membership events of two members
differ by goes across as soon as either notices.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.didcomm.message import Message, new_id
from zerochat.group import effects
from zerochat.group.effects import Notify, Recall
from zerochat.group.event_log.event import ADD, load_event
from zerochat.group.links import mediator_mail, mediator_receipts, outbox
from zerochat.group.links.outbox import have
from zerochat.group.links.relationship import pack
from zerochat.group.membership import add_of, attestation, missing
from zerochat.group.notifications import Receipt, ViewChanged
from zerochat.group.signed_streams import publisher, statements
from zerochat.group.state import Group
from zerochat.group.sync.chain_heads import tips
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import HEIGHTS_MAX, STATUS, SYNC

QUIET_MS = 150
"""How long an acknowledgement waits for a post to ride on, give or take a half: drawn by lot each time, so that the
moment of an answer tells nobody for certain what it answers."""
RETRY_MS, RETRY_MS_MAX = 2_000, 30_000
"""The first repair comes this long after sending; each further one waits twice as long, up to the greatest."""
MAIL_RETRY_MS, MAIL_RETRY_MS_MAX = 20_000, 24 * 3_600_000
"""The same where a mediator is in between: it keeps what its owner has not fetched, so repeating only piles it up."""
REPAIR_EVENTS_MAX = 64
"""Events in one repair (UPSYCLE's answer to a need has the same bound); the acknowledgement asks for the next."""
LOSS_MS = 8_000
"""Whoever has lost something says so for as long at least."""
NEED_MS = 500
"""Whatever somebody else has already mostly comes by itself within this time, give or take: 0.8 to 1.5 times that."""
ASK_MS = 500
"""At most one answer to a differing view in this time, per member."""
COMPARE_MAX = 4
"""Members asked at once, of those who have told of another view than ours."""
COVER_MS = 20_000
"""The mean time from one message that means nothing to the next, where cover is wanted."""
GOSSIP_MS = 60_000
"""How often, give or take a half, everybody's state is told to one member although nothing seems to be missing."""


# --- what the others have ---------------------------------------------------------------------------------------------


def note(turn: Turn, name: str, sender: str, view: str, theirs: Sequence[int]) -> None:
    """Take in what an authentic message says of its sender's state."""
    group = turn.group(name)
    peer = group.peers[sender]
    turn.edit_peer(name, sender, heard=turn.now, view=view)
    if view != peer.view:
        turn.say(Notify(ViewChanged(name)))
    if view == group.view.checksum:
        acknowledged(turn, name, sender, dict(zip(group.view.members, theirs, strict=False)))
    else:
        spread_view(turn, name)


def note_loss(turn: Turn, name: str, member: str, view: str, theirs: Sequence[int], at: int) -> None:
    """A member tells its state, as it was `at` that time by its own clock (UTC ms). Where it goes on to have less of
    our chain than it had said before, it has gone back to an older copy of its profile: take it at its word, and bring
    it what it has lost.

    Once is not enough: what it says on two ways may overtake itself. An old word that somebody says again counts for
    nothing. Nor is it believed often: it costs it nothing.
    """
    group = turn.group(name)
    peer = group.peers[member]
    if view != group.view.checksum or at <= peer.said_at:
        return
    upto = dict(zip(group.view.members, theirs, strict=False)).get(group.me, 0)
    less = upto < peer.acked.get(group.me, 0)
    if less and peer.less_at and turn.now >= peer.less_at + LOSS_MS:
        turn.edit_peer(name, member, said_at=at, less_at=0, acked={group.me: upto}, tries=0, retry_at=turn.now)
        mediator_receipts.lose(turn, name, member)
        repair(turn, name)
    else:
        turn.edit_peer(name, member, said_at=at, less_at=(peer.less_at or turn.now) if less else 0)


def acknowledged(turn: Turn, name: str, member: str, reported: dict[str, int]) -> None:
    """A member says up to where it has these authors' chains."""
    group = turn.group(name)
    peer = group.peers[member]
    known, acked = peer.acked.get, dict(peer.acked)
    for author, upto in [one for one in reported.items() if one[1] > known(one[0], 0)]:  # nearly all of it is old
        after = acked.get(author, 0)
        if author == group.me:  # nobody can have more of our own chain than there is
            upto, after = min(upto, group.seq), max(after, peer.base)
        if author != member and upto > after:
            acked[author] = upto
            turn.say(Notify(Receipt(name, member, author, after, upto)))
            if author == group.me:
                turn.say(effects.Receipt(name, member, author, upto, turn.now, _way(turn, name, member)))
            elif upto > group.chain(author).seq:  # mostly it is on its way
                turn.timer("need", name, NEED_MS * 4 // 5 + turn.moment.random(1)[0] * NEED_MS // 365, keep=True)
    if acked != peer.acked:
        progress = acked.get(group.me, 0) > peer.acked.get(group.me, 0)
        # Whoever has all of a repair gets the next one at once, and not when some timer fires.
        at_once = peer.tries > 0 and acked.get(group.me, 0) >= peer.repaired
        fields: dict[str, Any] = {"tries": 0, "retry_at": turn.now + (0 if at_once else RETRY_MS)} if progress else {}
        turn.edit_peer(name, member, acked=acked, **fields)
        if progress and at_once:
            repair(turn, name)


def _way(turn: Turn, name: str, member: str) -> str:
    return "mediator" if mediator_mail.by_mail(turn, name, member) else "link"


# --- acknowledging --------------------------------------------------------------------------------------------------


def owe(turn: Turn, name: str, author: str) -> None:
    """Something of `author` came: say so soon."""
    group = turn.group(name)
    if not group.owed:
        turn.timer("acknowledge", name, QUIET_MS // 2 + turn.moment.random(1)[0] * QUIET_MS // 255)
    turn.edit(name, owed=group.owed | {author})


def acknowledge(turn: Turn, name: str) -> None:
    """The quiet moment is over: tell each author what we have of it."""
    group = turn.group(name)
    turn.edit(name, owed=frozenset())
    for author in sorted(group.owed):
        if author in group.peers:
            send_sync(turn, name, author)


def send_sync(turn: Turn, name: str, member: str, unreached: Sequence[str] = ()) -> None:
    """Tell one member everything that we have, want and owe; nothing happens while it cannot be reached. `unreached`:
    the members of whom it is asked to see to it that they get what we cannot bring to them (`relay.py`)."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    if relationship is None or not relationship.established or turn.agent.reach is None:
        return
    if not mediator_mail.reachable(turn, name, member):
        return
    message = message_for(turn, name, member, unreached)
    mediator_mail.send(turn, name, member, pack(relationship, message, turn.packer_of(name), turn.moment.random))


def message_for(turn: Turn, name: str, member: str, unreached: Sequence[str] = ()) -> Message:
    """What there is to say to one member, which counts as said."""
    group = turn.group(name)
    peer = group.peers[member]
    heads, word = attestation.own_word(group)
    body: dict[str, Any] = {
        "group": name,
        "view": group.view.checksum,
        "have": have(group),
        "since": peer.base,
        "yours": group.chain(member).sure,
        "heads": list(heads),
        "word": word,
        "reach": _reach(turn, group),
    }
    if (seen := _seen(group, member)) > body["yours"]:
        body["seen"] = seen
    if peer.view:
        body["told"] = peer.view
    if peer.base_id:
        body["pre"] = peer.base_id
    if lacks(group, member) and not group.mode.signs and (peer.greet or peer.retry_at <= turn.now):
        body["last"] = [group.seq, group.chain(group.me).tip]  # others may have brought it what it has not from us
    if group.limbo.get(member) or member in group.early or member in group.needs:
        body["gap"] = True
    if former := _former(group):
        body["former"] = former
    if group.mode.signs:
        body |= statements.told(turn, name, member)
    if size := adoption.size_now(group):
        body["log"] = size
    if unreached:
        body["unreached"] = [place for place, did in enumerate(group.view.members) if did in unreached]
    body["tips"] = tips(group, salt := new_id(turn.moment.random))
    if peer.greet:
        turn.edit_peer(name, member, greet=False)
    if member in group.owed:
        turn.edit(name, owed=group.owed - {member})
    return Message(type=SYNC, id=salt, body=body)


def _seen(group: Group, member: str) -> int:
    """The last place of a member's chain of which we have anything, be it what waits, what others have brought, or what
    it has signed about who is in."""
    held = group.limbo.get(member)
    waiting = [load_event(one.record) for one in group.waiting.values()]
    signed = [event.seq for event in (*group.control.values(), *waiting) if event.author == member]
    return max(group.chain(member).seq, *signed, max(held.records, default=0) if held is not None else 0)


def _former(group: Group) -> list[list[str | int]]:
    """How far we have the chains of those who have gone: the ones that went last."""
    gone = [(group.chains[did].lamport, did) for did in group.view.former if did in group.chains]
    return [[did, group.chains[did].seq] for _, did in sorted(gone, reverse=True)[:HEIGHTS_MAX]]


def _reach(turn: Turn, group: Group) -> dict[str, Any]:
    """Where we are reached (`messages.ReachBody`)."""
    reach = mediator_mail.own_reach(turn, group.seed)
    body: dict[str, Any] = {
        "pair": str(reach.pair or ""),
        "queue": str(reach.queue or ""),
        "at": max(turn.now, group.lamport),
    }
    if reach.pair:
        body["key"] = b64url(reach.server_key)
    if reach.mail:
        body["mail"] = [{"uri": way.uri, "keys": list(way.routing_keys)} for way in reach.mail]
    return body


def tell_reach(turn: Turn, name: str) -> None:
    """Where we are reached has changed: say so to everybody at once."""
    _say_status(turn, name, {"reach": _reach(turn, turn.group(name))})


def _say_status(turn: Turn, name: str, more: dict[str, Any]) -> None:
    group = turn.group(name)
    body = {"group": name, "runs": [], "view": group.view.checksum, "have": have(group), **more}
    message = Message(type=STATUS, id=new_id(turn.moment.random), body=body)
    outbox.say(turn, name, message, [member for member in group.peers if member in group.view.members])


def ask(turn: Turn, name: str, member: str) -> None:
    """Tell a member our heads so that it sends what we lack; not more often than every ASK_MS."""
    peer = turn.group(name).peers.get(member)
    if peer is not None and turn.now >= peer.asked_at + ASK_MS:
        turn.edit_peer(name, member, asked_at=turn.now)
        send_sync(turn, name, member)


# --- repair ---------------------------------------------------------------------------------------------------------


def lacks(group: Group, member: str) -> bool:
    """Whether a member has not acknowledged everything of ours that is meant for it."""
    peer = group.peers[member]
    return max(peer.acked.get(group.me, 0), peer.base) < group.seq


def expect_acknowledgement(turn: Turn, name: str, seq: int, audience: Iterable[str]) -> None:
    """Fresh events went out, `seq` and later ones: from now on their readers are expected to acknowledge them."""
    group = turn.group(name)
    now, me, up = turn.now, group.me, turn.agent.up
    peers, told, due = dict(group.peers), set[str](), list[int]()
    for member in audience:
        peer = peers[member]
        mailed = peer.link not in up and mediator_mail.way_to(turn, name, member) is not None
        if max(peer.acked.get(me, 0), peer.base) >= seq - 1:
            # Whoever lacked nothing until now gets the full time; whoever lags keeps the deadline it has.
            peers[member] = peer = replace(peer, retry_at=now + (MAIL_RETRY_MS if mailed else RETRY_MS))
        if mailed or peer.link in up:
            told.add(member)
            due.append(peer.retry_at - now)
    turn.edit(name, peers=peers, owed=group.owed - told)
    if due:
        turn.timer("repair", name, min(due))


def _patience(turn: Turn, name: str, member: str, tries: int = 0) -> int:
    """How long to wait for an acknowledgement before the next repair, in ms."""
    if mediator_mail.by_mail(turn, name, member):
        return min(MAIL_RETRY_MS << min(tries, 20), MAIL_RETRY_MS_MAX)
    return min(RETRY_MS << min(tries, 10), RETRY_MS_MAX)


def repair(turn: Turn, name: str) -> None:
    """Repeat to every member that can be reached what it has not acknowledged in time, and set the next timer."""
    group = turn.group(name)
    waits = []
    for member, peer in group.peers.items():
        relationship = group.relationships.get(member)
        if relationship is None or not relationship.established or not mediator_mail.reachable(turn, name, member):
            continue
        lacking = lacks(group, member)
        if not (lacking or publisher.lacks_signature(group, member)) or member not in group.view.members:
            continue
        if peer.retry_at <= turn.now:
            delay = _patience(turn, name, member, peer.tries)
            turn.edit_peer(name, member, retry_at=turn.now + delay, tries=peer.tries + 1)
            if lacking or peer.tries:
                after = max(peer.acked.get(group.me, 0), peer.base)
                turn.say(Recall(name, member, group.me, after, REPAIR_EVENTS_MAX, *publisher.lacked_of(group, member)))
            if peer.tries or not lacking:
                # It may not know yet where our chain begins for it, or that its signature has not come.
                send_sync(turn, name, member)
            waits.append(delay)
        else:
            waits.append(peer.retry_at - turn.now)
    if waits:
        turn.timer("repair", name, min(waits))


def recalled(
    turn: Turn, name: str, member: str, records: Iterable[bytes], messages: Sequence[tuple[int, bytes]]
) -> None:
    """The journal has read our own events back, and what of our stream brings them: send them to the one who lacks
    them."""
    events = [load_event(record) for record in records]
    upto = events[-1].seq if events else 0
    if turn.group(name).mode.signs:
        upto = publisher.repeat(turn, name, member, events, messages)
    else:
        outbox.send(turn, name, member, events)
    if member in turn.group(name).peers:
        turn.edit_peer(name, member, repaired=upto)


def answer_gap(turn: Turn, name: str, member: str) -> None:
    """A member misses something of ours and says so: repeat it now, unless a repair is on its way already."""
    peer = turn.group(name).peers[member]
    # `retry_at` is at least RETRY_MS after the last progress, so this comes once for each.
    if peer.tries == 0 and turn.now >= peer.retry_at - RETRY_MS + ASK_MS and lacks(turn.group(name), member):
        turn.edit_peer(name, member, retry_at=turn.now)
        repair(turn, name)


def answer_lag(turn: Turn, name: str, member: str) -> None:
    """A member who is reached by mail is there again, and lacks something: what was sent meanwhile may be lost, so do
    not wait for as long as for somebody who is away."""
    peer = turn.group(name).peers[member]
    if peer.tries > 0 and mediator_mail.by_mail(turn, name, member) and lacks(turn.group(name), member):
        turn.edit_peer(name, member, tries=1, retry_at=min(peer.retry_at, turn.now + MAIL_RETRY_MS))
        repair(turn, name)


# --- the view -------------------------------------------------------------------------------------------------------


def spread_view(turn: Turn, name: str) -> None:
    """Our view and somebody else's differ: compare in a moment, when the dust has settled."""
    turn.timer("view", name, ASK_MS)


def reconcile(turn: Turn, name: str, member: str, their_heads: Sequence[str]) -> None:
    """A member with another view has told its heads: send what it lacks, and ask for what we lack."""
    group = turn.group(name)
    control, peer = group.control, group.peers[member]
    ahead = any(head not in control for head in their_heads)
    if turn.now >= peer.answered_at + ASK_MS:
        turn.edit_peer(name, member, answered_at=turn.now)
        held = attestation.withheld(group)
        heads = [*their_heads, *_begun(group, member)] if ahead and not peer.answered_at else their_heads
        lacking = [event for event in missing(control, heads) if event.id not in held]
        if len(lacking) > REPAIR_EVENTS_MAX:
            # It may have much of this: it names no heads that it has no room for, none of whom it keeps in quarantine,
            # and we may not know those that it names. So what it really lacks may stand anywhere, and must not wait for
            # ever behind what it has: every other time we begin somewhere by lot.
            begin = int.from_bytes(turn.moment.random(2), "big") % (2 * len(lacking))
            begin = begin if begin < len(lacking) else 0
            lacking = lacking[begin:] + lacking[:begin]
        outbox.send(turn, name, member, lacking[:REPAIR_EVENTS_MAX])
    if ahead:
        ask(turn, name, member)


def _begun(group: Group, member: str) -> list[str]:
    """The events that have brought a member in, or us. It was told all that was before the one, and talks to us because
    it has the other, or else one of its own: so when it first tells more than we know, and we cannot tell what of ours
    is behind that, it is not sent what it has begun with. The next answer leaves nothing out, for whoever has let
    somebody in may have made two events of it."""
    about = member, group.me
    return [name for name, event in group.control.items() if event.type == ADD and add_of(event).member in about]


def compare_views(turn: Turn, name: str) -> None:
    """Tell some members what we know of the view: a few of those who have told of another one since ours last changed,
    or one of those who have said nothing of it yet.

    By lot and not all at once: after a change nobody knows who else has heard of it, and if all told all, each change
    would cost the square of their number. Mostly its author has everybody's word soon, and everybody its author's.
    """
    group = turn.group(name)
    ours = group.view.checksum
    doubtful = [m for m, peer in group.peers.items() if peer.view != ours and mediator_mail.reachable(turn, name, m)]
    differing = [member for member in doubtful if group.peers[member].view]
    dice = int.from_bytes(turn.moment.random(4), "big")
    asked = differing or doubtful
    # In a small group more of them: it costs little, and there are few who could bring it to the rest.
    most = COMPARE_MAX if differing else max(1, 2 * COMPARE_MAX // max(1, len(doubtful)))
    for step in range(min(most, len(asked))):
        send_sync(turn, name, asked[(dice + step) % len(asked)])
    if doubtful:
        turn.timer("view", name, RETRY_MS * 2)


def view_changed(turn: Turn, name: str) -> None:
    """Our view is another one now. What the others told of theirs was before that, unless it is this one."""
    group = turn.group(name)
    ours = group.view.checksum
    peers = {did: peer if peer.view in ("", ours) else replace(peer, view="") for did, peer in group.peers.items()}
    turn.edit(name, peers=peers)
    spread_view(turn, name)


def gossip(turn: Turn, name: str) -> None:
    """Tell one member, drawn by lot, what we have: so a loss at the very end of a conversation is found too."""
    group = turn.group(name)
    reachable = [member for member in group.peers if mediator_mail.reachable(turn, name, member)]
    dice = int.from_bytes(turn.moment.random(4), "big")
    if reachable:
        send_sync(turn, name, reachable[dice % len(reachable)])
    turn.timer("gossip", name, GOSSIP_MS // 2 + dice % GOSSIP_MS)


def gossip_soon(turn: Turn, name: str) -> None:
    """The same in a moment, and not when it would be time."""
    turn.timer("gossip", name, RETRY_MS // 2 + int.from_bytes(turn.moment.random(2), "big") % RETRY_MS)


# --- cover ----------------------------------------------------------------------------------------------------------


def cover(turn: Turn) -> None:
    """Say something that means nothing to everybody, in a frame that is as long as that of a short remark.

    Whoever watches the network still sees who is connected with whom, but no longer for certain that nobody has spoken.
    """
    for name, group in turn.agent.groups.items():
        if group.state == "active":
            _say_status(turn, name, {})
    turn.timer("cover", "", cover_delay(turn))


def cover_delay(turn: Turn) -> int:
    """Until the next time, in ms: exponential, so that when the last one was says nothing about the next."""
    lot = (int.from_bytes(turn.moment.random(4), "big") + 1) / 2**32
    return int(-math.log(lot) * COVER_MS)
