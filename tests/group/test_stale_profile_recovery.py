"""Members who say that a profile is older than it is: it forgets nothing, and is not silenced for long."""

import pytest

from tests.group.test_history import Cut
from tests.group.test_restored_profile import older
from zerochat.group.effects import Refuse
from zerochat.group.inputs import LeaveGroup, SendPost
from zerochat.group.links import mediator_mail
from zerochat.group.notifications import Regained
from zerochat.group.signed_streams import publisher
from zerochat.group.state.sync import Comparison, Regain
from zerochat.group.sync import history_requests, pull_requests, stale_profile


def copied(world):
    """What the machine of the first one has once it has said something, as a copy of that would have it."""
    world.post("n0", "one")
    world.run(for_ms=5_000)
    return world.nodes["n0"].agent, list(world.nodes["n0"].log)


def silent(world):
    """Whether the first one may say nothing now."""
    return stale_profile.suspended(world.nodes["n0"].agent.groups[world.id])


def claim(world, upto, *liars):
    """These say that they have the first one's chain so far."""
    turn = world.turn("n0")
    for liar in liars:
        stale_profile.hear(turn, world.id, world.did(liar), upto)
    world.perform("n0", turn)


def test_one_of_several_cannot_silence_a_member_and_two_not_for_long():
    world = Cut(members=3)
    world.bring_in("n1", "n2")
    turn = world.turn("n0")
    stale_profile.hear(turn, world.id, world.did("n1"), 1_000)
    world.perform("n0", turn)
    assert world.post("n0", "still here")
    turn = world.turn("n0")
    stale_profile.hear(turn, world.id, world.did("n2"), 2_000)
    world.perform("n0", turn)
    assert isinstance(world.ask("n0", SendPost(world.id, "silenced")), Refuse)
    world.run(for_ms=300_000)
    assert world.post("n0", "here again")


@pytest.mark.parametrize(("members", "liars"), [(3, 2), (8, 2), (27, 24)])
def test_however_many_lie_and_are_mute_a_member_is_not_silenced_for_long(members, liars):
    world = Cut(members=members)
    world.bring_in(*(f"n{number}" for number in range(1, members)))
    names = [f"n{number}" for number in range(1, 1 + liars)]
    world.deaf |= {frozenset({"n0", name}) for name in names}
    claim(world, 1_000, *names)
    assert isinstance(world.ask("n0", SendPost(world.id, "silenced")), Refuse)
    told = len(world.notices["n0"])
    world.run(for_ms=60_000)
    assert world.post("n0", "here again")
    assert any(isinstance(one, Regained) for one in world.notices["n0"][told:])
    state = world.nodes["n0"].agent.groups[world.id].regain
    assert not state.claims, "none of them is the second one of whom the next liar has need"


def test_whoever_is_asked_for_our_own_words_is_asked_for_nothing_else(monkeypatch):
    world = Cut(members=8)
    world.bring_in(*(f"n{number}" for number in range(1, 8)))
    ask, asked = pull_requests.ask_for, []

    def noted(turn, name, member, want, *args, **kwargs):
        asked.append((turn.group(name).me, member, {author for author, _, _ in want}))
        ask(turn, name, member, want, *args, **kwargs)

    monkeypatch.setattr(pull_requests, "ask_for", noted)
    liars = ("n1", "n2")
    world.deaf |= {frozenset({"n0", liar}) for liar in liars}  # they have claimed much, and answer nothing
    turn = world.turn("n0")
    for liar in liars:
        stale_profile.hear(turn, world.id, world.did(liar), 1_000)
        peer = turn.group(world.id).peers[world.did(liar)]
        tall = {world.did(f"n{number}"): 200 for number in range(3, 8)}
        turn.edit_peer(world.id, world.did(liar), acked={**peer.acked, **tall})
        differs = Comparison(begun=turn.now, places=((world.did("n3"), 1, "something else"),))
        turn.edit(world.id, comparisons={**turn.group(world.id).comparisons, world.did(liar): differs})
        turn.timer("compare", f"{world.id} {world.did(liar)}", 2_000)
    history_requests.seek(turn, world.id)
    world.perform("n0", turn)
    world.run(for_ms=20_000)
    me = world.did("n0")
    of_liars = [what for who, member, what in asked if who == me and member in map(world.did, liars)]
    assert of_liars == [{me}] * len(of_liars) and len(of_liars) > 4
    world.run(for_ms=40_000)
    assert world.post("n0", "here again")
    world.run(for_ms=120_000)
    assert any(me not in what for who, member, what in asked if who == me), "afterwards it is their turn again"


@pytest.mark.parametrize("silent_ms", [15_000, 30_000])
def test_the_only_other_one_may_be_mute_for_a_while(silent_ms):
    world = Cut(members=2)
    world.bring_in("n1")
    state, rows = copied(world)
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    older(world, "n0", state, rows)
    assert world.run(lambda: silent(world), for_ms=60_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    world.run(for_ms=silent_ms)
    assert isinstance(world.ask("n0", SendPost(world.id, "another two")), Refuse)
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


def test_whoever_is_slow_to_show_our_words_is_waited_for_though_others_were_quick_to_show_nothing(monkeypatch):
    world = Slow(members=4)
    world.bring_in("n1", "n2", "n3")
    state, rows = copied(world)
    liars = ("n2", "n3")
    world.deaf = {frozenset({name, liar}) for name in ("n0", "n1") for liar in liars}
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    older(world, "n0", state, rows)
    world.run(for_ms=1_000)
    holder, linked, patience = world.did("n1"), mediator_mail.linked, pull_requests.patience
    monkeypatch.setattr(mediator_mail, "linked", lambda turn, name, who: who != holder and linked(turn, name, who))
    monkeypatch.setattr(
        pull_requests, "patience", lambda turn, name, who: 120_000 if who == holder else patience(turn, name, who)
    )
    world.slow = frozenset({"n0", "n1"})
    turn = world.turn("n0")
    for name in liars:
        stale_profile.hear(turn, world.id, world.did(name), 1_000)
    stale_profile.hear(turn, world.id, holder, state.groups[world.id].seq + 2)
    world.perform("n0", turn)
    world.run(for_ms=50_000)
    assert isinstance(world.ask("n0", SendPost(world.id, "another two")), Refuse)
    world.run(lambda: not silent(world), for_ms=120_000)
    assert world.texts("n0") == ["one", "two", "three"]


def test_those_who_claim_it_one_after_the_other_silence_nobody_for_longer():
    world = Cut(members=12)
    world.bring_in(*(f"n{number}" for number in range(1, 12)))
    liars = [f"n{number}" for number in range(1, 11)]
    world.deaf |= {frozenset({"n0", liar}) for liar in liars}
    for number, liar in enumerate(liars):
        world.after(28_000 * max(0, number - 1), lambda liar=liar: claim(world, 1_000, liar))
    world.run(for_ms=100)
    begun = world.now
    assert world.run(lambda: not silent(world), for_ms=300_000)
    assert world.now - begun <= (stale_profile.ROUNDS_MAX + 1) * stale_profile.RETRY_MS + pull_requests.PATIENCE_MS


def test_whoever_comes_and_goes_is_waited_for_no_longer_than_whoever_is_there(monkeypatch):
    """Where it is asked by mail, and connected again at once, mail's patience does not count."""
    world = Cut(members=5)
    world.bring_in("n1", "n2", "n3", "n4")
    liars, me = ("n1", "n2"), world.did("n0")
    world.deaf |= {frozenset({"n0", liar}) for liar in liars}
    by_mail, flapping = mediator_mail.by_mail, world.did("n1")

    def flaps(turn, name, member):
        group = turn.group(name)
        gone = (group.me, member) == (me, flapping) and member not in group.errands
        return gone or by_mail(turn, name, member)

    monkeypatch.setattr(mediator_mail, "by_mail", flaps)
    claim(world, 1_000, *liars)
    world.run(for_ms=60_000)
    assert world.post("n0", "here again")


@pytest.mark.parametrize("members", [2, 4])
def test_an_outage_is_not_held_against_those_who_were_asked_before_it(members):
    world = Cut(members=members)
    others = [f"n{number}" for number in range(1, members)]
    world.bring_in(*others)
    state, rows = copied(world)
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    older(world, "n0", state, rows)
    assert world.run(lambda: silent(world), for_ms=60_000)
    for other in others:  # what they answer is lost with the link
        world.kill(other)
    world.run(for_ms=10 * 60_000)
    world.deaf.clear()
    for other in others:
        world.restart(other)
    world.run(for_ms=60_000)
    assert world.texts("n0") == ["one", "two", "three"]


def test_whoever_is_alone_in_saying_so_is_asked_once_there_is_nobody_else():
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
    world.ask("n2", LeaveGroup(world.id))
    world.run(for_ms=120_000)
    assert world.texts("n0") == ["one", "two", "three"]


@pytest.mark.parametrize("fickle", [("n2",), ("n1", "n2")])
def test_whoever_takes_it_back_for_a_moment_does_not_begin_anew(fickle):
    world = Cut(members=5)
    world.bring_in("n1", "n2", "n3", "n4")
    world.deaf |= {frozenset({"n0", "n1"}), frozenset({"n0", "n2"})}
    for _ in range(4):
        claim(world, 1_000, "n1", "n2")
        world.run(for_ms=25_000)
        claim(world, 0, *fickle)
        world.run(for_ms=100)
    assert {world.did("n1"), world.did("n2")} == world.nodes["n0"].agent.groups[world.id].regain.ignored


def test_whoever_is_away_is_waited_for_a_while_though_another_one_has_nothing_to_show():
    world = Cut(members=4)
    world.bring_in("n1", "n2", "n3")
    state, rows = copied(world)
    world.deaf = {frozenset({name, other}) for name in ("n0", "n2") for other in ("n1", "n3")}
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    older(world, "n0", state, rows)
    world.run(for_ms=1_000)
    world.kill("n2")
    turn = world.turn("n0")
    for name in ("n1", "n2"):
        stale_profile.hear(turn, world.id, world.did(name), state.groups[world.id].seq + 2)
    world.perform("n0", turn)
    world.run(for_ms=60_000)
    assert isinstance(world.ask("n0", SendPost(world.id, "another two")), Refuse)
    world.deaf = {frozenset({"n0", "n1"})}  # or it would take back what it has never said
    world.restart("n2")
    world.run(for_ms=60_000)
    assert world.texts("n0") == ["one", "two", "three"]


def test_whoever_was_asked_by_mail_is_asked_again_once_it_is_connected(monkeypatch):
    world = Cut(members=2)
    world.bring_in("n1")
    state, rows = copied(world)
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    linked, way, send = mediator_mail.linked, mediator_mail.way_to, mediator_mail.send
    me, there = world.did("n0"), [False]

    def only_mail(turn, name):
        return turn.group(name).me == me and not there[0]

    # Its mediator takes what it is sent, and nobody fetches that.
    monkeypatch.setattr(
        mediator_mail, "linked", lambda turn, name, who: not only_mail(turn, name) and linked(turn, name, who)
    )
    monkeypatch.setattr(mediator_mail, "way_to", lambda turn, name, who: only_mail(turn, name) or way(turn, name, who))
    monkeypatch.setattr(mediator_mail, "reachable", lambda turn, name, who: True)
    monkeypatch.setattr(
        mediator_mail, "send", lambda turn, name, *what: only_mail(turn, name) or send(turn, name, *what)
    )
    older(world, "n0", state, rows)
    turn = world.turn("n0")
    stale_profile.hear(turn, world.id, world.did("n1"), state.groups[world.id].seq + 2)
    world.perform("n0", turn)
    world.run(for_ms=300_000)
    there[0] = True
    world.run(for_ms=60_000)
    assert world.texts("n0") == ["one", "two", "three"]


def test_whoever_is_not_believed_any_more_makes_nobody_begin_anew(monkeypatch):
    world = Cut(members=5)
    world.bring_in("n1", "n2", "n3", "n4")
    began = []
    turn = world.turn("n0")
    turn.edit(
        world.id, regain=Regain(claims={world.did("n2"): 9, world.did("n3"): 9}, ignored=frozenset({world.did("n1")}))
    )
    monkeypatch.setattr(publisher, "begin_anew", lambda turn, name: began.append(name))
    for name in ("n1", "n4"):
        for _ in range(3):
            stale_profile.hear(turn, world.id, world.did(name), 9)
    assert began == [world.id], "for the first word of the one who is believed"


def test_that_we_may_speak_again_is_said_once():
    world = Cut(members=5)
    world.bring_in("n1", "n2", "n3", "n4")
    liars = ("n1", "n2")
    world.deaf |= {frozenset({"n0", liar}) for liar in liars}
    claim(world, 1_000, *liars)
    world.run(for_ms=60_000)
    for text in ("one", "two", "three"):
        world.post("n0", text)
        world.run(for_ms=5_000)
    assert sum(isinstance(one, Regained) for one in world.notices["n0"]) == 1


def test_nobody_counts_as_one_who_has_nothing_before_it_was_asked():
    world = Cut(members=10)
    world.bring_in(*(f"n{number}" for number in range(1, 10)))
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    last = max((f"n{number}" for number in range(1, 10)), key=world.did)
    world.deaf |= {frozenset({name, last}) for name in world.nodes} - {frozenset({"n0", last}), frozenset({last})}
    world.post("n0", "one", "two")
    world.run(for_ms=2_000)
    world.deaf = {frozenset({"n0", name}) for name in world.nodes if name != last}
    older(world, "n0", state, rows)
    turn = world.turn("n0")
    for number in range(1, 10):
        stale_profile.hear(turn, world.id, world.did(f"n{number}"), world.nodes["n0"].agent.groups[world.id].seq + 2)
    world.perform("n0", turn)
    world.run(for_ms=60_000)
    assert world.texts("n0") == ["one", "two"]
