"""Histories with malicious members: invariants hold, and honest members are never accused."""

import base64
import hashlib
import json
from contextlib import suppress

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec.structs import replace

from tests.support.cut_world import Cut, forged
from tests.support.hostile_world import Hostile
from tests.support.seeds import outputs_elsewhere
from tests.support.small_world import PERFECT, Small
from zerochat.errors import RemoteError
from zerochat.group.effects import SendEnvelope
from zerochat.group.event_log import delivery, lamport, receiving
from zerochat.group.event_log.event import POST, REMOVE, Event
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    ChangeRole,
    CreateGroup,
    CreateInvitation,
    HistoryRead,
    Received,
    SendPost,
    StepContext,
)
from zerochat.group.links import outbox
from zerochat.group.links.contact import member_link
from zerochat.group.membership import Policy, heads_of, rights
from zerochat.group.membership.attestation import evidence_json
from zerochat.group.messages.current import Annotation, current_message
from zerochat.group.sync import acknowledgements, backfill, head_claims, history_policy, history_requests, stale_profile
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import read_runs, runs_of
from zerochat.sim import EPOCH_MS, SIMULATED_PACKERS, Node, Violation, annotation_checks
from zerochat.sim.attacks import ATTACKS, hidden_add
from zerochat.sim.batch import BatchPlan, SeedResult, run
from zerochat.sim.byzantine import Tally, play_byzantine
from zerochat.sim.byzantine_world import ByzantineWorld

EVERYDAY, SLICE = 30, 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, EVERYDAY, 5))
def test_byzantine_histories_violate_nothing(first):
    for seed in range(first, first + 5):
        play_byzantine(seed)


@pytest.mark.sim
@pytest.mark.greedy
def test_byzantine_histories_many_seeds(budget, figures):
    broken: list[SeedResult] = []
    seeds = range(EVERYDAY, EVERYDAY + budget(SLICE))
    found = run(BatchPlan("byzantine"), seeds, 2, lambda one: broken.append(one) if one.violation else None)
    figures(f"{found.tally.table()}\n{found.runs:,} histories, {found.runs / found.seconds:.1f} a second")
    assert not [one.violation for one in broken]


@pytest.mark.sim
@pytest.mark.parametrize("attack", ATTACKS)
def test_each_attack_alone_violates_nothing(attack, budget):
    tally, wanted = Tally(), budget(2)
    for seed in range(20 * wanted):  # some have no occasion in most histories
        play_byzantine(seed, attacks=[attack], tally=tally)
        if tally.attempts.get(attack, 0) >= wanted:
            return
    raise AssertionError(f"{attack} has had too few occasions: {tally.attempts}")


@pytest.mark.slow
def test_byzantine_history_replays_exactly():
    assert len(outputs_elsewhere("[sim.play_byzantine(seed).digest.hexdigest() for seed in range(3)]")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["split history", "equivocating labels"])
def test_split_history_is_detected(attack):
    tally = Tally()
    for seed in range(2):
        play_byzantine(seed, attacks=[attack], tally=tally)
    assert tally.detected[attack] == len(tally.isolated[attack]) > 0


ON_HEARSAY = [
    "forged responses",
    "forged history",
    "unsolicited responses",
    "inflated claims",
    "shifting chain base",
    "equivocating crash",
    "request flood",
]


@pytest.mark.slow
@pytest.mark.parametrize("attack", ON_HEARSAY)
def test_relayed_attacks_violate_nothing(attack):
    tally = Tally()
    for seed in range(3):
        play_byzantine(seed, attacks=[attack], tally=tally)
    assert tally.attempts[attack] > 3


@pytest.mark.slow
def test_forged_events_are_stored_as_unconfirmed():
    """They reach logs as relayed by the adversary; otherwise these histories would prove nothing."""
    found = set()
    for seed in range(6):
        arena = play_byzantine(seed, attacks=["forged responses"])
        forged = {event for one in arena.adversaries.values() for event in one.forged_ids}
        found |= {
            row.id for name in arena.honest for row in arena.nodes[name].log if row.id in forged and row.relayed_by
        }
    assert found


def test_buffered_event_wins_over_relayed_event():
    """An author's second event is buffered, and an adversary relays another first one."""
    world = Cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one")
    world.run(for_ms=50)
    world.deaf.clear()
    world.post("n0", "two")
    assert world.run(lambda: bool(world.nodes["n2"].agent.groups[world.id].log.reorder_buffers), for_ms=1_000)
    tx = world.tx("n2")
    for event in forged(world, "n2", "n1", world.did("n0"), ["never said"]):
        receiving.receive_relayed(tx, world.id, world.did("n1"), event)
    world.perform("n2", tx)
    world.run(for_ms=120_000)
    assert world.texts("n2") == world.texts("n2", relayed=False) == ["one", "two"]
    assert world.chain("n2", "n0").fork_seq == 0


@pytest.mark.parametrize("back", [False, True])
def test_unconfirmed_events_of_former_members_are_bounded(monkeypatch, back):
    """n1 claims any amount of events of the absent n0, before and after its real ones."""
    most, at_once = 100, 20
    for module in (history_requests, backfill):
        monkeypatch.setattr(module, "UNCONFIRMED_MAX", most)
    world = Cut()
    world.bring_in("n1", *([] if back else ["n2"]))
    author, answered = world.did("n0"), []

    def events(first, pre):
        for seq in range(first, first + at_once):
            when = EPOCH_MS + 60_000 + seq
            event = Event(world.id, POST, author, seq, pre, (), (), when, when, {"text": f"{seq}"})
            pre = event.id
            yield event

    chain = list(events(1_001, "A" * 43))
    while len(chain) < 4 * most:
        chain += events(chain[-1].seq + 1, chain[-1].id)

    def fetch(_, asked):
        wanted = {who: (after, upto) for who, after, upto in asked.ranges}
        after, upto = wanted.get(author, (0, 0))
        answered.append(asked)
        if asked.backwards:
            found = [event for event in chain if event.seq <= upto][-at_once:]
        else:
            found = list(events(after + 1, world.chain("n2", "n0").head_id or "A" * 43)) if author in wanted else []
        return HistoryRead(
            asked.group, asked.member, asked.thread, tuple(e.record for e in found), asked.backwards, True
        )

    monkeypatch.setattr(Node, "read_history", fetch)
    world.kill("n0")
    if back:
        invitation = world.run_command("n1", CreateInvitation(world.id, 3600, 1)).result.invitation
        world.run_command("n2", AcceptInvitation(invitation, "n2"))
    else:
        tx = world.tx("n2")
        acknowledgements.record_acks(tx, world.id, world.did("n1"), [(author, 1_000_000)])
        world.perform("n2", tx)
    world.run(for_ms=600_000)
    assert len(answered) >= most // at_once
    assert most // 2 < len(world.texts("n2", relayed=True)) <= most


# --- the simulator would notice -------------------------------------------------------------------------------------


def found_out(attack, seeds=12, first=0):
    """What a few histories with this attack alone end with; a Violation if one of them notices."""
    for seed in range(first, first + seeds):
        play_byzantine(seed, attacks=[attack])


@pytest.mark.slow
def test_detects_adds_without_consent(monkeypatch):
    monkeypatch.setattr(rights, "check_consent", lambda *_: None)
    monkeypatch.setattr(rights, "check_possession", lambda *_: None)
    with pytest.raises(Violation, match=r"accepts a stranger as a member|accepts a forgery"):
        found_out("forged add")


def test_detects_unchecked_signatures(monkeypatch):
    monkeypatch.setattr(Event, "check_signature", lambda _: None)
    with pytest.raises(Violation):
        found_out("impersonation")


@pytest.mark.slow
def test_detects_unauthorised_removals(monkeypatch):
    monkeypatch.setattr(rights, "may_remove", lambda *_: True)
    monkeypatch.setattr(rights, "may_change_role", lambda *_: True)
    with pytest.raises(Violation, match="accepts a forgery"):
        found_out("unauthorised change")


def test_detects_shown_posts_of_readers(monkeypatch):
    monkeypatch.setattr(delivery, "may_post", lambda *_: True)
    with pytest.raises(Violation, match="shows a void post"):
        found_out("reader posts")


def test_detects_foreign_edits(monkeypatch):
    def by_anybody(view, post, said):
        return current_message(view, post, [Annotation(replace(one.event, author=post.author)) for one in said])

    monkeypatch.setattr(annotation_checks, "current_message", by_anybody)
    with pytest.raises(Violation, match=r"in a state that its author did not create|shows a removed reaction"):
        found_out("foreign annotations")


@pytest.mark.slow
def test_detects_far_future_timestamps(monkeypatch):
    monkeypatch.setattr(lamport, "check_not_ahead", lambda *_: None)
    with pytest.raises(Violation):
        found_out("far future clock")


def test_detects_acknowledgements_for_others(monkeypatch):
    """If members could acknowledge for others, nothing would be retransmitted to those who lack it."""
    acknowledged = acknowledgements.record_acks

    def for_all(tx, name, member, reported):
        for other in list(tx.group(name).links.peers):
            acknowledged(tx, name, other, [*reported, (tx.group(name).me, tx.group(name).seq)])

    monkeypatch.setattr(acknowledgements, "record_acks", for_all)
    monkeypatch.setattr(
        history_requests, "request_missing", lambda tx, name: None
    )  # or it would come from those who have it
    monkeypatch.setattr(backfill, "request_page", lambda tx, name: None)
    with pytest.raises(Violation, match="counts as delivered"):
        found_out("inflated acknowledgements", first=5)


@pytest.mark.slow
def test_detects_relayed_events_taken_as_confirmed(monkeypatch):
    """If relayed events counted as confirmed at once."""
    take = delivery.deliver_next
    monkeypatch.setattr(delivery, "deliver_next", lambda tx, name, event, relayed_by="": take(tx, name, event))
    for attack in ("forged responses", "equivocating crash"):
        with pytest.raises(Violation, match=r"accepts unauthenticated|accuses an honest member"):
            found_out(attack)


@pytest.mark.slow
def test_detects_inconsistent_history(monkeypatch):
    monkeypatch.setattr(backfill, "_fault", lambda *_: "")
    with pytest.raises(Violation):
        found_out("forged history")


@pytest.mark.slow
def test_detects_history_from_a_single_source(monkeypatch):
    """If history were requested from one member only."""
    choose, fresh = backfill._choose_peer, {"tries": 0, "requests": {}}
    monkeypatch.setattr(backfill, "_choose_peer", lambda tx, name, state: choose(tx, name, replace(state, **fresh)))
    monkeypatch.setattr(backfill, "RECHECKS_MAX", 0)
    with pytest.raises(Violation, match="lacks some of the history"):
        found_out("forged history", first=84)


@pytest.mark.slow
def test_detects_unsolicited_responses(monkeypatch):
    def hear_share(tx, name, member, message, body):
        for event in read_runs(name, runs_of(body.runs, body.packed), member):
            with suppress(RemoteError):
                receiving.receive_relayed(tx, name, member, event)

    monkeypatch.setattr(history_requests, "receive_response", hear_share)
    with pytest.raises(Violation, match="did not request"):
        found_out("unsolicited responses", first=1)


@pytest.mark.slow
def test_detects_impersonation(monkeypatch):
    monkeypatch.setattr(stale_profile, "is_ours", lambda *_: True)
    with pytest.raises(Violation, match=r"never wrote|accuses an honest member|accepts a forgery"):
        found_out("inflated claims", 30)


@pytest.mark.slow
def test_detects_long_suspension(monkeypatch):
    monkeypatch.setattr(head_claims, "TRIES_MAX", 10**9)
    monkeypatch.setattr(stale_profile, "ROUNDS_MAX", 10**9)
    with pytest.raises(Violation, match="is suspended for too long"):
        found_out("inflated claims", 30)


@pytest.mark.slow
def test_detects_foreign_chain_bases(monkeypatch):
    start_chain = delivery.start_chain

    def for_all(tx, name, author, since, pre=""):
        for other in tx.group(name).others:
            start_chain(tx, name, other, since, pre)

    monkeypatch.setattr(delivery, "start_chain", for_all)
    with pytest.raises(Violation):
        found_out("shifting chain base")


@pytest.mark.slow
def test_detects_history_policy_violations(monkeypatch):
    monkeypatch.setattr(history_policy, "_floor", lambda *_: 0)
    with pytest.raises(Violation, match="history that the member may not have"):
        found_out("request flood")


# --- evidence -------------------------------------------------------------------------------------------------------


def raw(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def key_of(did):
    number = 0
    for letter in did.removeprefix("did:key:z"):
        number = number * 58 + ALPHABET.index(letter)
    data = number.to_bytes(34, "big")
    assert data[:2] == b"\xed\x01"
    return Ed25519PublicKey.from_public_bytes(data[2:])


def hash_of(value):
    return base64.urlsafe_b64encode(hashlib.sha256(canonical(value)).digest()).rstrip(b"=").decode()


def verdict(evidence):
    """A judge of its own, which has nothing but the evidence and the specifications: who has provably signed two
    histories. Raises InvalidSignature where anything in it is not signed by whom it names."""
    group = evidence["group"]
    for one in evidence["attestations"]:
        signed = canonical(["zerochat/heads/1", group, one["heads"]])
        key_of(one["member"]).verify(raw(one["signature"]), signed)
    events = {}
    for record in evidence["events"]:
        unsigned = {key: value for key, value in record.items() if key != "sig"}
        name = hash_of({**unsigned, "body": hash_of(record["body"])})
        key_of(record["author"]).verify(raw(record["sig"]), b"zerochat/event/1\n" + name.encode())
        assert group == (record["group"] or name)
        events[name] = record

    def past(name):
        seen, todo = set(), list(events[name]["deps"])
        while todo:
            cause = todo.pop()
            if cause in events and cause not in seen:
                seen.add(cause)
                todo += events[cause]["deps"]
        return seen

    liars = set()
    for one, first in events.items():
        for other, second in events.items():
            if one != other and first["author"] == second["author"]:
                same_place = first["seq"] == second["seq"]
                apart = one not in past(other) and other not in past(one)
                liars |= {first["author"]} if same_place or apart else set()
    return liars


def shown_by(arena):
    """The evidence that those who keep the rules have, as they would hand it on, and whom they know to keep them."""
    honest = {group.me for name in arena.honest for group in arena.nodes[name].agent.groups.values()}
    joins = [join for name in arena.honest for join in arena.nodes[name].agent.joins.values()]
    return [json.loads(json.dumps(evidence_json(join))) for join in joins if join.conflict], honest


@pytest.mark.slow
def test_evidence_convinces_the_judge():
    shown, honest = [], set()
    for seed in range(108, 148):
        shown, honest = shown_by(play_byzantine(seed, attacks=["hidden add", "split history"]))
        if shown:
            break
    assert shown
    for evidence in shown:
        assert verdict(evidence)
        assert verdict(evidence).isdisjoint(honest)
        for record in evidence["events"]:
            spoilt = {**evidence, "events": [{**record, "lamport": record["lamport"] + 1}]}
            with pytest.raises(InvalidSignature):
                verdict(spoilt)


@pytest.mark.sim
def test_no_evidence_against_honest_members(budget):
    seen = 0
    for seed in range(110, 110 + budget(30)):
        shown, honest = shown_by(play_byzantine(seed, attacks=["hidden add", "stale welcome", "false attestation"]))
        seen += len(shown)
        for evidence in shown:
            assert verdict(evidence).isdisjoint(honest)
    assert seen


@pytest.mark.slow
def test_equivocation_convicts_its_author_only():
    arena = play_byzantine(3, attacks=["equivocating labels"])
    bad = {group.me for name in arena.adversaries for group in arena.nodes[name].agent.groups.values()}
    seen = 0
    assert bad
    for name in arena.honest:
        for group in arena.nodes[name].agent.groups.values():
            for author, both in group.view.forked.items():
                events = [json.loads(json.dumps(group.control[event].wire)) for event in both]
                assert verdict({"group": group.id, "attestations": [], "events": events}) == {author} <= bad
                seen += 1
    assert seen


# --- what such histories have shown ---------------------------------------------------------------------------------


def test_seed_2274_demoted_member_can_step_down_again():
    """A demotion voids what its target did concurrently, not what came later."""
    world = Small(2)
    group = world.run_command(
        "n0", CreateGroup("friends", "n0", world.envelope, policy=Policy.default("admins"))
    ).result.group
    world.join("n1", world.invite(group))
    for actor, target, role in (("n0", "n1", "reader"), ("n0", "n1", "admin"), ("n1", "", "reader")):
        world.run_command(actor, ChangeRole(group, target, role))
        world.run(for_ms=5_000)
        assert [world.group(name).view.members[world.group("n1").me].role for name in world.nodes] == [role, role]


def test_an_isolated_member_does_not_accuse():
    """It has an attestation that it cannot compare."""
    world = Small(2)
    policy = Policy(remove="anyone", quorum=0, agreement="strict")
    group = world.run_command("n0", CreateGroup("friends", "n0", world.envelope, policy=policy)).result.group
    world.run_command("n1", AcceptInvitation(world.invite(group), "n1"))
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=10_000)
    frame = world._frame
    world._frame = lambda name, input_: frame(name, input_) if name == "n0" else None  # type: ignore[method-assign]
    world.run(for_ms=1_000)
    world.run_command("n0", ChangeLabel(group, "somebody else"))
    tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    acknowledgements.send_sync(tx, group, world.group("n1").me)
    (said,) = [effect for effect in tx.effects if isinstance(effect, SendEnvelope)]
    world.process("n1", Received(said.link, said.envelope))
    world.run(for_ms=60_000)
    assert all(join.conflict is None for join in world.nodes["n1"].agent.joins.values())
    assert not any("disagree about who" in notice.text for _, notice in world.told)


class AnyoneRemoves(Hostile):
    def found(self, name="n0"):
        policy = Policy(remove="anyone", quorum=0)
        return self.run_command(name, CreateGroup("friends", name, self.envelope, self.key_mode, policy)).result.group


def test_secret_removal_reaches_all_members():
    world = AnyoneRemoves()
    target = world.group("n1").me
    control = world.group("n1").control
    removal = world.event(
        type=REMOVE,
        deps=heads_of(control),
        lamport=world.group("n1").log.lamport + 1,
        body={"member": target, "after": 0},
    ).signed(world.mallory.seed)
    world.utter_event("n1", removal)
    world.run(for_ms=120_000)
    assert world.group("n1").state == "left"
    assert target not in world.group("n0").view.members


def late_quarantine():
    """Only the acceptor could be heard, so the newcomer has met its accomplice; then the founder contradicts it.

    Returns the world, the accomplice's key, and what has the founder hear the newcomer as well."""
    arena = ByzantineWorld(1, 3, ["n1"], PERFECT)
    mallory, frame = arena.adversaries["n1"], arena._frame
    deaf = {"n2"}
    over = []

    def acquainted():
        found = arena.group("n2").links.relationships.get(arena.group("n0").me)
        return found is not None and found.established

    def lossy(to, stimulus):
        between_them = between(arena, stimulus.link, "n0", "n2")
        if over or not between_them or (to not in deaf and (to == "n2" or not acquainted())):
            frame(to, stimulus)

    arena._frame = lossy  # type: ignore[method-assign]
    group = arena.run_command("n0", CreateGroup("friends", "n0", arena.envelope)).result.group
    arena.run_command(
        "n1", AcceptInvitation(arena.run_command("n0", CreateInvitation(group, 3600, 1)).result.invitation, "n1")
    )
    arena.run(for_ms=9_000)
    hidden_add(mallory)
    mallory.admits_into = "both"
    arena.run_command(
        "n2", AcceptInvitation(arena.run_command("n1", CreateInvitation(group, 3600, 1)).result.invitation, "n2")
    )
    assert arena.run(lambda: bool(arena.nodes["n2"].agent.groups), for_ms=5_000)
    mallory.assign(arena.group("n2").me, 1)
    arena.run(for_ms=9_000)
    eve = next(did for did, one in arena.group("n2").view.members.items() if one.label == "Eve of n1")
    assert eve in arena.group("n2").links.peers
    deaf.clear()
    if not arena.run(acquainted, for_ms=15_000):
        raise RuntimeError("this is about something else")
    tx = Transaction(arena.nodes["n0"].agent, StepContext(arena.now, arena.rng.randbytes), SIMULATED_PACKERS)
    newcomer = arena.group("n2").me
    outbox.send_events(tx, group, newcomer, [event for event in arena.group("n0").control.values() if event.seq == 1])
    acknowledgements.send_sync(tx, group, newcomer)
    for effect in tx.effects:
        if isinstance(effect, SendEnvelope):
            arena.process("n2", Received(effect.link, effect.envelope))
    if eve not in arena.group("n2").trust.quarantine:
        raise RuntimeError("this is about something else")
    return arena, eve, lambda: over.append(True)


def test_late_quarantine_ends_the_connection():
    arena, eve, _ = late_quarantine()
    arena.run(for_ms=60_000)
    assert eve not in arena.group("n2").links.peers


def test_quarantining_member_stays_connected():
    arena, _, heal = late_quarantine()
    heal()
    arena.run_command("n2", SendPost(arena.group("n2").id, "can you hear me?"))
    arena.run(for_ms=300_000)
    assert any(b"can you hear me?" in row.record for row in arena.nodes["n0"].log)


def between(arena, link, one, other):
    """Whether this is the link between the members at these nodes."""
    groups = [group for name in (one, other) for group in arena.nodes[name].agent.groups.values()]
    return len(groups) == 2 and link == member_link(groups[0].id, groups[0].me, groups[1].me)
