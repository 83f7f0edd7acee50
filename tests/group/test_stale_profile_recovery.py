"""False claims that a profile is stale: nothing is lost and sending is delayed only briefly."""

import pytest

from tests.support.cut_world import Cut
from tests.support.restored_world import older
from zerochat.group.effects import CommandFailed
from zerochat.group.inputs import LeaveGroup, SendPost
from zerochat.group.links import mediator_mail
from zerochat.group.notifications import RecoveryEnded
from zerochat.group.signed_streams import publisher
from zerochat.group.state.sync import Comparison, Recovery
from zerochat.group.sync import history_requests, pull_requests, stale_profile
from zerochat.group.timer_kinds import TimerKind


def copied(world):
    """The state of the first member's machine after it has posted, as a copy of it would have it."""
    world.post("n0", "one")
    world.run(for_ms=5_000)
    return world.nodes["n0"].agent, list(world.nodes["n0"].log)


def silent(world):
    """Whether the first member is suspended now."""
    return stale_profile.is_suspended(world.nodes["n0"].agent.groups[world.id])


def claim(world, upto, *liars):
    """These members claim the first one's chain up to here."""
    tx = world.tx("n0")
    for liar in liars:
        stale_profile.receive_claim(tx, world.id, world.did(liar), upto)
    world.perform("n0", tx)


def test_false_claims_cannot_silence_a_member_for_long():
    world = Cut(members=3)
    world.bring_in("n1", "n2")
    tx = world.tx("n0")
    stale_profile.receive_claim(tx, world.id, world.did("n1"), 1_000)
    world.perform("n0", tx)
    assert world.post("n0", "still here")
    tx = world.tx("n0")
    stale_profile.receive_claim(tx, world.id, world.did("n2"), 2_000)
    world.perform("n0", tx)
    assert isinstance(world.run_command("n0", SendPost(world.id, "silenced")), CommandFailed)
    world.run(for_ms=300_000)
    assert world.post("n0", "here again")


@pytest.mark.parametrize(("members", "liars"), [(3, 2), (8, 2), pytest.param(27, 24, marks=pytest.mark.slow)])
def test_many_mute_liars_cannot_silence_a_member(members, liars):
    world = Cut(members=members)
    world.bring_in(*(f"n{number}" for number in range(1, members)))
    names = [f"n{number}" for number in range(1, 1 + liars)]
    world.deaf |= {frozenset({"n0", name}) for name in names}
    claim(world, 1_000, *names)
    assert isinstance(world.run_command("n0", SendPost(world.id, "silenced")), CommandFailed)
    told = len(world.notices["n0"])
    world.run(for_ms=60_000)
    assert world.post("n0", "here again")
    assert any(isinstance(one, RecoveryEnded) for one in world.notices["n0"][told:])
    state = world.nodes["n0"].agent.groups[world.id].sync.recovery
    assert not state.claims, "none of them is the second one of whom the next liar has need"


def test_a_queried_claimant_gets_no_other_request(monkeypatch):
    world = Cut(members=8)
    world.bring_in(*(f"n{number}" for number in range(1, 8)))
    ask, asked = pull_requests.send, []

    def noted(tx, name, member, want, *args, **kwargs):
        asked.append((tx.group(name).me, member, {author for author, _, _ in want}))
        ask(tx, name, member, want, *args, **kwargs)

    monkeypatch.setattr(pull_requests, "send", noted)
    liars = ("n1", "n2")
    world.deaf |= {frozenset({"n0", liar}) for liar in liars}  # they have claimed much, and answer nothing
    tx = world.tx("n0")
    for liar in liars:
        stale_profile.receive_claim(tx, world.id, world.did(liar), 1_000)
        links = tx.group(world.id).links
        tall = {world.did(f"n{number}"): 200 for number in range(3, 8)}
        told = {**links.acks_of(world.did(liar)), **tall}
        tx.update_group(world.id, links=links.with_acks(world.did(liar), told))
        for author in tall:
            tx.mark_ahead(world.id, author)
        differs = Comparison(started_at=tx.now, differing=((world.did("n3"), 1, "something else"),))
        tx.update_sync(world.id, comparisons={**tx.group(world.id).sync.comparisons, world.did(liar): differs})
        tx.set_timer(TimerKind.COMPARE, f"{world.id} {world.did(liar)}", 2_000)
    history_requests.request_missing(tx, world.id)
    world.perform("n0", tx)
    world.run(for_ms=20_000)
    me = world.did("n0")
    of_liars = [what for who, member, what in asked if who == me and member in map(world.did, liars)]
    assert of_liars == [{me}] * len(of_liars) and len(of_liars) > 4
    world.run(for_ms=40_000)
    assert world.post("n0", "here again")
    world.run(for_ms=120_000)
    assert any(me not in what for who, member, what in asked if who == me), "afterwards it is their turn again"


@pytest.mark.parametrize("silent_ms", [15_000, 30_000])
def test_the_only_other_member_may_be_silent_for_a_while(silent_ms):
    world = Cut(members=2)
    world.bring_in("n1")
    state, rows = copied(world)
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    older(world, "n0", state, rows)
    assert world.run(lambda: silent(world), for_ms=60_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    world.run(for_ms=silent_ms)
    assert isinstance(world.run_command("n0", SendPost(world.id, "another two")), CommandFailed)
    world.deaf.clear()
    world.run(for_ms=60_000)
    assert world.texts("n0") == ["one", "two", "three"]


class Slow(Cut):
    """The way between two of them is long: to and fro it takes longer than others may be silent."""

    slow = frozenset[str]()
    WAY_MS = 40_000

    def _frame(self, name, stimulus):
        if frozenset({self.speaking, name}) != self.slow:
            return super()._frame(name, stimulus)
        sender = self.speaking

        def arrive():
            speaking, self.speaking = self.speaking, sender
            super(Slow, self)._frame(name, stimulus)
            self.speaking = speaking

        return self.after(self.WAY_MS, arrive)


def test_a_slow_claimant_is_waited_for(monkeypatch):
    world = Slow(members=4)
    world.bring_in("n1", "n2", "n3")
    state, rows = copied(world)
    liars = ("n2", "n3")
    world.deaf = {frozenset({name, liar}) for name in ("n0", "n1") for liar in liars}
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    older(world, "n0", state, rows)
    world.run(for_ms=1_000)
    holder, linked, patience = world.did("n1"), mediator_mail.is_connected, pull_requests.timeout_ms
    monkeypatch.setattr(mediator_mail, "is_connected", lambda tx, name, who: who != holder and linked(tx, name, who))
    monkeypatch.setattr(
        pull_requests, "timeout_ms", lambda tx, name, who: 120_000 if who == holder else patience(tx, name, who)
    )
    world.slow = frozenset({"n0", "n1"})
    tx = world.tx("n0")
    for name in liars:
        stale_profile.receive_claim(tx, world.id, world.did(name), 1_000)
    stale_profile.receive_claim(tx, world.id, holder, state.groups[world.id].seq + 2)
    world.perform("n0", tx)
    world.run(for_ms=50_000)
    assert isinstance(world.run_command("n0", SendPost(world.id, "another two")), CommandFailed)
    world.run(lambda: not silent(world), for_ms=120_000)
    assert world.texts("n0") == ["one", "two", "three"]


@pytest.mark.slow
def test_successive_claims_do_not_prolong_the_silence():
    world = Cut(members=12)
    world.bring_in(*(f"n{number}" for number in range(1, 12)))
    liars = [f"n{number}" for number in range(1, 11)]
    world.deaf |= {frozenset({"n0", liar}) for liar in liars}
    for number, liar in enumerate(liars):
        world.after(28_000 * max(0, number - 1), lambda liar=liar: claim(world, 1_000, liar))
    world.run(for_ms=100)
    begun = world.now
    assert world.run(lambda: not silent(world), for_ms=300_000)
    assert world.now - begun <= (stale_profile.ROUNDS_MAX + 1) * stale_profile.RETRY_MS + pull_requests.TIMEOUT_MS


def test_a_flapping_claimant_is_not_waited_for_longer(monkeypatch):
    """If it is asked by mail and connected again at once, the timeout of mail does not count."""
    world = Cut(members=5)
    world.bring_in("n1", "n2", "n3", "n4")
    liars, me = ("n1", "n2"), world.did("n0")
    world.deaf |= {frozenset({"n0", liar}) for liar in liars}
    by_mail, flapping = mediator_mail.goes_by_mail, world.did("n1")

    def flaps(tx, name, member):
        group = tx.group(name)
        gone = (group.me, member) == (me, flapping) and member not in group.sync.pull_requests
        return gone or by_mail(tx, name, member)

    monkeypatch.setattr(mediator_mail, "goes_by_mail", flaps)
    claim(world, 1_000, *liars)
    world.run(for_ms=60_000)
    assert world.post("n0", "here again")


@pytest.mark.parametrize("members", [2, 4])
def test_an_outage_does_not_count_against_claimants(members):
    world = Cut(members=members)
    others = [f"n{number}" for number in range(1, members)]
    world.bring_in(*others)
    state, rows = copied(world)
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    older(world, "n0", state, rows)
    assert world.run(lambda: silent(world), for_ms=60_000)
    for other in others:  # their answers are lost with the link
        world.kill(other)
    world.run(for_ms=10 * 60_000)
    world.deaf.clear()
    for other in others:
        world.restart(other)
    world.run(for_ms=60_000)
    assert world.texts("n0") == ["one", "two", "three"]


def test_a_single_claimant_is_queried_when_alone():
    world = Cut(members=3)
    world.bring_in("n1", "n2")
    state, rows = copied(world)
    world.deaf = {frozenset({"n2", "n0"}), frozenset({"n2", "n1"})}
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    world.deaf = {frozenset({"n2", "n1"})}
    older(world, "n0", state, rows)
    world.run(for_ms=30_000)
    assert not silent(world)
    world.run_command("n2", LeaveGroup(world.id))
    world.run(for_ms=120_000)
    assert world.texts("n0") == ["one", "two", "three"]


@pytest.mark.parametrize("fickle", [("n2",), ("n1", "n2")])
def test_a_withdrawn_claim_does_not_restart_recovery(fickle):
    world = Cut(members=5)
    world.bring_in("n1", "n2", "n3", "n4")
    world.deaf |= {frozenset({"n0", "n1"}), frozenset({"n0", "n2"})}
    for _ in range(4):
        claim(world, 1_000, "n1", "n2")
        world.run(for_ms=25_000)
        claim(world, 0, *fickle)
        world.run(for_ms=100)
    assert {world.did("n1"), world.did("n2")} == world.nodes["n0"].agent.groups[world.id].sync.recovery.ignored


def test_an_absent_claimant_is_waited_for_a_while():
    world = Cut(members=4)
    world.bring_in("n1", "n2", "n3")
    state, rows = copied(world)
    world.deaf = {frozenset({name, other}) for name in ("n0", "n2") for other in ("n1", "n3")}
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    older(world, "n0", state, rows)
    world.run(for_ms=1_000)
    world.kill("n2")
    tx = world.tx("n0")
    for name in ("n1", "n2"):
        stale_profile.receive_claim(tx, world.id, world.did(name), state.groups[world.id].seq + 2)
    world.perform("n0", tx)
    world.run(for_ms=60_000)
    assert isinstance(world.run_command("n0", SendPost(world.id, "another two")), CommandFailed)
    world.deaf = {frozenset({"n0", "n1"})}  # or it would withdraw a claim that it has never made
    world.restart("n2")
    world.run(for_ms=60_000)
    assert world.texts("n0") == ["one", "two", "three"]


def test_a_claimant_queried_by_mail_is_queried_over_the_link(monkeypatch):
    world = Cut(members=2)
    world.bring_in("n1")
    state, rows = copied(world)
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    linked, way, send = mediator_mail.is_connected, mediator_mail.route_to, mediator_mail.send
    me, there = world.did("n0"), [False]

    def only_mail(tx, name):
        return tx.group(name).me == me and not there[0]

    # Its mediator accepts its messages, and they are never fetched.
    monkeypatch.setattr(
        mediator_mail, "is_connected", lambda tx, name, who: not only_mail(tx, name) and linked(tx, name, who)
    )
    monkeypatch.setattr(mediator_mail, "route_to", lambda tx, name, who: only_mail(tx, name) or way(tx, name, who))
    monkeypatch.setattr(mediator_mail, "reachable", lambda tx, name, who: True)
    monkeypatch.setattr(mediator_mail, "send", lambda tx, name, *what: only_mail(tx, name) or send(tx, name, *what))
    older(world, "n0", state, rows)
    tx = world.tx("n0")
    stale_profile.receive_claim(tx, world.id, world.did("n1"), state.groups[world.id].seq + 2)
    world.perform("n0", tx)
    world.run(for_ms=300_000)
    there[0] = True
    world.run(for_ms=60_000)
    assert world.texts("n0") == ["one", "two", "three"]


def test_an_ignored_claimant_causes_no_renewal(monkeypatch):
    world = Cut(members=5)
    world.bring_in("n1", "n2", "n3", "n4")
    began = []
    tx = world.tx("n0")
    tx.update_sync(
        world.id,
        recovery=Recovery(claims={world.did("n2"): 9, world.did("n3"): 9}, ignored=frozenset({world.did("n1")})),
    )
    monkeypatch.setattr(publisher, "restart_stream", lambda tx, name: began.append(name))
    for name in ("n1", "n4"):
        for _ in range(3):
            stale_profile.receive_claim(tx, world.id, world.did(name), 9)
    assert began == [world.id], "for the first word of the one who is believed"


def test_the_end_of_recovery_is_notified_once():
    world = Cut(members=5)
    world.bring_in("n1", "n2", "n3", "n4")
    liars = ("n1", "n2")
    world.deaf |= {frozenset({"n0", liar}) for liar in liars}
    claim(world, 1_000, *liars)
    world.run(for_ms=60_000)
    for text in ("one", "two", "three"):
        world.post("n0", text)
        world.run(for_ms=5_000)
    assert sum(isinstance(one, RecoveryEnded) for one in world.notices["n0"]) == 1


def test_a_claimant_is_ignored_only_after_requests():
    world = Cut(members=10)
    world.bring_in(*(f"n{number}" for number in range(1, 10)))
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    last = max((f"n{number}" for number in range(1, 10)), key=world.did)
    world.deaf |= {frozenset({name, last}) for name in world.nodes} - {frozenset({"n0", last}), frozenset({last})}
    world.post("n0", "one", "two")
    world.run(for_ms=2_000)
    world.deaf = {frozenset({"n0", name}) for name in world.nodes if name != last}
    older(world, "n0", state, rows)
    tx = world.tx("n0")
    for number in range(1, 10):
        stale_profile.receive_claim(
            tx, world.id, world.did(f"n{number}"), world.nodes["n0"].agent.groups[world.id].seq + 2
        )
    world.perform("n0", tx)
    world.run(for_ms=60_000)
    assert world.texts("n0") == ["one", "two"]
