"""The heart: `step(agent, stimulus, moment) -> (agent, effects)`.

Pure: no clock, no dice, no disk, no wire. The same function runs behind the sockets of `agent/`, in the simulator and
in the tests. Whatever a peer sends, it returns: a message that is refused leaves the agent exactly as it was and is
counted; a command that cannot be done is answered with its error.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from zerochat.crypto.encoding import b64url, compact_json, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.packer import Packer
from zerochat.errors import (
    AmbiguousGroup,
    GroupExists,
    LocalError,
    NotAMember,
    PostTooLong,
    Refused,
    RemoteError,
    Unauthentic,
    UnknownGroup,
)
from zerochat.group import invite, join, log, peers, sync
from zerochat.group.contact import Reach, new_identity, transport_key
from zerochat.group.effects import (
    Answer,
    Effect,
    GroupCreated,
    Hangup,
    InvitationCreated,
    JoinStarted,
    Left,
    Measure,
    Notify,
    Posted,
    Refuse,
    Result,
    Revoke,
)
from zerochat.group.envelope import key_of, open_first
from zerochat.group.event import GENESIS, HEADER_BYTES_MAX, LEAVE, POST, POST_BYTES_MAX, RECORD_BYTES_MAX, Event
from zerochat.group.membership import check_control, resolve_view
from zerochat.group.notices import ViewChanged
from zerochat.group.state import Agent, Chain, Group, Profile
from zerochat.group.stimuli import (
    AcceptInvitation,
    Ask,
    Command,
    CreateGroup,
    CreateInvitation,
    LeaveGroup,
    LinkDown,
    LinkUp,
    Moment,
    Recalled,
    Received,
    SendPost,
    Started,
    Stimulus,
    TimerFired,
)
from zerochat.group.turn import Turn
from zerochat.group.wire import EVENT, SYNC, EventBody, SyncBody, read_body
from zerochat.names import checked_name

LEAVE_MS_MAX = 20_000
"""How long a leaver stays to repeat its farewell to whoever has not acknowledged it."""


def step(
    agent: Agent, stimulus: Stimulus, moment: Moment, packers: Mapping[str, Packer] = PACKERS
) -> tuple[Agent, list[Effect]]:
    """Advance the agent by one stimulus. Never raises for anything that a peer or a person can cause.

    `packers` are the envelopes that there are; the agent's state says which one it uses.
    """
    turn = Turn(agent, moment, packers)
    try:
        match stimulus:
            case Ask(ticket, command):
                turn.say(Answer(ticket, _obey(turn, command)))
            case Started(pair, queue, server_key):
                _start(turn, Reach(pair, queue, server_key))
            case Received(link, envelope, handle):
                _receive(turn, link, envelope, handle)
            case LinkUp(link):
                _link(turn, link, up=True)
            case LinkDown(link):
                _link(turn, link, up=False)
            case TimerFired(key):
                _timer(turn, key)
            case Recalled(group, member, records):
                if group in agent.groups:
                    sync.recalled(turn, group, member, records)
            case _:
                assert_never(stimulus)
    except RemoteError as error:
        if isinstance(stimulus, Ask):
            raise  # nobody at this machine can cause that: it is a fault of ours
        return agent, [Measure("dropped", error.code)]
    except LocalError as error:
        assert isinstance(stimulus, Ask)
        return agent, [Refuse(stimulus.ticket, error)]
    return turn.agent, turn.effects


# --- commands -------------------------------------------------------------------------------------------------------


def find_group(agent: Agent, wanted: str) -> Group:
    """The group with this name, this id, or an id that begins so. Raises UnknownGroup or AmbiguousGroup."""
    if wanted in agent.groups:
        return agent.groups[wanted]
    named = [group for group in agent.groups.values() if group.name == wanted]
    # A group that one has left keeps its name only as long as nobody else needs it.
    found = [group for group in named if group.state != "left"] or named
    if not found and len(wanted) >= 4:
        found = [group for name, group in agent.groups.items() if name.startswith(wanted)]
    if not found:
        raise UnknownGroup(group=wanted)
    if len(found) > 1:
        raise AmbiguousGroup(group=wanted)
    return found[0]


def _obey(turn: Turn, command: Command) -> Result:
    match command:
        case CreateGroup(name, label):
            return GroupCreated(_create(turn, checked_name(name, "group"), checked_name(label, "name")))
        case CreateInvitation(wanted, lifetime_s, uses):
            group = find_group(turn.agent, wanted)
            return InvitationCreated(group.id, invite.invite(turn, group, lifetime_s, uses))
        case AcceptInvitation(invitation, label):
            return JoinStarted(join.accept(turn, invitation, checked_name(label, "name")))
        case SendPost(wanted, text):
            return _post(turn, find_group(turn.agent, wanted), text)
        case LeaveGroup(wanted):
            return Left(_leave(turn, find_group(turn.agent, wanted)))
        case _:
            assert_never(command)


def _create(turn: Turn, name: str, label: str) -> str:
    """Found a group: its genesis event is its name for ever."""
    if any(group.name == name and group.state != "left" for group in turn.agent.groups.values()):
        raise GroupExists(group=name)
    assert turn.agent.reach is not None
    seed = turn.moment.random(32)
    contact, profile = new_identity(turn.moment.random, turn.agent.reach), Profile()
    now = max(1, turn.now)
    body = {
        "name": name,
        "keys": profile.keys,
        "path": profile.path,
        "accountability": profile.accountability,
        "nonce": b64url(turn.moment.random(16)),
        "label": label,
        "contact": contact.did,
    }
    genesis = Event("", GENESIS, did_key(ed25519_public(seed)), 1, "", (), (), now, now, body).signed(seed)
    check_control(genesis, {})
    control = {genesis.id: genesis}
    view = resolve_view(control)
    group = Group(
        id=genesis.id,
        name=name,
        profile=profile,
        state="active",
        me=genesis.author,
        seed=seed,
        contact=contact,
        control=control,
        view=view,
        created=genesis.time,
        chains={genesis.author: Chain(1, genesis.id, genesis.lamport)},
        lamport=genesis.lamport,
        heads=(genesis.id,),
        named=(genesis.id,),
    )
    turn.put(group)
    log.remember(turn, group.id, genesis, late=False)
    turn.timer("gossip", group.id, sync.GOSSIP_MS)
    turn.say(Notify(ViewChanged(group.id)))
    return group.id


def _post(turn: Turn, group: Group, text: str) -> Posted:
    if group.state != "active":
        raise NotAMember(group=group.name)
    size = len(text.encode("utf-8", "surrogatepass"))
    # Line ends and control characters take two to six bytes each as JSON.
    if size > POST_BYTES_MAX or len(compact_json(text)) > RECORD_BYTES_MAX - HEADER_BYTES_MAX:
        raise PostTooLong(size=size, limit=POST_BYTES_MAX)
    event = log.append(turn, group.id, POST, {"text": text})
    return Posted(group.id, event.id, event.seq, event.lamport)


def _leave(turn: Turn, group: Group) -> str:
    """Say goodbye and go; asked a second time, go although nobody has heard it."""
    if group.state == "leaving":
        _settle(turn, group.id, forced=True)
        return group.id
    if group.state != "active":
        raise NotAMember(group=group.name)
    log.append(turn, group.id, LEAVE, {})
    turn.edit(group.id, state="leaving")
    joins = {k: replace(j, seated=True) if j.group == group.id else j for k, j in turn.agent.joins.items()}
    turn.change(joins=joins)
    turn.timer("leave", group.id, LEAVE_MS_MAX)
    _settle(turn, group.id)
    return group.id


def _settle(turn: Turn, name: str, final: bool = False, forced: bool = False) -> None:
    """A leaver goes for good when everybody has heard of it, or after a while when somebody has, who tells the others.

    As long as nobody has, it stays, over restarts too: else the others would wait for it for ever.
    """
    group = turn.group(name)
    if group.state != "leaving":
        return
    untold = [member for member in group.others if member in group.peers and sync.lacks(group, member)]
    if final and untold and len(untold) == len(group.others):
        turn.timer("leave", name, LEAVE_MS_MAX)
    elif final or forced or not untold:
        for link, open_ in turn.agent.invitations.items():
            if open_.group == name:
                turn.say(Revoke(open_.knock_key))
                turn.change(invitations={k: v for k, v in turn.agent.invitations.items() if k != link})
        for member, peer in group.peers.items():
            turn.say(Hangup(peer.link))
            if not peers.opens_an_invitation(turn, transport_key(member)):
                turn.say(Revoke(transport_key(member)))
        # What the peers had acknowledged stays: it says who has what was said.
        turn.edit(name, state="left", relationships={}, limbo={}, waiting={})
        turn.say(Notify(ViewChanged(name)))


# --- inputs ---------------------------------------------------------------------------------------------------------


def _start(turn: Turn, reach: Reach) -> None:
    """The sockets are there: let everybody in who may, and dial everybody whom we know."""
    turn.change(reach=reach, up=frozenset())
    for name, group in turn.agent.groups.items():
        if group.state == "left":
            continue
        for member in sorted(group.peers):
            peers.dial(turn, name, member)
            peers.ask_again(turn, name, member)
            if member in group.view.former:
                peers.part(turn, name, member)
        turn.timer("gossip", name, sync.RETRY_MS)
        if group.owed:
            turn.timer("acknowledge", name, sync.QUIET_MS)
        if group.state == "leaving":
            turn.timer("leave", name, LEAVE_MS_MAX)
    for link in list(turn.agent.invitations):
        invite.admit_knock(turn, link)
    for link in list(turn.agent.joins):
        join.resume(turn, link)


def _whose(agent: Agent, link: bytes) -> tuple[str, str] | None:
    """The group and the member behind a link."""
    for name, group in agent.groups.items():
        for member, peer in group.peers.items():
            if peer.link == link:
                return name, member
    return None


def _receive(turn: Turn, link: bytes, envelope: bytes, handle: bytes | None) -> None:
    if link in turn.agent.invitations:
        invite.hear_knock(turn, link, envelope, handle)
        return
    if link in turn.agent.joins:
        join.hear_answer(turn, link, envelope)
        return
    whose = _whose(turn.agent, link)
    if whose is None:
        raise Unauthentic()
    _hear_member(turn, *whose, envelope)


def _hear_member(turn: Turn, name: str, member: str, envelope: bytes) -> None:
    """An envelope from another member of a group: the group's own messages, or the exchange that precedes them."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    if relationship is not None and relationship.established:
        try:
            mode, message = group.mode.open(envelope, relationship, turn.packer)
        except Unauthentic:
            pass
        else:
            turn.edit(name, mode=mode)
            peers.greeted(turn, name, member)
            match message.type:
                case kind if kind == EVENT:
                    log.hear(turn, name, member, read_body(message, EventBody))
                case kind if kind == SYNC:
                    log.hear_sync(turn, name, member, read_body(message, SyncBody))
                case _:
                    pass  # a complete, or a word of a later version: nothing to do, and no harm
            _settle(turn, name)
            _progress(turn, name)
            return
    keys = [key_of(group.contact)] + ([key_of(relationship.mine)] if relationship else [])
    peers.hear_exchange(turn, name, member, open_first(keys, envelope, turn))
    _progress(turn, name)


def _link(turn: Turn, link: bytes, up: bool) -> None:
    agent = turn.agent
    if up == (link in agent.up):
        return
    turn.change(up=agent.up | {link} if up else agent.up - {link})
    if link in agent.joins:
        if up:
            join.link_up(turn, link)
        return
    whose = _whose(agent, link)
    if whose is not None:
        name, member = whose
        (peers.link_up if up else peers.link_down)(turn, name, member)
        _progress(turn, name)


def _progress(turn: Turn, name: str) -> None:
    for link, one in turn.agent.joins.items():
        if one.group == name and not one.seated:
            join.progress(turn, link)


def _timer(turn: Turn, key: str) -> None:
    """A timer that was set in an earlier turn; what it was for may be gone by now."""
    kind, _, rest = key.partition(" ")
    name, *more = rest.split(" ")
    if kind in ("invitation", "join", "seated"):
        link = bytes.fromhex(name)
        if kind == "invitation":
            invite.expire(turn, link)
        elif kind == "join":
            join.knock(turn, link)
        else:
            join.progress(turn, link, final=True)
        return
    group = turn.agent.groups.get(name)
    if group is None or group.state == "left":
        return
    match kind:
        case "acknowledge":
            sync.acknowledge(turn, name)
        case "repair":
            sync.repair(turn, name)
        case "view":
            sync.compare_views(turn, name)
        case "gossip":
            sync.gossip(turn, name)
        case "meet":
            peers.ask_again(turn, name, more[0])
        case "farewell":
            peers.farewell(turn, name, more[0])
        case "leave":
            _settle(turn, name, final=True)
        case _:
            raise Refused(why=f"an unknown timer {kind}")
