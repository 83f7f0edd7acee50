"""A joiner whose inviter and members present different histories (section 7.2 of the thesis)."""

import json
import random
from collections.abc import Mapping
from contextlib import suppress

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.small_world import Small
from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.group.effects import CommandDone, CommandFailed, Dial
from zerochat.group.event_log import own_events
from zerochat.group.event_log.event import ADD, LABEL, Event, load_event
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    CreateGroup,
    CreateInvitation,
    DismissDoubts,
    LinkDown,
    LinkUp,
    PingPeer,
    Received,
    RemoveMember,
    SendPost,
    StepContext,
)
from zerochat.group.joining import member_connections
from zerochat.group.links import rate_limits
from zerochat.group.links.contact import new_identity, sign_consent, sign_possession, transport_public
from zerochat.group.membership import Policy, attestation, fork_proof, heads_of, resolve_view
from zerochat.group.notifications import ForkDetected, ViewDisagreement
from zerochat.group.state import Agent, Group
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import ForkProofBody
from zerochat.sim import SIMULATED_PACKERS, Faults, Violation, World

EVE_SEED = b"\x0e" * 32
EVE = did_key(ed25519_public(EVE_SEED))
ALICE, BOB, CAROL, TRAP = "n0", "n1", "n2", "n3"


class Byzantine(Small):
    """Alice founds a group, Bob is a member, Carol will join. Dials to Eve's address are recorded. Alice can
    equivocate: envelopes from Bob go to one core of hers, all others to another one."""

    def __init__(self, policy: Policy | None = None, members: int = 4) -> None:
        self.other: Agent | None = None
        """What Bob knows as Alice; None: she has one face."""
        self.turned_to_bob = False
        self.mute: set[str] = set()
        """Those to whom Alice says nothing."""
        self.trapped: list[str] = []
        self.disagreements: list[tuple[str, ViewDisagreement]] = []
        self.alice, self.bobs_link = "", b""
        super().__init__(members)
        founded = self.run_command(ALICE, CreateGroup("friends", "alice", self.envelope, policy=policy or Policy()))
        assert isinstance(founded, CommandDone)
        self.id = founded.result.group
        assert self.join(BOB, self.invite(self.id), "bob").phase == "joined"

    # --- what is noticed ----------------------------------------------------------------------------------------

    def _perform(self, node, effect):
        notice = getattr(effect, "notification", None)
        if isinstance(effect, Dial) and effect.pair == self.nodes[TRAP].address:
            self.trapped.append(node.name)
        if isinstance(notice, ViewDisagreement):
            self.disagreements.append((node.name, notice))
        elif not (isinstance(notice, ForkDetected) and notice.author == self.alice):  # rightly accused
            super()._perform(node, effect)

    # --- Alice's faces ------------------------------------------------------------------------------------------

    def process(self, name, stimulus):
        link = getattr(stimulus, "link", None)
        if name != ALICE or self.other is None:
            super().process(name, stimulus)
        elif isinstance(stimulus, Received | LinkUp | LinkDown) and link == self.bobs_link:
            self._turned(lambda: super(Byzantine, self).process(name, stimulus))
        else:
            super().process(name, stimulus)
            self._tell_bob()

    def _turned(self, act):
        alice = self.nodes[ALICE]
        for turned in (True, False):
            other = self.other
            assert other is not None
            alice.agent, self.other, self.turned_to_bob = other, alice.agent, turned
            if turned:
                act()

    def _tell_bob(self):
        """After Alice has added Carol: send Bob that event, and nothing else."""
        lying = self.group(ALICE)
        known = {one.body["member"] for one in self.other.groups[self.id].control.values() if one.type == ADD}
        for event in lying.control.values():
            if event.type == ADD and event.author == lying.me and event.body["member"] not in {*known, EVE}:
                self._turned(lambda body=event.body: self._append(ADD, body))

    def _append(self, kind, body):
        alice = self.nodes[ALICE]
        tx = Transaction(alice.agent, StepContext(self.now, self.rng.randbytes), SIMULATED_PACKERS)
        own_events.append(tx, self.id, kind, body)
        own_events.publish_batch(tx, self.id)
        alice.agent = tx.agent
        for effect in tx.effects:
            self._perform(alice, effect)

    def _frame(self, name, stimulus):
        from_alice = self.group_links(name).get(stimulus.link) == self.alice if self.alice else False
        if from_alice and (name in self.mute or (self.other is not None and (name == BOB) != self.turned_to_bob)):
            return
        super()._frame(name, stimulus)

    def group_links(self, name) -> Mapping[bytes, str]:
        groups = self.nodes[name].agent.groups.values()
        return {peer.link: did for group in groups for did, peer in group.links.peers.items()}

    # --- forging ------------------------------------------------------------------------------------------------

    def eve(self, *, consent: bool = True, skip: int = 0) -> Event:
        """Alice's signed add event for Eve, which no other member has."""
        group = self.group(ALICE)
        reach = self.nodes[TRAP].agent.reach
        assert reach is not None
        identity = new_identity(self.rng.randbytes, reach, self.envelope)
        keys = ("eve", identity.did, "writer", transport_public(EVE_SEED))
        seed = EVE_SEED if consent else b"\x0f" * 32
        body = {
            "member": EVE,
            "label": "eve",
            "contact": identity.did,
            "role": "writer",
            "transport": transport_public(EVE_SEED),
            "possession": sign_possession(EVE_SEED, group.id, EVE),
            "consent": sign_consent(seed, group.id, group.me, EVE, *keys),
        }
        chain, deps = group.log.chains[group.me], heads_of(group.control)
        event = Event(
            *(
                group.id,
                ADD,
                group.me,
                chain.seq + 1 + skip,
                chain.head_id,
                deps,
                (),
                group.log.lamport + 1,
                self.now,
                body,
            )
        )
        return event.signed(group.seed)

    def sneak(self, *events: Event, is_split: bool) -> None:
        """Give these events to Alice, and not to Bob."""
        group, alice = self.group(ALICE), self.nodes[ALICE]
        self.alice, self.bobs_link = group.me, group.links.peers[self.group(BOB).me].link
        if is_split:
            self.other = alice.agent
        control = {**group.control, **{event.id: event for event in events}}
        chain = replace(
            group.log.chains[group.me], seq=events[-1].seq, head_id=events[-1].id, lamport=events[-1].lamport
        )
        changed = replace(
            group,
            control=control,
            view=resolve_view(control),
            log=replace(
                group.log,
                chains={**group.log.chains, group.me: chain},
                lamport=events[-1].lamport,
                heads=heads_of(control),
            ),
        )
        alice.agent = replace(alice.agent, groups={self.id: changed})

    # --- looking ------------------------------------------------------------------------------------------------

    def carol_joins(self, through=ALICE):
        return self.join(CAROL, self.invite(self.id, through), "carol")

    def carols_join(self):
        (one,) = self.nodes[CAROL].agent.joins.values()
        return one

    def carols_words(self):
        return [notice for who, notice in self.disagreements if who == CAROL]


# --- the thesis' scenarios ------------------------------------------------------------------------------------------


def test_scenario_1_unconsenting_member_is_not_dialled():
    """The founder gives a joiner a view with a member that never consented."""
    world = Byzantine()
    world.sneak(world.eve(consent=False), is_split=True)
    last = world.carol_joins()
    assert last.phase == "failed" and "invalid evidence" in last.text
    assert not world.nodes[CAROL].agent.groups and CAROL not in world.trapped


@pytest.mark.parametrize("skip", [0, 1], ids=["two events in one place", "a place left out"])
def test_scenario_2_unconfirmed_member_gets_nothing(skip):
    """Alice has secretly added Eve, and adds Carol; Bob has Carol's event, and not Eve's."""
    world = Byzantine()
    world.sneak(world.eve(skip=skip), is_split=True)
    assert world.carol_joins().phase == "joined"
    carol = world.group(CAROL)
    assert carol.trust.quarantine == (EVE,) and EVE in carol.view.members and EVE not in carol.links.peers
    world.run_command(CAROL, SendPost(world.id, "hello"))
    world.run(for_ms=120_000)
    assert CAROL not in world.trapped and BOB not in world.trapped
    assert any(b"hello" in row.record for row in world.nodes[BOB].log), "the others are talked to"
    said = world.carols_words()
    assert [notice.member for notice in said if notice.member] == [carol.view.members[world.alice].did]
    (general,) = [notice for notice in said if not notice.member]
    assert "bob and alice disagree about" in general.text
    bob = world.group(BOB)
    assert EVE not in bob.view.members and EVE not in bob.view.former, "what nobody confirms is not handed on"
    assert list(bob.trust.fork_proofs) == [world.alice], "but for the proof of it"
    first, second = (load_event(record) for record in bob.trust.fork_proofs[world.alice])
    assert first.author == second.author == world.alice and first.id != second.id
    assert [(who, n.member) for who, n in world.disagreements if who == BOB] == [(BOB, world.alice)], "once"


def test_member_of_both_histories_is_confirmed():
    """Seed 602 of the byzantine simulator: Dave stayed in quarantine for good, since Bob had another add event."""
    world = Byzantine(members=5)
    world.sneak(world.eve(), is_split=True)
    assert world.join("n4", world.invite(world.id, ALICE), "dave").phase == "joined"
    dave = world.group("n4").me
    assert world.carol_joins().phase == "joined"
    world.run(for_ms=300_000)
    carol, bob = world.group(CAROL), world.group(BOB)
    assert carol.trust.quarantine == (EVE,)
    silent = {member: word for member, word in carol.trust.attestations.items() if member != dave}
    begun = world.group("n4").joining.event  # as if Alice had brought her in without a look at what Bob knows
    assert begun not in bob.control and dave in bob.view.members, "else this shows nothing"
    assert attestation.unconfirmed_members(
        replace(carol, trust=replace(carol.trust, attestations=silent), joining=replace(carol.joining, event=begun)),
        late=True,
    ) == (EVE,)


def test_warning_stays_until_dismissed():
    world = Byzantine()
    world.sneak(world.eve(), is_split=True)
    world.carol_joins()
    world.run(for_ms=60_000)

    def doubts(name=CAROL):
        return [(doubt.name.split()[0], doubt.member) for doubt in attestation.warnings_of(world.group(name))]

    told = [notice.text for notice in world.carols_words()]
    both = [("forked", world.alice), ("disputed", "")]
    assert doubts() == both and sorted(told) == sorted(one.text for one in attestation.warnings_of(world.group(CAROL)))
    assert any("two different histories" in text for text in told)
    world.restart(CAROL)
    assert doubts() == both
    world.run_command(CAROL, DismissDoubts(world.id, "Alice"))
    assert doubts() == [("disputed", "")]
    world.restart(CAROL)
    world.run_command(CAROL, DismissDoubts(world.id, "nobody"))
    assert doubts() == [("disputed", "")]
    world.run_command(CAROL, DismissDoubts(world.id, ""))
    world.restart(CAROL)
    world.run(for_ms=60_000)
    assert doubts() == []
    assert doubts(BOB) == [("forked", world.alice)], "what one has seen, another need not have"


def proof_of(name, events):
    return msgspec.convert({"group": name, "runs": write_runs(events)}, ForkProofBody)


@pytest.mark.parametrize("lie", ["innocent", "unsigned", "incomplete", "endless", "elsewhere"])
def test_inconclusive_evidence_is_no_accusation(lie):
    world = Byzantine()
    world.sneak(world.eve(), is_split=True)
    world.carol_joins()
    bob, carol = world.group(BOB), world.group(CAROL)
    fresh = replace(bob, trust=replace(bob.trust, fork_proofs={}))
    world.nodes[BOB].agent = replace(world.nodes[BOB].agent, groups={world.id: fresh})
    events = sorted(carol.control.values(), key=lambda one: one.lamport)
    apart = [one for one in events if one.id not in bob.control]
    name = world.id
    match lie:
        case "innocent":
            events = [one for one in events if one.id in bob.control]
        case "unsigned":
            events = [replace(one, sig="A" * 86) if one in apart else one for one in events]
        case "incomplete":
            events = apart[1:]
        case "endless":
            events = [apart[0]] * (attestation.RECORDS_MAX + 1)
        case "elsewhere":
            name = "A" * 43
    tx = Transaction(world.nodes[BOB].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    with suppress(RemoteError):
        fork_proof.receive_proof(tx, world.id, carol.me, proof_of(name, events))
    assert not tx.group(world.id).trust.fork_proofs
    fork_proof.receive_proof(tx, world.id, carol.me, proof_of(world.id, apart))
    assert list(tx.group(world.id).trust.fork_proofs) == [world.alice], "and this would have"


def test_scenario_2_strict_joiner_leaves_with_proof():
    world = Byzantine(Policy(agreement="strict"))
    world.sneak(world.eve(skip=1), is_split=True)
    last = world.carol_joins()
    assert (last.phase, last.error) == ("failed", "JoinFailed") and "bob and alice" in last.text
    world.run(for_ms=60_000)
    assert world.group(CAROL).state == "left" and CAROL not in world.trapped
    assert world.group(CAROL).me not in world.group(BOB).view.members, "Bob has heard that she has gone"
    evidence = json.loads(json.dumps(attestation.evidence_json(world.carols_join())))
    attestation.check_evidence(evidence)
    (alice, hers), (bob, his) = ((one["member"], one["heads"]) for one in evidence["attestations"])
    assert (alice, bob) == (world.alice, world.group(BOB).me) and hers != his
    assert {one["body"].get("label") for one in evidence["events"]} >= {"eve", "carol"}


@pytest.mark.slow
def test_scenario_3_honest_inviter_hides_fake_member():
    world = Byzantine()
    forged = world.eve(consent=False)
    world.sneak(forged, is_split=False)
    world.mute = {BOB}
    assert world.carol_joins(through=BOB).phase == "joined"
    world.mute = set()
    world.run(for_ms=120_000)
    carol = world.group(CAROL)
    assert EVE not in carol.view.members and EVE not in world.group(BOB).view.members
    assert not {BOB, CAROL} & set(world.trapped)


@pytest.mark.slow
@pytest.mark.parametrize("agree", ["permissive", "strict"])
@pytest.mark.parametrize("seed", range(12))
def test_scenario_4_late_events_are_no_conflict(seed, agree):
    """Concurrent joins through all members, 20 per cent loss, and one leave."""
    world = World(1000 + seed, 7, Faults())
    dice = random.Random(seed)
    group = world.run_command("n0", CreateGroup("g", "n0", world.envelope, policy=Policy(agreement=agree))).result.group
    inside = ["n0"]
    for batch in (["n1"], ["n2", "n3"], ["n4", "n5", "n6"]):
        for name in batch:
            inviter = dice.choice(inside)
            invitation = world.run_command(inviter, CreateInvitation(group, 86_400, 1)).result.invitation
            world.run_command(name, AcceptInvitation(invitation, name))
            world.run(for_ms=dice.randint(0, 300))
        assert world.run(lambda batch=batch: all(world.nodes[name].agent.groups for name in batch), for_ms=600_000)
        inside += batch
    assert world.run(lambda: world.fully_connected(), for_ms=600_000)  # and nobody was accused, or the world had raised
    world.run(for_ms=60_000)
    world.check()
    joins = [one for node in world.nodes.values() for one in node.agent.joins.values()]
    assert all(one.state == "joined" for one in joins)
    assert not any(
        world.group(name).trust.quarantine or world.group(name).trust.attestation_deadline for name in world.nodes
    )


@pytest.mark.slow
def test_simulator_detects_false_accusation(monkeypatch):
    """A joiner that signed for less than it knows, during a quarantine, would seem to contradict others."""

    def less(group):
        heads = heads_of(attestation.endorsed_events(group))
        return heads, attestation.sign_heads(group.seed, group.id, heads)

    monkeypatch.setattr(attestation, "own_attestation", less)
    world = World(1, 20, Faults(loss=0, duplication=0, delay_ms_max=5))
    group = world.run_command("n0", CreateGroup("g", "n0", world.envelope)).result.group
    inside, coming = ["n0", "n1", "n2", "n3"], [f"n{number}" for number in range(4, 20)]
    for name in inside[1:]:
        invitation = world.run_command("n0", CreateInvitation(group, 3600, 1)).result.invitation
        world.run_command(name, AcceptInvitation(invitation, name))
        world.run(for_ms=10_000)
    for number, name in enumerate(coming):
        invitation = world.run_command(inside[number % 4], CreateInvitation(group, 3600, 1)).result.invitation
        world.run_command(name, AcceptInvitation(invitation, name))
    with pytest.raises(Violation, match="accuses"):
        world.run(for_ms=60_000)


# --- equivocation ---------------------------------------------------------------------------------------------------


def forked(group: Group, now: int) -> list[Event]:
    """Two membership events of one author at one position."""
    chain, deps = group.log.chains[group.me], heads_of(group.control)
    place = (group.id, LABEL, group.me, chain.seq + 1, chain.head_id, deps, (), group.log.lamport + 1, now)
    return [Event(*place, {"label": label}).signed(group.seed) for label in ("ann", "anna")]


def test_fork_is_flagged_and_join_continues():
    world = Byzantine()
    world.sneak(*forked(world.group(ALICE), world.now), is_split=False)
    assert world.carol_joins().phase == "joined"
    world.run(for_ms=60_000)
    for name in (BOB, CAROL):
        assert list(world.group(name).view.forked) == [world.alice]
        assert [n.member for who, n in world.disagreements if who == name] == [world.alice], "each says so once"


def test_strict_join_fails_on_forked_evidence():
    world = Byzantine(Policy(agreement="strict"))
    world.sneak(*forked(world.group(ALICE), world.now), is_split=True)
    dialled = set(world.nodes[CAROL].dialled)
    last = world.carol_joins()
    assert last.phase == "failed" and "signed two histories" in last.text
    assert not world.nodes[CAROL].agent.groups and set(world.nodes[CAROL].dialled) == dialled, "nobody was dialled"
    evidence = attestation.evidence_json(world.carols_join())
    attestation.check_evidence(evidence)
    first, second = evidence["events"]
    assert (first["author"], first["seq"]) == (second["author"], second["seq"]) and first != second


# --- who is waited for ----------------------------------------------------------------------------------------------


def test_unconfirmed_member_connects_if_no_confirmer():
    """Bob is offline, and Alice has added Dave meanwhile: for Carol there is no better evidence."""
    world = Byzantine(members=5)
    bob = world.group(BOB).me
    world.process = lambda name, stimulus, hear=world.process: name == BOB or hear(name, stimulus)  # type: ignore[method-assign]
    assert world.join("n4", world.invite(world.id, ALICE), "dave").phase == "joined"
    dave = world.group("n4").me
    world.run_command(CAROL, AcceptInvitation(world.invite(world.id, ALICE), "carol"))
    assert world.run(lambda: bool(world.nodes[CAROL].agent.groups), for_ms=10_000)
    assert world.group(CAROL).trust.quarantine == (dave,) and bob in world.group(CAROL).links.peers
    world.run(for_ms=member_connections.CONNECT_MS)
    assert not world.group(CAROL).trust.quarantine and world.group(CAROL).links.relationships[dave].established
    assert not world.disagreements


def test_quarantined_member_can_be_removed():
    world = Byzantine(Policy(remove="anyone", quorum=0))
    world.sneak(world.eve(skip=1), is_split=True)
    world.carol_joins()
    carol = world.group(CAROL)
    assert carol.trust.quarantine == (EVE,)
    assert isinstance(world.run_command(CAROL, PingPeer("friends/eve")), CommandFailed), "nobody is there to be pinged"
    for command in (ChangeLabel(world.id, "caroline"), RemoveMember(world.id, "eve")):
        assert isinstance(world.run_command(CAROL, command), CommandDone)
    world.run(for_ms=60_000)
    assert EVE not in world.group(CAROL).view.members and not world.group(CAROL).trust.quarantine
    assert world.group(BOB).view.members[carol.me].label == "caroline"
    assert CAROL not in world.trapped


@pytest.mark.parametrize("agree", ["permissive", "strict"])
def test_offline_member_delays_join_briefly(agree):
    world = Byzantine(Policy(agreement=agree), members=5)
    world.join("n4", world.invite(world.id, BOB), "dave")
    world.process = lambda name, stimulus, hear=world.process: name == BOB or hear(name, stimulus)  # type: ignore[method-assign]
    last = world.carol_joins()
    assert (last.phase, last.connected, last.members) == ("joined", 2, 3) and not world.disagreements


def test_welcome_contains_attestations():
    """So all members that others confirm are connected at once."""
    world = Byzantine(members=6)
    for name in ("n4", "n5"):
        world.join(name, world.invite(world.id, ALICE), name)
    world.run(for_ms=10_000)
    world.run_command(CAROL, AcceptInvitation(world.invite(world.id, ALICE), "carol"))
    assert world.run(lambda: bool(world.nodes[CAROL].agent.groups), for_ms=10_000)
    assert not world.group(CAROL).trust.quarantine and len(world.group(CAROL).links.peers) == 4


def test_few_attestations_suffice():
    world = Byzantine(members=9)
    for name in ("n4", "n5", "n6", "n7", "n8"):
        world.join(name, world.invite(world.id, ALICE), name)
    world.run(for_ms=10_000)
    world.run_command(CAROL, AcceptInvitation(world.invite(world.id, ALICE), "carol"))
    assert world.run(lambda: bool(world.nodes[CAROL].agent.groups), for_ms=10_000)
    assert len(world.group(CAROL).trust.attestations) <= 4 and not world.group(CAROL).trust.quarantine


def test_quarantining_member_endorses_nothing():
    world = Byzantine()
    world.sneak(world.eve(skip=1), is_split=True)
    world.carol_joins()
    carol = world.group(CAROL)
    heads, word = attestation.own_attestation(carol)
    (secret,) = (name for name, event in carol.control.items() if event.body.get("member") == EVE)
    assert word == "" and not attestation.covers(carol.control, heads, secret)


# --- words ----------------------------------------------------------------------------------------------------------


def test_attestation_is_bound_to_member_and_group():
    me, other = (did_key(ed25519_public(seed)) for seed in (EVE_SEED, b"\x01" * 32))
    heads = (b64url(bytes(32)),)
    word = attestation.sign_heads(EVE_SEED, "g", heads)
    attestation.check_heads(me, "g", heads, word)
    for member, group, said in ((other, "g", heads), (me, "h", heads), (me, "g", ())):
        with pytest.raises(Unauthentic):
            attestation.check_heads(member, group, said, word)


def test_forged_attestation_is_rejected():
    world = Byzantine()
    before = world.group(ALICE).trust.attestations
    bob = world.group(BOB)
    world.nodes[BOB].agent = replace(world.nodes[BOB].agent, groups={world.id: replace(bob, seed=EVE_SEED)})
    world.run_command(BOB, SendPost(world.id, "hm"))
    world.run_command(ALICE, SendPost(world.id, "what?"))
    world.run(for_ms=5_000)
    assert world.group(ALICE).trust.attestations == before and world.nodes[ALICE].dropped["dropped Unauthentic"] > 0


@pytest.mark.parametrize("spoil", ["heads", "signature", "member", "group", "events", "type"])
def test_tampered_evidence_is_invalid(spoil):
    world = Byzantine(Policy(agreement="strict"))
    world.sneak(world.eve(skip=1), is_split=True)
    world.carol_joins()
    evidence = json.loads(json.dumps(attestation.evidence_json(world.carols_join())))
    first, second = evidence["attestations"]
    match spoil:
        case "group" | "type":
            evidence[spoil] = b64url(bytes(32))
        case "events":
            evidence["events"][0]["body"]["label"] = "nobody"
        case _:
            first[spoil] = second[spoil]
    with pytest.raises((Unauthentic, Malformed)):
        attestation.check_evidence(evidence)
    assert attestation.evidence_json(replace(world.carols_join(), conflict=None)) == {}
    for junk in ({}, {"type": attestation.EVIDENCE_TYPE}, {**evidence, "attestations": [7]}):
        with pytest.raises(Malformed):
            attestation.check_evidence(junk)


def test_fork_proofs_are_rate_limited():
    world = Byzantine()
    world.sneak(world.eve(), is_split=True)
    world.carol_joins()
    carol, tx = (
        world.group(CAROL),
        Transaction(world.nodes[BOB].agent, StepContext(world.now, world.rng.randbytes), {}),
    )
    apart = [one for one in carol.control.values() if one.id not in world.group(BOB).control]
    proof, heard = proof_of(world.id, sorted(apart, key=lambda one: one.lamport)), 0
    with suppress(rate_limits.TooMuchWork):
        while heard < 1_000:
            tx.work_us = 0  # a step for each
            fork_proof.receive_proof(tx, world.id, carol.me, proof)
            heard += 1
    assert 1 < heard <= rate_limits.WORK_US_MAX // fork_proof.PROOF_WORK_US
