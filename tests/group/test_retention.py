"""Retention: expired content is erased everywhere, and the log stays complete and verifiable."""

import pytest
from msgspec.structs import replace

from tests.support.cut_world import Cut
from zerochat.errors import Malformed, Refused
from zerochat.group import retention
from zerochat.group.effects import CommandDone, CommandFailed, EraseContent
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import CONTROL, EXPIRED, MARK, POST, load_event, parse_event
from zerochat.group.inputs import ChooseRetention, ClockSet, CreateGroup, Started
from zerochat.group.membership import Policy
from zerochat.group.notifications import ContentExpired, DifferenceFound, EventsRefuted, ForkDetected, ViewChanged
from zerochat.group.sync import stale_profile

HOUR = 3_600_000
DAY = 24 * HOUR
RULE = Policy(keep=HOUR)


class Keeping(Cut):
    """Members of a group with a retention rule, of whom some are away for a while."""

    def __init__(self, members=3, policy=RULE, keys="pairwise-multi"):
        self.keys = keys
        super().__init__(members, policy)

    def run_command(self, name, command):
        if isinstance(command, CreateGroup):
            command = replace(command, keys=self.keys)
        return super().run_command(name, command)

    def part(self, *names):
        """These cannot be reached by others."""
        others = self.nodes.keys() - set(names)
        self.deaf |= {frozenset({name, other}) for name in names for other in others}

    def meet(self):
        self.deaf.clear()

    def group(self, name):
        return self.nodes[name].agent.groups[self.id]

    def rows(self, name, type_):
        return [row for row in self.nodes[name].log if row.type == type_]

    def expired(self, name):
        return {row.id for row in self.rows(name, EXPIRED)}

    def is_complete(self, *names):
        """Whether these have the same log, in which nothing is missing."""
        logs = [{row.id for row in self.nodes[name].log} for name in names]
        heads = [
            {did: chain.head_id for did, chain in self.group(name).log.chains.items() if chain.seq} for name in names
        ]
        gaps = [gap for name in names for gap in self.group(name).sync.gaps]
        return all(log == logs[0] for log in logs) and all(one == heads[0] for one in heads) and not gaps

    def suspicions(self):
        """Notifications that accuse a member."""
        found = [notice for notices in self.notices.values() for notice in notices]
        refuted = [notice for notice in found if isinstance(notice, EventsRefuted) and notice.relayed_by]
        return [*refuted, *(notice for notice in found if isinstance(notice, DifferenceFound | ForkDetected))]


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single", "sender-key"])
def test_content_expires_for_all_and_the_log_stays_complete(keys):
    world = Keeping(keys=keys)
    world.bring_in("n1", "n2")
    posts = world.post("n0", "one") + world.post("n1", "two")
    world.run(for_ms=HOUR // 2)
    assert world.texts("n2") == ["one", "two"]
    late = world.post("n2", "three")
    world.run(for_ms=HOUR * 3 // 4)
    for name in world.nodes:
        assert world.texts(name) == ["three"] and world.expired(name) == set(posts)
        assert not any(text in row.record for row in world.nodes[name].log for text in (b"one", b"two"))
        assert all(load_event(row.record).id == row.id for row in world.nodes[name].log)
        assert [one.group for one in world.notices[name] if isinstance(one, ContentExpired)]
    world.run(for_ms=HOUR)
    assert world.expired("n1") == {*posts, *late} and world.is_complete("n0", "n1", "n2")
    assert not any(one.key for node in world.nodes.values() for one in node.signed)
    assert not world.suspicions()


@pytest.mark.parametrize("keys", ["pairwise-multi", "sender-key"])
def test_a_member_that_was_away_gets_the_places_and_no_content(keys):
    world = Keeping(keys=keys)
    world.bring_in("n1", "n2")
    world.part("n2")
    missed = world.post("n0", "one", "two")
    world.run(for_ms=3 * HOUR)
    world.post("n0", "three")
    world.run(for_ms=10_000)
    assert not {row.id for row in world.nodes["n2"].log} & set(missed)
    world.meet()
    world.run(for_ms=HOUR // 4)
    assert world.expired("n2") == set(missed) and world.texts("n2") == ["three"]
    assert world.is_complete("n0", "n1", "n2") and not world.suspicions()
    world.post("n0", "four")
    world.run(for_ms=20_000)
    assert world.texts("n2") == ["three", "four"]


def test_expired_events_of_an_absent_author_come_from_others():
    world = Keeping(members=4)
    world.bring_in("n1", "n2", "n3")
    world.part("n2")
    missed = world.post("n0", "one", "two")
    world.run(for_ms=3 * HOUR)
    world.kill("n0")
    world.deaf = {pair for pair in world.deaf if "n0" in pair}
    world.run(for_ms=HOUR // 2)
    assert world.expired("n2") == set(missed)
    assert not world.group("n2").sync.gaps and not world.suspicions()


@pytest.mark.parametrize("keys", ["pairwise-multi", "sender-key"])
def test_a_new_member_gets_nothing_that_has_expired(keys):
    world = Keeping(keys=keys)
    world.bring_in("n1")
    world.post("n0", "one")
    world.run(for_ms=2 * HOUR)
    world.post("n1", "two")
    world.bring_in("n2")
    world.run(for_ms=60_000)
    assert world.texts("n2") == ["two"] and not world.expired("n2")
    assert not world.group("n2").sync.gaps


def test_content_is_not_taken_away_before_its_time():
    world = Keeping()
    world.bring_in("n1")
    world.part("n1")
    world.post("n0", "one")
    (row,) = world.rows("n0", POST)
    event = load_event(row.record)
    tx = world.tx("n1")
    with pytest.raises(Refused, match="before its time"):
        receiving.receive_event(tx, world.id, world.did("n0"), event.erased())
    receiving.receive_event(tx, world.id, world.did("n0"), event)
    world.now += HOUR
    tx = world.tx("n1")
    receiving.receive_event(tx, world.id, world.did("n0"), event.erased())
    assert tx.group(world.id).chain(world.did("n0")).head_id == event.id


def test_without_a_rule_content_is_never_taken_away():
    world = Keeping(policy=Policy())
    world.bring_in("n1")
    world.part("n1")
    world.post("n0", "one")
    (row,) = world.rows("n0", POST)
    world.now += 365 * DAY
    with pytest.raises(Refused, match="before its time"):
        receiving.receive_event(world.tx("n1"), world.id, world.did("n0"), load_event(row.record).erased())


def test_expired_content_that_arrives_late_is_stored_without_content():
    world = Keeping()
    world.bring_in("n1")
    world.part("n1")
    world.post("n0", "one")
    event = load_event(world.rows("n0", POST)[0].record)
    world.run(for_ms=2 * HOUR)
    tx = world.tx("n1")
    retention.run_round(tx)
    receiving.receive_event(tx, world.id, world.did("n0"), event)
    world.perform("n1", tx)
    assert world.expired("n1") == {event.id} and b"one" not in world.rows("n1", EXPIRED)[0].record


def test_the_answers_to_others_have_no_expired_content_before_the_round():
    world = Keeping()
    world.bring_in("n1")
    world.post("n0", "one")
    event = load_event(world.rows("n0", POST)[0].record)
    tx = world.tx("n0")
    assert retention.for_others(tx, world.id, [event]) == [event]
    tx.update_agent(trusted_time=world.now + 2 * HOUR)
    tx.context = replace(tx.context, now=world.now + 2 * HOUR)
    assert retention.for_others(tx, world.id, [event]) == [event.erased()]


def test_a_choice_counts_for_our_own_disk_alone():
    world = Keeping(policy=Policy())
    world.bring_in("n1", "n2")
    posts = world.post("n0", "one") + world.post("n1", "two")
    assert isinstance(world.run_command("n0", ChooseRetention(world.id, HOUR)), CommandDone)
    world.run(for_ms=2 * HOUR)
    assert world.expired("n0") == set(posts) and world.texts("n1") == ["one", "two"]
    assert world.is_complete("n0", "n1", "n2") and not world.suspicions()
    tx = world.tx("n0")
    events = [load_event(row.record) for row in world.rows("n0", EXPIRED)]
    assert events and not retention.for_others(tx, world.id, events), "others ask members that still have it"


def test_clients_are_notified_of_a_choice():
    world = Keeping(policy=Policy())
    world.notices["n0"].clear()
    world.run_command("n0", ChooseRetention(world.id, HOUR))
    assert ViewChanged(world.id) in world.notices["n0"]


def test_under_a_choice_alone_our_posts_stay_until_all_have_them():
    world = Keeping(policy=Policy())
    world.bring_in("n1", "n2")
    world.part("n2")
    world.run_command("n0", ChooseRetention(world.id, HOUR))
    world.post("n0", "one")
    theirs = world.post("n1", "two")
    world.run(for_ms=2 * HOUR)
    assert world.texts("n0") == ["one"] and world.expired("n0") == set(theirs)
    world.meet()
    world.run(for_ms=HOUR // 2)
    assert world.texts("n0") == [] and world.texts("n2") == ["one", "two"]


def test_the_shortest_rule_counts():
    world = Keeping(policy=Policy(keep=2 * HOUR))
    agent, group = world.nodes["n0"].agent, world.group("n0")
    assert retention.keep_ms(agent, group) == 2 * HOUR
    assert retention.keep_ms(replace(agent, keep_ms=HOUR), group) == HOUR
    assert retention.keep_ms(replace(agent, keep_ms=DAY), group) == 2 * HOUR
    chosen = replace(group, retention=replace(group.retention, choice=HOUR))
    assert retention.keep_ms(replace(agent, keep_ms=DAY), chosen) == HOUR
    assert retention.keep_ms(agent, replace(chosen, view=replace(group.view, has_tlog=True))) == 0


def erased_before(tx):
    return [effect.before for effect in tx.effects if isinstance(effect, EraseContent)]


def round_at(world, now):
    tx = world.tx("n0")
    tx.context = replace(tx.context, now=now)
    retention.run_round(tx)
    world.nodes["n0"].agent = tx.agent
    return tx


def leap(world, by_ms):
    """The clock is set, and the system reports it."""
    world.now += by_ms
    world.process("n0", ClockSet(by_ms))


def reboot(world, by_ms):
    """The machine starts again with a time that is so much later."""
    world.now += by_ms
    node = world.nodes["n0"]
    world.process("n0", Started(node.address, node.queue_address, node.server_key, rebooted=True))


def report(world, at, now):
    """A member reports its time to n0."""
    tx = world.tx("n0")
    tx.context = replace(tx.context, now=now)
    retention.confirm_clock(tx, at)
    world.nodes["n0"].agent = tx.agent


@pytest.mark.parametrize("change", [leap, reboot])
@pytest.mark.parametrize("by_ms", [3 * HOUR, 365 * DAY])
def test_a_leap_of_the_clock_erases_nothing_until_the_time_has_passed(change, by_ms):
    world = Keeping()
    (kept,) = world.post("n0", "one")
    world.run(for_ms=HOUR // 4)
    change(world, by_ms)
    world.run(for_ms=HOUR // 2)
    assert world.texts("n0") == ["one"]
    world.run(for_ms=HOUR // 2)
    assert world.expired("n0") == {kept}, "an hour has passed by the clock that counts since the boot"


@pytest.mark.parametrize("change", [leap, reboot])
def test_a_leap_that_is_taken_back_changes_nothing(change):
    world = Keeping()
    (kept,) = world.post("n0", "one")
    change(world, 3 * HOUR)
    world.run(for_ms=HOUR // 4)
    leap(world, -3 * HOUR)
    (row,) = world.rows("n0", POST)
    assert not any(before > row.lamport for before in erased_before(round_at(world, row.lamport + HOUR - 1)))
    (before,) = erased_before(round_at(world, row.lamport + HOUR + 1))
    assert before > row.lamport and row.id == kept


def test_time_off_counts_once_a_member_confirms_it():
    world = Keeping()
    world.bring_in("n1", "n2")
    (kept,) = world.post("n1", "one")
    world.run(for_ms=HOUR // 4)
    world.part("n0")
    world.stop("n0")
    world.run(for_ms=3 * HOUR)
    world.start("n0", anew=True)
    world.run(for_ms=HOUR // 4)
    assert world.texts("n0") == ["one"]
    world.meet()
    world.run(for_ms=HOUR // 4)
    assert world.expired("n0") == {kept}


def test_a_clock_ahead_from_the_start_erases_nothing_early():
    world = Keeping()
    world.bring_in("n1")
    world.post("n1", "one")
    world.run(for_ms=10_000)
    agent = world.nodes["n0"].agent
    world.nodes["n0"].agent = replace(agent, is_time_known=False, trusted_time=0, unconfirmed_ms=0)
    ahead = world.now + 3 * HOUR
    (before,) = erased_before(round_at(world, ahead))
    assert before <= world.now - HOUR, "the message of the other member tells its time"
    report(world, world.now, ahead)
    assert world.nodes["n0"].agent.unconfirmed_ms == 3 * HOUR
    (before,) = erased_before(round_at(world, ahead + HOUR // 2))
    assert before <= world.now - HOUR // 2


def test_a_members_time_confirms_the_clock():
    world = Keeping()
    report(world, world.now, world.now)
    reboot(world, 30 * DAY)
    report(world, world.now - DAY, world.now)
    assert world.nodes["n0"].agent.unconfirmed_ms == DAY
    report(world, world.now - 2 * DAY, world.now)
    assert world.nodes["n0"].agent.unconfirmed_ms == DAY, "an older report takes nothing back"
    report(world, world.now + 400 * DAY, world.now)
    assert world.nodes["n0"].agent.unconfirmed_ms == 0
    assert world.nodes["n0"].agent.trusted_time == world.now, "no member makes our clock run ahead"


def test_our_own_posts_do_not_confirm_the_clock():
    world = Keeping()
    report(world, world.now, world.now)
    begun = world.now
    reboot(world, 365 * DAY)
    world.post("n0", "one")
    assert all(before <= begun for before in erased_before(round_at(world, world.now)))


def test_our_own_expired_posts_carry_our_mark():
    world = Keeping()
    world.post("n0", "one")
    event = load_event(world.rows("n0", POST)[0].record)
    assert stale_profile.is_ours(world.group("n0"), event.erased())
    assert not stale_profile.is_ours(world.group("n0"), replace(event.erased(), lamport=event.lamport + 1))


def test_posts_of_equal_text_have_different_hashes():
    world = Keeping()
    world.post("n0", "yes", "yes")
    first, second = (load_event(row.record) for row in world.rows("n0", POST))
    assert first.body_hash != second.body_hash and first.body["salt"] != second.body["salt"]


def test_membership_events_stay():
    world = Keeping()
    world.bring_in("n1")
    before = [row for row in world.nodes["n0"].log if row.type in CONTROL]
    world.run(for_ms=3 * HOUR)
    assert [row for row in world.nodes["n0"].log if row.type in CONTROL] == before


def test_a_group_with_a_transparency_log_has_no_rule():
    world = Keeping(policy=Policy())
    command = CreateGroup("board", "n0", "didcomm/v2", "sender-key", RULE, "tlog")
    world.keys = "sender-key"
    answer = world.run_command("n0", command)
    assert isinstance(answer, CommandFailed) and "evidence" in answer.error.sentence()


@pytest.mark.parametrize("mark", ["m" * 17, "m m", {}, 1])
def test_a_mark_that_is_none_is_rejected(mark):
    """A mark stays when the content is erased, so an author could have others store records that no member can read."""
    world = Keeping()
    world.post("n0", "one")
    (row,) = world.rows("n0", POST)
    event = load_event(row.record)
    with pytest.raises(Malformed):
        parse_event({**event.wire, "body": {**event.body, MARK: mark}})


def test_the_id_covers_the_mark():
    """Otherwise a member that relays a post could change the mark, and its author would refuse it as forged when it
    recovers its own posts."""
    world = Keeping()
    (name,) = world.post("n0", "one")
    (row,) = world.rows("n0", POST)
    event = load_event(row.record)
    changed = replace(event, body={**event.body, MARK: "a" * 16})
    assert event.id == event.erased().id == name and len({name, changed.id, event.unmarked.id}) == 3
