"""Joining and leaving in small histories of two or three cores."""

from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.small_world import PERFECT, Small
from zerochat.agent.storage.state_parts import changes
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public, x25519_public
from zerochat.didcomm.did import new_peer4
from zerochat.didcomm.invitation import parse_invitation
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols.ack import empty
from zerochat.errors import GroupExists, InvitationExpired, NotAMember, Refused, RemoteError, Unauthentic
from zerochat.group.effects import CommandDone, CommandFailed
from zerochat.group.engine import step
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import ADD, LEAVE, Event
from zerochat.group.inputs import (
    AcceptInvitation,
    CommandInput,
    CreateGroup,
    LeaveGroup,
    Received,
    SendPost,
    StepContext,
)
from zerochat.group.joining import admission, joiner, welcome
from zerochat.group.links import outbox, rate_limits
from zerochat.group.links.contact import sign_consent, sign_possession, transport_public
from zerochat.group.links.relationship import Relationship, pack, pack_end, unpack
from zerochat.group.membership import Policy, check_control, heads_of, missing, resolve_view
from zerochat.group.membership.resolve import ViewBuilder
from zerochat.group.state import Claim
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import Run, write_runs
from zerochat.group.wire.messages import JOIN_REQUEST, WELCOME, EventsBody
from zerochat.limits import MEMBERS_MAX_BY_PATH
from zerochat.sim import SIMULATED_PACKERS, Faults, TransparentPacker


def test_welcome_events_are_not_resent(monkeypatch):
    """In concurrent joins, views differ for a while; but all joiners have the events of the welcome."""
    sent: list[tuple[str, str, str]] = []

    def send(tx, name, member, events):
        sent.extend((tx.group(name).me, member, event.id) for event in events)
        return outbox.send_events(tx, name, member, events)

    monkeypatch.setattr(acknowledgements, "outbox", SimpleNamespace(**vars(outbox) | {"send_events": send}))
    world = Small(13)
    group = world.found()
    for name in ("n1", "n2", "n3", "n4"):
        assert world.join(name, world.invite(group)).phase == "joined"
    before, sent[:] = set(world.group("n0").control), []
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=400)
    invitation = world.invite(group, uses=8)
    for number in range(5, 13):
        world.run_command(f"n{number}", AcceptInvitation(invitation, f"n{number}"))
    world.run(for_ms=70_000)
    assert len({world.group(name).view.checksum for name in world.nodes}) == 1
    assert all(len(world.group(name).links.peers) == 12 for name in world.nodes)
    assert sent and not [one for one in sent if one[2] in before]


def test_three_members_connect():
    world = Small()
    group = world.found()
    assert world.join("n1", world.invite(group)).phase == "joined"
    last = world.join("n2", world.invite(group, "n1"))
    assert (last.phase, last.connected, last.members) == ("joined", 2, 2)
    views = {world.group(name).view.checksum for name in world.nodes}
    assert len(views) == 1
    world.run_command("n2", SendPost(group, "hello"))
    world.run(for_ms=5_000)
    world.check()
    assert all(any(b"hello" in row.record for row in node.log) for node in world.nodes.values())


def test_invitation_did_is_rotated_away():
    world = Small(2)
    invitation = world.invite(world.found())
    world.join("n1", invitation)
    (theirs,) = world.group("n1").links.relationships.values()
    (mine,) = world.group("n0").links.relationships.values()
    assert invitation.did not in (theirs.theirs, theirs.mine.did, mine.theirs, mine.mine.did)
    assert theirs.theirs == mine.mine.did and mine.theirs == theirs.mine.did


def test_invitation_is_used_up():
    world = Small()
    invitation = world.invite(world.found())
    world.join("n1", invitation)
    last = world.join("n2", invitation)
    assert (last.phase, last.error) == ("failed", "JoinFailed")
    assert "used already" in last.text and not world.nodes["n2"].agent.groups


def test_invitation_for_two_admits_two():
    world = Small()
    invitation = world.invite(world.found(), uses=2)
    assert world.join("n1", invitation).phase == world.join("n2", invitation).phase == "joined"


def test_expired_invitation_admits_no_joiner():
    world = Small(2, "didcomm/v2")
    invitation = world.invite(world.found(), lifetime_s=10)
    world.run(for_ms=11_000)
    assert x25519_public(invitation.join_secret_key()) not in world.nodes["n0"].allowed_clients
    assert not world.nodes["n0"].agent.invitations
    last = world.join("n1", invitation)
    assert last.phase == "failed" and "no answer from" in last.text
    with pytest.raises(InvitationExpired):
        parse_invitation(invitation.code(), world.now // 1000)


def test_taken_name_can_be_changed():
    world = Small(2)
    invitation = world.invite(world.found())
    last = world.join("n1", invitation, "N0")
    assert last.phase == "failed" and "--name" in last.text
    assert world.join("n1", invitation, "somebody").phase == "joined"


def test_unanswered_join_can_be_retried():
    world = Small(2)
    invitation = world.invite(world.found())
    door = dict(world.nodes["n0"].allowed_clients)
    world.nodes["n0"].allowed_clients.clear()
    assert "no answer from" in world.join("n1", invitation).text
    world.nodes["n0"].allowed_clients.update(door)
    assert world.join("n1", invitation).phase == "joined"


def test_double_and_own_joins_are_rejected():
    world = Small(2)
    group = world.found()
    invitation = world.invite(group, uses=2)
    assert isinstance(world.run_command("n0", AcceptInvitation(invitation, "n0")), CommandFailed)
    world.join("n1", invitation)
    assert isinstance(world.run_command("n1", AcceptInvitation(invitation, "n1")), CommandFailed)
    other = world.invite(group)
    last = world.join("n1", other)
    assert (last.phase, last.error) == ("failed", "AlreadyMember")


def test_leaver_may_return_as_new_member():
    world = Small()
    group = world.found()
    world.join("n1", world.invite(group))
    world.join("n2", world.invite(group))
    before = world.group("n1").me
    before_key = world.group("n0").view.members[before].transport
    assert before_key in world.nodes["n0"].allowed_clients
    world.run_command("n1", LeaveGroup(group))
    world.run(for_ms=30_000)
    assert world.group("n1").state == "left"
    for name in ("n0", "n2"):
        assert before not in world.group(name).view.members
        assert before not in world.group(name).links.peers
    answer = world.run_command("n1", SendPost(group, "still here?"))
    assert isinstance(answer, CommandFailed) and isinstance(answer.error, NotAMember)
    assert before_key not in world.nodes["n0"].allowed_clients
    assert world.join("n1", world.invite(group, "n2")).phase == "joined"
    assert world.group("n1").me != before and world.group("n1").state == "active"
    world.run_command("n1", SendPost(group, "back again"))
    world.run(for_ms=30_000)
    assert all(any(b"back again" in row.record for row in world.nodes[name].log) for name in world.nodes)
    assert len({world.group(name).view.checksum for name in world.nodes}) == 1


def test_leaver_gets_no_later_posts():
    world = Small()
    group = world.found()
    world.join("n1", world.invite(group))
    world.join("n2", world.invite(group))
    world.run_command("n1", LeaveGroup(group))
    world.run(for_ms=30_000)
    world.run_command("n0", SendPost(group, "among us"))
    world.run(for_ms=30_000)
    assert not any(b"among us" in row.record for row in world.nodes["n1"].log)
    assert any(b"among us" in row.record for row in world.nodes["n2"].log)


def test_leaver_stays_until_acknowledged():
    world = Small()
    group = world.found()
    world.join("n1", world.invite(group))
    world.join("n2", world.invite(group))
    leaver = world.group("n1").me
    world.faults = Faults(loss=1, duplication=0, delay_ms_max=5)
    world.run_command("n1", LeaveGroup(group))
    world.run(for_ms=120_000)
    assert world.group("n1").state == "leaving"
    before = dict(world.nodes["n1"].agent.groups)
    after, _ = deliver(world, "n1", CommandInput(99, LeaveGroup(group)))
    assert after.groups[group].state == "left", "asked twice, it goes unheard"
    assert world.nodes["n1"].agent.groups == before
    world.faults = PERFECT
    world.run(for_ms=120_000)
    assert world.group("n1").state == "left"
    assert all(leaver in world.group(name).view.former for name in ("n0", "n2"))


def test_busy_author_still_retransmits():
    """A member whose queue is down while its link is up must not wait for silence."""
    world = Small(2)
    group = world.found()
    world.join("n1", world.invite(group))
    world._publish = lambda node, published: None  # type: ignore[method-assign]
    for n in range(40):
        world.run_command("n0", SendPost(group, f"{n}"))
        world.run(for_ms=500)
    assert sum(row.type == "post" for row in world.nodes["n1"].log) > 30


def test_two_invitations_make_one_member():
    world = Small(2)
    group = world.found()
    first, second = world.invite(group), world.invite(group)
    world.run_command("n1", AcceptInvitation(first, "n1"))
    world.run_command("n1", AcceptInvitation(second, "n1 again"))
    world.run(for_ms=70_000)
    phases = sorted(notice.phase for who, notice in world.told if notice.phase in ("joined", "failed"))
    assert phases == ["failed", "joined"]
    assert len(world.group("n0").view.members) == 2


def test_group_name_is_unique_locally():
    world = Small(1)
    world.found()
    answer = world.run_command("n0", CreateGroup("friends", "n0", world.envelope))
    assert isinstance(answer, CommandFailed) and isinstance(answer.error, GroupExists)


def test_groups_on_one_agent_are_independent():
    world = Small()
    first = world.found()
    second = world.run_command("n0", CreateGroup("others", "n0", world.envelope)).result.group
    world.join("n1", world.invite(first))
    world.join("n1", world.invite(second))
    world.join("n2", world.invite(second))
    world.run_command("n1", LeaveGroup(first))
    world.run(for_ms=30_000)
    world.run_command("n0", SendPost(second, "still together"))
    world.run(for_ms=5_000)
    for name in ("n1", "n2"):
        assert any(b"still together" in row.record for row in world.nodes[name].log if row.group == second)
    keys = [g.me for g in world.nodes["n1"].agent.groups.values()]
    assert len(set(keys)) == 2, "one key for each group, or the groups could be linked"


# --- what nobody may do ---------------------------------------------------------------------------------------------


def deliver(world, name, stimulus):
    """One step without performing its effects."""
    node = world.nodes[name]
    return step(node.agent, stimulus, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)


@pytest.mark.parametrize("envelope", ["didcomm/v2", TransparentPacker.name])
def test_junk_on_links_changes_nothing(envelope):
    world = Small(envelope=envelope)
    group = world.found()
    invitation = world.invite(group, uses=2)
    world.join("n1", invitation)
    agent = world.nodes["n0"].agent
    links = [peer.link for peer in world.group("n0").links.peers.values()] + list(agent.invitations) + [b"?" * 16]
    junk = [b"", b"{}", b"[" * 60_000, b"\xff" * 100, b'{"protected":""}', b"null", b'["a","b","c","d"]']
    for link in links:
        for envelope in junk:
            after, effects = deliver(world, "n0", Received(link, envelope, b"handle"))
            assert after == agent
            assert [type(e).__name__ for e in effects] == ["Rejected"]


def test_full_replay_changes_nothing():
    frames = []

    class Recording(Small):
        def _frame(self, name, stimulus):
            frames.append((name, stimulus))
            super()._frame(name, stimulus)

    world = Recording()
    group = world.found()
    world.join("n1", world.invite(group))
    world.join("n2", world.invite(group, "n1"))
    world.run_command("n1", SendPost(group, "once"))
    world.run(for_ms=10_000)
    logs = {name: list(node.log) for name, node in world.nodes.items()}
    for name, stimulus in frames:
        world.process(name, stimulus)
    world.run(for_ms=60_000)
    assert {name: node.log for name, node in world.nodes.items()} == logs
    world.check()


def test_member_cannot_forge_events():
    world = Small()
    group = world.found()
    world.join("n1", world.invite(group))
    world.join("n2", world.invite(group))
    victim, forger = world.group("n1"), world.group("n2")
    forged = Event(group, "post", victim.me, 1, "", (), (), world.now, world.now, {"text": "forged"})
    tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    run = msgspec.convert(write_runs([forged])[0], Run)
    with pytest.raises(Refused):
        receiving.receive_events(tx, group, forger.me, EventsBody(forger.view.checksum, [], runs=[run]))


@pytest.fixture
def founded():
    """A group of two, and a third key pair outside of it."""
    world = Small()
    group = world.found()
    world.join("n1", world.invite(group))
    return world, world.group("n0"), world.group("n1")


def control_event(group, kind, body, **changes):
    fields = {
        "group": group.id,
        "type": kind,
        "author": group.me,
        "seq": group.seq + 1,
        "pre": group.log.chains[group.me].head_id if group.me in group.log.chains else "",
        "deps": heads_of(group.control),
        "conc": (),
        "lamport": group.log.lamport + 1,
        "time": 1,
        "body": body,
    }
    return Event(**{**fields, **changes})


def test_adding_requires_consent(founded):
    _world, alice, _bob = founded
    (added,) = [event for event in alice.control.values() if event.type == ADD]
    stranger = did_key(ed25519_public(b"\x07" * 32))
    forged = control_event(alice, ADD, {**added.body, "member": stranger}).signed(alice.seed)
    with pytest.raises(Unauthentic):
        check_control(forged, alice.control)


def test_consent_is_bound_to_adder(founded):
    """A consent in the log cannot be reused by another adder or in another past."""
    _world, alice, bob = founded
    (added,) = [event for event in alice.control.values() if event.type == ADD]
    replayed = control_event(bob, ADD, dict(added.body), deps=(alice.id,)).signed(bob.seed)
    with pytest.raises(RemoteError):
        check_control(replayed, {alice.id: alice.control[alice.id]})
    rival = control_event(alice, ADD, dict(added.body), deps=(alice.id,)).signed(alice.seed)
    twice = {**alice.control, rival.id: rival}
    assert resolve_view(twice).members[bob.me] == alice.view.members[bob.me], "the first of two counts"


def test_group_size_is_limited(founded, monkeypatch):
    monkeypatch.setitem(MEMBERS_MAX_BY_PATH, "mesh", 2)
    _world, alice, _bob = founded
    seed = b"\x07" * 32
    eve = did_key(ed25519_public(seed))
    keys = {"transport": transport_public(seed), "possession": sign_possession(seed, alice.id, eve)}
    consent = sign_consent(seed, alice.id, alice.me, eve, "eve", alice.contact.did, "writer", keys["transport"])
    body = {"member": eve, "label": "eve", "contact": alice.contact.did, "role": "writer", "consent": consent, **keys}
    with pytest.raises(Refused, match="no permission"):
        check_control(control_event(alice, ADD, body).signed(alice.seed), alice.control)


def test_long_history_arrives_in_parts(monkeypatch):
    monkeypatch.setattr(welcome, "WELCOME_BYTES_MAX", 2_000)
    world = Small()
    group = world.found()
    assert world.join("n1", world.invite(group)).phase == "joined"
    assert world.join("n2", world.invite(group)).phase == "joined"
    assert len({world.group(name).view.checksum for name in world.nodes}) == 1


def test_key_is_added_once(founded):
    _world, alice, _bob = founded
    (added,) = [event for event in alice.control.values() if event.type == ADD]
    with pytest.raises(Refused):
        check_control(control_event(alice, ADD, dict(added.body)).signed(alice.seed), alice.control)


def test_outsider_cannot_add_or_remove(founded):
    _world, alice, bob = founded
    seed = b"\x07" * 32
    stranger = did_key(ed25519_public(seed))
    with pytest.raises(Refused):
        check_control(control_event(alice, LEAVE, {}, author=stranger).signed(seed), alice.control)
    with pytest.raises(Unauthentic):
        check_control(control_event(alice, LEAVE, {}, author=bob.me).signed(alice.seed), alice.control)


def test_event_older_than_causes_is_rejected(founded):
    _world, alice, _bob = founded
    with pytest.raises(Refused):
        check_control(control_event(alice, LEAVE, {}, lamport=1).signed(alice.seed), alice.control)


def test_view_is_independent_of_arrival_order(founded):
    _world, alice, _bob = founded
    backwards = dict(reversed(alice.control.items()))
    assert resolve_view(backwards) == resolve_view(alice.control) == alice.view
    assert [e.id for e in missing(alice.control, [])] == [e.id for e in missing(backwards, [])]
    assert not missing(alice.control, heads_of(alice.control))


def test_checksum_covers_keys_not_labels(founded):
    _world, alice, _bob = founded
    (added,) = [event for event in alice.control.values() if event.type == ADD]
    renamed = replace(added, body={**added.body, "label": "mallory"})
    changed = ViewBuilder.of({**alice.control, added.id: renamed}).view(heads_of(alice.control))
    assert "mallory" in [member.label for member in changed.members.values()]
    assert changed.checksum == alice.view.checksum


def test_commands_with_one_ticket_return_results():
    world = Small(1)
    after, effects = deliver(world, "n0", CommandInput(7, CreateGroup("friends", "n0", world.envelope)))
    assert [e.ticket for e in effects if isinstance(e, CommandDone)] == [7] and after.groups
    after, effects = deliver(world, "n0", CommandInput(8, SendPost("nowhere", "x")))
    assert after is world.nodes["n0"].agent and [type(e) for e in effects] == [CommandFailed]


# --- hostile joiners and inviters ------------------------------------------------------------------------------------


class Recorded(Small):
    """Envelopes under invitations are recorded for replay."""

    def __init__(self, members=3, envelope=None):
        self.knocks = []
        super().__init__(members, envelope)

    def process(self, name, stimulus):
        if isinstance(stimulus, Received) and stimulus.link in self.nodes[name].agent.invitations:
            self.knocks.append(stimulus)
        super().process(name, stimulus)


def test_leaving_inviter_answers_repeated_request():
    world = Recorded()
    group = world.found()
    world.join("n1", world.invite(group))
    invitation = world.invite(group, uses=2)
    world.knocks.clear()
    world.join("n2", invitation)
    for other in ("n1", "n2"):
        world.nodes[other].allowed_clients.clear()
        for link in list(world.nodes["n0"].connected):
            world._disconnect(world.nodes["n0"], link)
    world.nodes["n0"].dialled.clear()
    world.run(for_ms=10)
    world.run_command("n0", LeaveGroup(group))
    assert world.group("n0").state == "leaving" and world.nodes["n0"].agent.invitations
    for knock in list(world.knocks):
        world.process("n0", knock)
    assert world.group("n0").state == "leaving"


def test_welcome_is_rate_limited(monkeypatch):
    """Amplification: a welcome may be a thousand times larger than its request."""
    monkeypatch.setattr(rate_limits, "JOIN_ENVELOPES_BURST", 1_000)  # or it would soon not be listened to at all
    world = Recorded()
    group = world.found()
    world.join("n1", world.invite(group))
    knocks = list(world.knocks)
    sent = []
    world._frame = lambda name, input_: sent.append(input_.envelope)  # type: ignore[method-assign]
    for _ in range(50):
        for knock in knocks:
            world.process("n0", knock)
    assert len(sent) > 50 and sum(b"/welcome" in each for each in sent) == 1
    world.run(for_ms=admission.WELCOME_INTERVAL_MS)
    for knock in knocks:
        world.process("n0", knock)
    assert sum(b"/welcome" in each for each in sent) == 2


def test_repeated_welcomes_are_charged_to_their_member(monkeypatch):
    monkeypatch.setattr(rate_limits, "JOIN_ENVELOPES_BURST", 1_000)
    monkeypatch.setattr(admission, "WELCOME_INTERVAL_MS", 0)
    monkeypatch.setattr(admission, "WELCOME_EVENT_US", rate_limits.WORK_US_MAX // 16)
    world = Recorded()
    group = world.found()
    world.join("n1", world.invite(group))
    mine, knocks = world.group("n1").me, list(world.knocks)
    before = world.group("n0").links.peers[mine].rate_limit
    assert before.work > rate_limits.WORK_US_MAX - admission.WELCOME_EVENT_US, "the first is free"
    sent = []
    world._frame = lambda name, input_: sent.append(input_.envelope)  # type: ignore[method-assign]
    for _ in range(20):
        for knock in knocks:
            world.process("n0", knock)
    welcomes = [each for each in sent if b"/welcome" in each]
    assert 1 <= len(welcomes) <= 16 // len(world.group("n0").control) + 1, "as many as its work allows"
    limit = world.group("n0").links.peers[mine].rate_limit
    assert limit.work <= 0 and limit.bytes <= before.bytes - sum(map(len, welcomes))


def test_claim_of_foreign_key_gets_no_welcome():
    world = Recorded()
    group = world.found()
    invitation = world.invite(group, uses=2)
    world.join("n1", invitation)
    (link, open_), (mine,) = *world.nodes["n0"].agent.invitations.items(), world.nodes["n1"].agent.joins.values()
    packer = SIMULATED_PACKERS[world.envelope]
    identity, ours = (new_peer4(world.rng.randbytes, []) for _ in range(2))
    thief = Relationship("", identity, ours.did, "1", invitation.did, requester=True)
    claim = Claim(Relationship(mine.me, ours, identity.did, "1", "", requester=False))
    stolen = replace(open_, claims={**open_.claims, identity.short: claim})
    world.nodes["n0"].agent = before = replace(world.nodes["n0"].agent, invitations={link: stolen})
    body = {
        "group": group,
        "member": mine.me,
        "label": mine.label,
        "contact": mine.contact.did,
        "role": "writer",
        "transport": "A" * 43,
        "possession": "A" * 86,
        "consent": "A" * 86,
        "proof": "A" * 86,
    }
    message = Message(type=JOIN_REQUEST, id="1", body=body)
    world.process("n0", Received(link, pack(thief, message, packer, world.rng.randbytes), b"n1 x"))
    assert world.nodes["n0"].agent == before


def test_envelopes_of_an_inviter_are_rate_limited(monkeypatch):
    """It is no member, so nothing limited what it sends; each is opened, and a part of a welcome is stored."""
    world = Small(2)
    group = world.run_command("n0", CreateGroup("friends", "n0", policy=Policy(join="ask"))).result.group
    world.run_command("n1", AcceptInvitation(world.invite(group), "n1"))
    world.run(for_ms=3_000)
    (link,) = world.nodes["n1"].agent.joins
    (claim,) = world.nodes["n0"].agent.invitations[link].claims.values()
    opened, written = [0], 0

    def counted(*given):
        opened[0] += 1
        return unpack(*given)

    monkeypatch.setattr(joiner, "unpack", counted)
    parts = rate_limits.ENVELOPES_MAX + 100
    for number in range(parts):
        body = {"group": group, "start_seq": 0, "part": number % 200, "parts": 200}
        body["runs"] = write_runs(list(world.group("n0").control.values()))
        packer, before = SIMULATED_PACKERS[world.envelope], world.nodes["n1"].agent
        message = Message(WELCOME, str(number), body)
        world.process("n1", Received(link, pack(claim.relationship, message, packer, world.rng.randbytes)))
        written += sum(len(value or b"") for _, value in changes(before, world.nodes["n1"].agent))
    assert opened[0] == rate_limits.ENVELOPES_MAX
    record = len(next(iter(world.group("n0").control.values())).record)
    assert written <= 2 * parts * record, "each part is stored by itself"


def test_inviter_can_end_join():
    world = Small(2)
    invitation = world.invite(world.found())
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    asking = lambda: any(join.state == "requesting" for join in world.nodes["n1"].agent.joins.values())  # noqa: E731
    assert world.run(asking, for_ms=10_000)
    (link,) = world.nodes["n1"].agent.joins
    (open_,) = world.nodes["n0"].agent.invitations.values()
    (claim,) = open_.claims.values()
    packer = SIMULATED_PACKERS[world.envelope]
    last = pack_end(claim.relationship, empty(world.rng.randbytes), packer, world.rng.randbytes, world.now // 1000)
    world.process("n1", Received(link, last))
    assert world.nodes["n1"].agent.joins[link].state == "failed"
    assert world.told[-1][1].error == "JoinFailed"
