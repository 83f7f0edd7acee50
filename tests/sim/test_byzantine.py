"""Members who break the rules, in whole histories: nothing comes of it, and nobody who keeps them is accused."""

import base64
import hashlib
import json
from contextlib import suppress

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec.structs import replace

from tests.group.test_history import Cut, forged
from tests.group.test_hostile import Hostile
from tests.group.test_join import PERFECT, Small
from tests.support.seeds import told_elsewhere
from zerochat.errors import RemoteError
from zerochat.group.effects import Dispatch
from zerochat.group.event_log import lamport, log
from zerochat.group.event_log.event import POST, REMOVE, Event
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    ChangeRole,
    CreateGroup,
    CreateInvitation,
    Fetched,
    Moment,
    Received,
    SendPost,
)
from zerochat.group.links import outbox
from zerochat.group.links.contact import member_link
from zerochat.group.membership import Policy, heads_of, rights
from zerochat.group.membership.attestation import evidence_of
from zerochat.group.messages.current import Remark, standing
from zerochat.group.sync import acknowledgements, head_claims, history_requests, stale_profile
from zerochat.group.sync import backfill as past
from zerochat.group.sync import history_policy as policy
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import read_runs, runs_in
from zerochat.sim import EPOCH_MS, SIMULATED_PACKERS, Node, Violation, annotation_checks
from zerochat.sim.attacks import ATTACKS, hidden_add
from zerochat.sim.batch import Plan, Played, run
from zerochat.sim.byzantine import Tally, play_byzantine
from zerochat.sim.byzantine_world import Arena

EVERYDAY, SLICE = 30, 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, EVERYDAY, 5))
def test_nothing_comes_of_breaking_the_rules(first):
    for seed in range(first, first + 5):
        play_byzantine(seed)


@pytest.mark.sim
@pytest.mark.greedy
def test_nothing_comes_of_breaking_the_rules_in_many_more(budget, figures):
    broken: list[Played] = []
    seeds = range(EVERYDAY, EVERYDAY + budget(SLICE))
    found = run(Plan("byzantine"), seeds, 2, lambda one: broken.append(one) if one.violation else None)
    figures(f"{found.tally.table()}\n{found.played:,} histories, {found.played / found.seconds:.1f} a second")
    assert not [one.violation for one in broken]


@pytest.mark.sim
@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_comes_of_any_attack_alone(attack, budget):
    tally, wanted = Tally(), budget(2)
    for seed in range(20 * wanted):  # some have no occasion in most histories
        play_byzantine(seed, attacks=[attack], tally=tally)
        if tally.tried.get(attack, 0) >= wanted:
            return
    raise AssertionError(f"{attack} has had too few occasions: {tally.tried}")


@pytest.mark.slow
def test_a_byzantine_history_replays_exactly_in_another_process_too():
    assert len(told_elsewhere("[sim.play_byzantine(seed).digest.hexdigest() for seed in range(3)]")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["two histories", "two names"])
def test_whoever_signs_two_histories_is_found_out(attack):
    tally = Tally()
    for seed in range(2):
        play_byzantine(seed, attacks=[attack], tally=tally)
    assert tally.detected[attack] == len(tally.alone[attack]) > 0


ON_HEARSAY = [
    "forged shares",
    "forged history",
    "unasked shares",
    "tall claims",
    "shifting start",
    "two versions",
    "insatiable",
]


@pytest.mark.slow
@pytest.mark.parametrize("attack", ON_HEARSAY)
def test_nothing_comes_of_what_is_said_of_others_words(attack):
    tally = Tally()
    for seed in range(3):
        play_byzantine(seed, attacks=[attack], tally=tally)
    assert tally.tried[attack] > 3


@pytest.mark.slow
def test_what_is_forged_gets_as_far_as_it_can():
    """Into logs, as the word of the liar; else the histories with it would prove nothing."""
    found = set()
    for seed in range(6):
        arena = play_byzantine(seed, attacks=["forged shares"])
        forged = {event for one in arena.adversaries.values() for event in one.forged}
        found |= {row.id for name in arena.honest for row in arena.nodes[name].log if row.id in forged and row.vouched}
    assert found


def test_what_waits_is_believed_more_than_what_somebody_hands_over():
    """An author's second word is here, and a liar hands over something else as its first."""
    world = Cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one")
    world.run(for_ms=50)
    world.deaf.clear()
    world.post("n0", "two")
    assert world.run(lambda: bool(world.nodes["n2"].agent.groups[world.id].limbo), for_ms=1_000)
    turn = world.turn("n2")
    for event in forged(world, "n2", "n1", world.did("n0"), ["never said"]):
        log.hear_shared(turn, world.id, world.did("n1"), event)
    world.perform("n2", turn)
    world.run(for_ms=120_000)
    assert world.texts("n2") == world.texts("n2", vouched=False) == ["one", "two"]
    assert world.chain("n2", "n0").forked == 0


@pytest.mark.parametrize("back", [False, True])
def test_nobody_fills_a_disk_with_words_of_somebody_who_is_gone(monkeypatch, back):
    """n1 has as much as anybody wants of what n0 has said, who is gone: of what comes next, or of what came before."""
    most, at_once = 100, 20
    for module in (history_requests, past):
        monkeypatch.setattr(module, "VOUCHED_MAX", most)
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
        wanted = {who: (after, upto) for who, after, upto in asked.want}
        after, upto = wanted.get(author, (0, 0))
        answered.append(asked)
        if asked.back:
            found = [event for event in chain if event.seq <= upto][-at_once:]
        else:
            found = list(events(after + 1, world.chain("n2", "n0").tip or "A" * 43)) if author in wanted else []
        return Fetched(asked.group, asked.member, asked.thread, tuple(e.record for e in found), asked.back, True)

    monkeypatch.setattr(Node, "fetch", fetch)
    world.kill("n0")
    if back:
        invitation = world.ask("n1", CreateInvitation(world.id, 3600, 1)).result.invitation
        world.ask("n2", AcceptInvitation(invitation, "n2"))
    else:
        turn = world.turn("n2")
        acknowledgements.acknowledged(turn, world.id, world.did("n1"), {author: 1_000_000})
        world.perform("n2", turn)
    world.run(for_ms=600_000)
    assert len(answered) >= most // at_once
    assert most // 2 < len(world.texts("n2", vouched=True)) <= most


# --- the simulator would notice -------------------------------------------------------------------------------------


def found_out(attack, seeds=12, first=0):
    """What a few histories with this attack alone end with; a Violation if one of them notices."""
    for seed in range(first, first + seeds):
        play_byzantine(seed, attacks=[attack])


def test_it_would_notice_adds_without_consent(monkeypatch):
    monkeypatch.setattr(rights, "check_consent", lambda *_: None)
    monkeypatch.setattr(rights, "check_possession", lambda *_: None)
    with pytest.raises(Violation, match=r"takes a stranger for a member|believes what was forged"):
        found_out("forged add")


def test_it_would_notice_events_that_anybody_has_signed(monkeypatch):
    monkeypatch.setattr(Event, "check_signature", lambda _: None)
    with pytest.raises(Violation):
        found_out("another ones name")


def test_it_would_notice_a_removal_without_the_right(monkeypatch):
    monkeypatch.setattr(rights, "may_remove", lambda *_: True)
    monkeypatch.setattr(rights, "may_change_role", lambda *_: True)
    with pytest.raises(Violation, match="believes what was forged"):
        found_out("without the right")


def test_it_would_notice_a_reader_who_is_shown(monkeypatch):
    monkeypatch.setattr(log, "may_post", lambda *_: True)
    with pytest.raises(Violation, match="shows what does not count"):
        found_out("reader writes")


def test_it_would_notice_a_message_that_others_edit(monkeypatch):
    def by_anybody(view, post, said):
        return standing(view, post, [Remark(replace(one.event, author=post.author)) for one in said])

    monkeypatch.setattr(annotation_checks, "standing", by_anybody)
    with pytest.raises(Violation, match="a message as its author has not said"):
        found_out("meddling")


def test_it_would_notice_a_far_future(monkeypatch):
    monkeypatch.setattr(lamport, "check", lambda *_: None)
    with pytest.raises(Violation):
        found_out("wrong clock")


def test_it_would_notice_acknowledgements_for_others(monkeypatch):
    """If anybody could say what anybody else has, nothing would be repeated to those who lack it."""
    acknowledged = acknowledgements.acknowledged

    def for_all(turn, name, member, reported):
        for other in list(turn.group(name).peers):
            acknowledged(turn, name, other, {**reported, turn.group(name).me: turn.group(name).seq})

    monkeypatch.setattr(acknowledgements, "acknowledged", for_all)
    monkeypatch.setattr(history_requests, "seek", lambda turn, name: None)  # or it would come from those who have it
    monkeypatch.setattr(past, "fetch", lambda turn, name: None)
    with pytest.raises(Violation, match="has what it has not"):
        found_out("too many acknowledgements", first=5)


def test_it_would_notice_words_of_absent_authors_that_anybody_hands_over(monkeypatch):
    """If what is handed over were its author's own word at once."""
    take = log._take
    monkeypatch.setattr(log, "_take", lambda turn, name, event, by="": take(turn, name, event))
    for attack in ("forged shares", "two versions"):
        with pytest.raises(Violation, match=r"takes somebody's word|accuses a member"):
            found_out(attack)


@pytest.mark.slow
def test_it_would_notice_a_history_that_does_not_hang_together(monkeypatch):
    monkeypatch.setattr(past, "_fault", lambda *_: "")
    with pytest.raises(Violation):
        found_out("forged history")


def test_it_would_notice_a_history_that_ends_with_whoever_has_nothing(monkeypatch):
    """If only one were asked for it."""
    whom = past._whom
    monkeypatch.setattr(past, "_whom", lambda turn, name, state: whom(turn, name, replace(state, tries=0, asks={})))
    monkeypatch.setattr(past, "LATE_MAX", 0)
    with pytest.raises(Violation, match="lacks some of the history"):
        found_out("forged history", first=84)


def test_it_would_notice_shares_that_nobody_has_asked_for(monkeypatch):
    def hear_share(turn, name, member, message, body):
        for event in read_runs(name, runs_in(body.runs, body.packed), member):
            with suppress(RemoteError):
                log.hear_shared(turn, name, member, event)

    monkeypatch.setattr(history_requests, "hear_share", hear_share)
    with pytest.raises(Violation, match="has not asked for"):
        found_out("unasked shares", first=1)


@pytest.mark.slow
def test_it_would_notice_words_put_into_somebodys_mouth(monkeypatch):
    monkeypatch.setattr(stale_profile, "is_ours", lambda *_: True)
    with pytest.raises(Violation, match=r"never said|accuses a member who keeps the rules|was forged"):
        found_out("tall claims", 30)


@pytest.mark.slow
def test_it_would_notice_who_is_silenced_for_long(monkeypatch):
    monkeypatch.setattr(head_claims, "TRIES_MAX", 10**9)
    monkeypatch.setattr(stale_profile, "ROUNDS_MAX", 10**9)
    with pytest.raises(Violation, match="may say nothing for too long"):
        found_out("tall claims", 30)


def test_it_would_notice_an_author_who_says_where_the_chains_of_others_begin(monkeypatch):
    start_chain = log.start_chain

    def for_all(turn, name, author, since, pre=""):
        for other in turn.group(name).others:
            start_chain(turn, name, other, since, pre)

    monkeypatch.setattr(log, "start_chain", for_all)
    with pytest.raises(Violation):
        found_out("shifting start")


def test_it_would_notice_a_history_that_is_given_to_anybody(monkeypatch):
    monkeypatch.setattr(policy, "_floor", lambda *_: 0)
    with pytest.raises(Violation, match="gives what may not be had"):
        found_out("insatiable")


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


def verdict(evidence):
    """A judge of its own, which has nothing but the evidence and the specifications: who has provably signed two
    histories. Raises InvalidSignature where anything in it is not signed by whom it names."""
    group = evidence["group"]
    for one in evidence["words"]:
        signed = canonical(["zerochat/heads/1", group, one["heads"]])
        key_of(one["member"]).verify(raw(one["word"]), signed)
    events = {}
    for record in evidence["events"]:
        unsigned = {key: value for key, value in record.items() if key != "sig"}
        name = base64.urlsafe_b64encode(hashlib.sha256(canonical(unsigned)).digest()).rstrip(b"=").decode()
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
    return [json.loads(json.dumps(evidence_of(join))) for join in joins if join.contradiction], honest


@pytest.mark.slow
def test_evidence_holds_before_a_judge_who_knows_nothing_else():
    shown, honest = [], set()
    for seed in range(108, 148):
        shown, honest = shown_by(play_byzantine(seed, attacks=["hidden add", "two histories"]))
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
def test_no_evidence_convicts_anybody_who_keeps_the_rules(budget):
    seen = 0
    for seed in range(110, 110 + budget(30)):
        shown, honest = shown_by(play_byzantine(seed, attacks=["hidden add", "stale welcome", "lying word"]))
        seen += len(shown)
        for evidence in shown:
            assert verdict(evidence).isdisjoint(honest)
    assert seen


def test_two_events_in_one_place_convict_their_author_and_nobody_else():
    arena = play_byzantine(3, attacks=["two names"])
    bad = {group.me for name in arena.adversaries for group in arena.nodes[name].agent.groups.values()}
    seen = 0
    assert bad
    for name in arena.honest:
        for group in arena.nodes[name].agent.groups.values():
            for author, both in group.view.forked.items():
                events = [json.loads(json.dumps(group.control[event].wire)) for event in both]
                assert verdict({"group": group.id, "words": [], "events": events}) == {author} <= bad
                seen += 1
    assert seen


# --- what such histories have shown ---------------------------------------------------------------------------------


def test_seed_2274_whoever_was_demoted_once_can_step_down_again():
    """A demotion makes void what its target did without having seen it, and nothing that came after."""
    world = Small(2)
    group = world.ask("n0", CreateGroup("friends", "n0", world.envelope, policy=Policy.default("admins"))).result.group
    world.join("n1", world.invite(group))
    for actor, target, role in (("n0", "n1", "reader"), ("n0", "n1", "admin"), ("n1", "", "reader")):
        world.ask(actor, ChangeRole(group, target, role))
        world.run(for_ms=5_000)
        assert [world.group(name).view.members[world.group("n1").me].role for name in world.nodes] == [role, role]


def test_whoever_is_cut_off_while_it_compares_accuses_nobody():
    """It has a word of the others then that it cannot compare with anything."""
    world = Small(2)
    policy = Policy(remove="anyone", quorum=0, agreement="strict")
    group = world.ask("n0", CreateGroup("friends", "n0", world.envelope, policy=policy)).result.group
    world.ask("n1", AcceptInvitation(world.invite(group), "n1"))
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=10_000)
    frame = world._frame
    world._frame = lambda name, stimulus: frame(name, stimulus) if name == "n0" else None  # type: ignore[method-assign]
    world.run(for_ms=1_000)
    world.ask("n0", ChangeLabel(group, "somebody else"))
    turn = Turn(world.nodes["n0"].agent, Moment(world.now, world.dice.randbytes), SIMULATED_PACKERS)
    acknowledgements.send_sync(turn, group, world.group("n1").me)
    (said,) = [effect for effect in turn.effects if isinstance(effect, Dispatch)]
    world.hear("n1", Received(said.link, said.envelope))
    world.run(for_ms=60_000)
    assert all(join.contradiction is None for join in world.nodes["n1"].agent.joins.values())
    assert not any("do not say the same" in notice.text for _, notice in world.told)


class AnyoneRemoves(Hostile):
    def found(self, name="n0"):
        policy = Policy(remove="anyone", quorum=0)
        return self.ask(name, CreateGroup("friends", name, self.envelope, policy=policy)).result.group


def test_a_removal_that_only_its_target_hears_of_reaches_the_others_too():
    world = AnyoneRemoves()
    target = world.group("n1").me
    control = world.group("n1").control
    removal = world.event(
        type=REMOVE,
        deps=heads_of(control),
        lamport=world.group("n1").lamport + 1,
        body={"member": target, "after": 0},
    ).signed(world.mallory.seed)
    world.utter_event("n1", removal)
    world.run(for_ms=120_000)
    assert world.group("n1").state == "left"
    assert target not in world.group("n0").view.members


def late_quarantine():
    """Only the acceptor could be heard, so the newcomer has met its accomplice; then the founder contradicts it.

    Returns the world, the accomplice's key, and what has the founder hear the newcomer as well."""
    arena = Arena(1, 3, ["n1"], PERFECT)
    mallory, frame = arena.adversaries["n1"], arena._frame
    deaf = {"n2"}
    over = []

    def acquainted():
        found = arena.group("n2").relationships.get(arena.group("n0").me)
        return found is not None and found.established

    def lossy(to, stimulus):
        between_them = between(arena, stimulus.link, "n0", "n2")
        if over or not between_them or (to not in deaf and (to == "n2" or not acquainted())):
            frame(to, stimulus)

    arena._frame = lossy  # type: ignore[method-assign]
    group = arena.ask("n0", CreateGroup("friends", "n0", arena.envelope)).result.group
    arena.ask("n1", AcceptInvitation(arena.ask("n0", CreateInvitation(group, 3600, 1)).result.invitation, "n1"))
    arena.run(for_ms=9_000)
    hidden_add(mallory)
    mallory.brings_in = "both"
    arena.ask("n2", AcceptInvitation(arena.ask("n1", CreateInvitation(group, 3600, 1)).result.invitation, "n2"))
    assert arena.run(lambda: bool(arena.nodes["n2"].agent.groups), for_ms=5_000)
    mallory.turn_to(arena.group("n2").me, 1)
    arena.run(for_ms=9_000)
    eve = next(did for did, one in arena.group("n2").view.members.items() if one.label == "Eve of n1")
    assert eve in arena.group("n2").peers
    deaf.clear()
    if not arena.run(acquainted, for_ms=15_000):
        raise RuntimeError("this is about something else")
    turn = Turn(arena.nodes["n0"].agent, Moment(arena.now, arena.dice.randbytes), SIMULATED_PACKERS)
    newcomer = arena.group("n2").me
    outbox.send(turn, group, newcomer, [event for event in arena.group("n0").control.values() if event.seq == 1])
    acknowledgements.send_sync(turn, group, newcomer)
    for effect in turn.effects:
        if isinstance(effect, Dispatch):
            arena.hear("n2", Received(effect.link, effect.envelope))
    if eve not in arena.group("n2").quarantine:
        raise RuntimeError("this is about something else")
    return arena, eve, lambda: over.append(True)


def test_whoever_comes_into_quarantine_late_is_not_talked_to_any_more():
    arena, eve, _ = late_quarantine()
    arena.run(for_ms=60_000)
    assert eve not in arena.group("n2").peers


def test_whoever_keeps_somebody_in_quarantine_is_still_heard():
    arena, _, heal = late_quarantine()
    heal()
    arena.ask("n2", SendPost(arena.group("n2").id, "can you hear me?"))
    arena.run(for_ms=300_000)
    assert any(b"can you hear me?" in row.record for row in arena.nodes["n0"].log)


def between(arena, link, one, other):
    """Whether this is the link between the members at these nodes."""
    groups = [group for name in (one, other) for group in arena.nodes[name].agent.groups.values()]
    return len(groups) == 2 and link == member_link(groups[0].id, groups[0].me, groups[1].me)
