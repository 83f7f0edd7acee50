"""Private conversations: groups of two that one member begins with another."""

import pytest
from msgspec.structs import replace

from tests.support.small_world import Small
from zerochat.didcomm.invitation import Invitation
from zerochat.group.effects import CommandDone, CommandFailed
from zerochat.group.event_log.event import POST
from zerochat.group.inputs import (
    AnswerPrivateInvitation,
    CreateGroup,
    IgnoreMember,
    LeaveGroup,
    OpenConversation,
    RemoveMember,
    SendContent,
    SendPost,
)
from zerochat.group.joining import private_conversations
from zerochat.group.joining.private_conversations import WAITING_EVENTS_MAX
from zerochat.group.joining.private_invitations import LIFETIME_S
from zerochat.group.messages.bodies import Delete, Edit
from zerochat.group.notifications import ConversationMoved, PrivateInvitationAnswered, PrivateInvited
from zerochat.group.state import Consent
from zerochat.sim.fast_crypto import event_of

KINDS = (PrivateInvited, PrivateInvitationAnswered, ConversationMoved)


class Pair(Small):
    """Members of one group, connected, and their news about private conversations."""

    def __init__(self, members=2):
        self.news = []
        super().__init__(members)
        self.shared = self.found()
        for number in range(1, members):
            self.join(f"n{number}", self.invite(self.shared))

    def _perform(self, node, effect):
        notice = getattr(effect, "notification", None)
        if isinstance(notice, KINDS):
            self.news.append((node.name, notice))
        super()._perform(node, effect)

    def asked(self, name):
        return [one for who, one in self.news if who == name and isinstance(one, PrivateInvited)]

    def open(self, name, member, group=None):
        answer = self.run_command(name, OpenConversation(self.shared if group is None else group, member))
        assert isinstance(answer, CommandDone), answer.error.sentence()
        return answer.result.group

    def refused(self, name, command):
        answer = self.run_command(name, command)
        assert isinstance(answer, CommandFailed)
        return answer.error.code

    def answer(self, name, member, accept=True):
        return self.run_command(name, AnswerPrivateInvitation(self.shared, member, accept))

    def conversations(self, name, state="active"):
        groups = self.nodes[name].agent.groups.values()
        return [one for one in groups if one.private is not None and one.state == state]

    def received(self, name, member="n0"):
        group = self.nodes[name].agent.groups[self.shared]
        return group.joining.private.get(self.did(member))

    def did(self, name):
        return self.nodes[name].agent.groups[self.shared].me

    def texts(self, name, group):
        rows = [row for row in self.nodes[name].log if row.group == group and row.type == POST]
        return [event_of(row.record).body["text"] for row in sorted(rows, key=lambda row: row.lamport)]

    def post(self, name, group, text):
        return self.run_command(name, SendPost(group, text)).result.id


@pytest.fixture
def world():
    return Pair()


def test_a_conversation_is_joined_with_consent_and_gets_the_earlier_messages(world):
    made = world.open("n0", "n1")
    world.post("n0", made, "hello")
    world.post("n0", made, "are you there?")
    world.run(for_ms=5_000)
    assert [one.member for one in world.asked("n1")] == [world.did("n0")]
    assert not world.conversations("n1"), "nothing is joined without consent"

    world.answer("n1", "n0")
    world.run(for_ms=20_000)
    (hers,), (his,) = world.conversations("n0"), world.conversations("n1")
    assert hers.id == his.id == made and (hers.name, his.name) == ("n1", "n0")
    assert his.view.keys == "deniable" != world.nodes["n0"].agent.groups[world.shared].view.keys
    assert world.texts("n1", made) == ["hello", "are you there?"]
    assert hers.links.acked(his.me, hers.me) == hers.seq, "both are known to be delivered"
    world.post("n1", made, "yes")
    world.run(for_ms=5_000)
    assert world.texts("n0", made) == ["hello", "are you there?", "yes"]
    assert world.received("n1") is None


def test_the_conversation_is_found_again(world):
    made = world.open("n0", "n1")
    assert world.open("n0", "n1") == made and world.open("n0", "N1", group="") == made
    world.run(for_ms=5_000)
    world.answer("n1", "n0")
    world.run(for_ms=20_000)
    assert world.open("n0", "n1") == world.open("n1", "n0") == world.open("n1", "n0", group="") == made
    assert world.open("n1", "n0", group=made) == made, "from inside"
    assert len(world.asked("n1")) == 1 and not world.asked("n0")


def test_declining_is_silent_and_lasts(world):
    made = world.open("n0", "n1")
    world.run(for_ms=5_000)
    world.answer("n1", "n0", accept=False)
    world.restart("n1")
    world.open("n0", "n1")
    world.run(for_ms=60_000)
    assert len(world.asked("n1")) == 1 and world.received("n1").consent is Consent.DECLINED
    assert len(world.nodes["n0"].agent.groups[made].view.members) == 1
    world.open("n1", "n0")  # the one that declined wants to talk after all
    world.run(for_ms=60_000)
    assert [one.id for one in world.conversations("n0")] == [one.id for one in world.conversations("n1")]


@pytest.mark.parametrize("first", ["n0", "n1"])
def test_two_that_begin_at_once_end_in_one_conversation(world, first):
    other = "n1" if first == "n0" else "n0"
    mine = world.open(first, other)
    theirs = world.open(other, first)
    assert mine != theirs
    old = world.post(first, mine, "first")
    gone = world.post(first, mine, "deleted")
    world.run_command(first, SendContent(mine, Edit(old, "first, edited")))
    world.run_command(first, SendContent(mine, Delete(gone)))
    world.post(other, theirs, "second")
    world.run(for_ms=120_000)
    (one,), (same,) = world.conversations(first), world.conversations(other)
    assert one.id == same.id == min(mine, theirs) and {one.name, same.name} == {first, other}
    assert sorted(world.texts(first, one.id)) == sorted(world.texts(other, one.id))
    assert [text for text in world.texts(other, one.id) if "edited" in text or one.id == mine]
    assert not ("deleted" in world.texts(other, one.id) and one.id == theirs)
    assert "second" in world.texts(first, one.id)
    moved = [notice for _, notice in world.news if isinstance(notice, ConversationMoved)]
    assert moved == [ConversationMoved(one.id, max(mine, theirs))]
    assert all(max(mine, theirs) not in node.agent.groups for node in world.nodes.values())


def test_a_restart_loses_no_invitation(world):
    world.stop("n1")
    made = world.open("n0", "n1")
    world.post("n0", made, "later")
    world.run(for_ms=60_000)
    world.restart("n0")
    world.start("n1")
    world.run(for_ms=60_000)
    assert len(world.asked("n1")) == 1
    world.restart("n1")
    world.answer("n1", "n0")
    world.stop("n0")
    world.run(for_ms=90_000)  # the join fails: the inviter is away
    world.start("n0")
    world.run(for_ms=180_000)
    assert world.texts("n1", made) == ["later"]


def test_an_ignored_member_invites_in_vain(world):
    world.run_command("n1", IgnoreMember(world.shared, "n0", True))
    made = world.open("n0", "n1")
    world.run(for_ms=60_000)
    assert not world.asked("n1") and world.received("n1") is None
    assert len(world.nodes["n0"].agent.groups[made].view.members) == 1
    assert world.refused("n1", OpenConversation(world.shared, "n0")) == "MemberIgnored"


def test_a_removed_member_no_longer_invites():
    world = Pair(3)
    world.open("n0", "n1")
    world.run(for_ms=5_000)
    for name in ("n1", "n2"):
        world.run_command(name, RemoveMember(world.shared, "n0"))
    world.run(for_ms=60_000)
    assert world.refused("n1", AnswerPrivateInvitation(world.shared, "n0", True)) == "UnknownMember"
    assert world.refused("n2", OpenConversation(world.shared, "n0")) == "UnknownMember"


def test_only_the_invited_member_is_admitted():
    world = Pair(3)
    made = world.open("n0", "n1")
    world.run(for_ms=5_000)
    leaked = world.received("n1").invitation
    assert world.join("n2", leaked).phase == "failed"
    assert len(world.nodes["n0"].agent.groups[made].view.members) == 1


def test_a_member_keeps_one_invitation_of_another(world):
    for _ in range(5):
        made = world.open("n0", "n1")
        world.run(for_ms=1_000)
        world.run_command("n0", LeaveGroup(made))
    world.run(for_ms=1_000)
    assert len(world.nodes["n1"].agent.groups[world.shared].joining.private) == 1
    assert len(world.asked("n1")) == 1, "notified at most every ten seconds"


def test_after_the_other_has_left_a_new_conversation_begins(world):
    made = world.open("n0", "n1")
    world.run(for_ms=5_000)
    world.answer("n1", "n0")
    world.run(for_ms=20_000)
    world.run_command("n1", LeaveGroup(made))
    world.run(for_ms=20_000)
    fresh = world.open("n0", "n1")
    assert fresh != made and world.nodes["n0"].agent.groups[made].state == "left"
    world.run(for_ms=40_000)
    world.answer("n1", "n0")
    world.run(for_ms=20_000)
    assert [one.id for one in world.conversations("n1")] == [fresh]


def test_an_expired_invitation_is_renewed_by_asking_again(world):
    made = world.open("n0", "n1")
    world.run(for_ms=5_000)
    world.now += (LIFETIME_S + 1) * 1000
    world.run(for_ms=60_000)
    assert not world.nodes["n0"].agent.invitations and world.received("n1") is None
    assert world.refused("n1", AnswerPrivateInvitation(world.shared, "n0", True)) == "NoSuchPrivateInvitation"
    assert world.open("n0", "n1") == made
    world.run(for_ms=5_000)
    world.answer("n1", "n0")
    world.run(for_ms=20_000)
    assert [one.id for one in world.conversations("n1")] == [made]


def test_what_is_refused(world):
    made = world.open("n0", "n1")
    assert world.refused("n0", OpenConversation(world.shared, "n0")) == "NotWithYourself"
    assert world.refused("n0", OpenConversation("", "Dave")) == "UnknownPeer"
    for number in range(WAITING_EVENTS_MAX - 1):
        world.post("n0", made, f"{number}")
    assert world.refused("n0", SendPost(made, "one more")) == "NotJoinedYet"


@pytest.mark.parametrize("shift", range(6))
def test_accepting_and_beginning_at_once_keep_one_conversation(world, shift):
    world.rng.randbytes(shift)  # other ids
    theirs = world.open("n0", "n1")
    world.post("n0", theirs, "first")
    world.run(for_ms=1_000)
    world.answer("n1", "n0")
    world.run(for_ms=shift * 7)
    mine = world.open("n1", "n0")
    if mine != theirs:
        world.post("n1", mine, "second")
    world.run(for_ms=180_000)
    (one,), (same,) = world.conversations("n0"), world.conversations("n1")
    assert one.id == same.id and one.others and same.others
    assert set(world.texts("n0", one.id)) == set(world.texts("n1", one.id)) >= {"first"}
    assert mine == theirs or "second" in world.texts("n0", one.id)


@pytest.mark.parametrize("restart", [False, True])
def test_accepting_a_new_one_keeps_the_history_of_one_that_the_other_has_left(world, restart):
    made = world.open("n0", "n1")
    world.post("n0", made, "hello")
    world.run(for_ms=5_000)
    world.answer("n1", "n0")
    world.run(for_ms=20_000)
    world.post("n1", made, "yes")
    world.run(for_ms=5_000)
    world.run_command("n1", LeaveGroup(made))
    world.run(for_ms=200_000)
    if restart:
        world.restart("n0")
    fresh = world.open("n1", "n0")
    world.run(for_ms=40_000)
    world.answer("n0", "n1")
    world.run(for_ms=60_000)
    assert [one.id for one in world.conversations("n0")] == [fresh]
    assert [one.id for one in world.conversations("n0", "left")] == [made], "it stays readable"
    assert world.texts("n0", fresh) == [] and world.texts("n0", made) == ["hello", "yes"]
    assert not [notice for _, notice in world.news if isinstance(notice, ConversationMoved)]


def test_a_member_cannot_ask_again_and_again_with_invitations_that_expire_soon(world, monkeypatch):
    world.open("n0", "n1")
    world.run(for_ms=1_000)
    for _ in range(5):
        for group in world.conversations("n0"):
            world.run_command("n0", LeaveGroup(group.id))
        monkeypatch.setattr("zerochat.group.joining.private_invitations.LIFETIME_S", 2)
        world.open("n0", "n1")
        world.run(for_ms=1_000)
        world.answer("n1", "n0", accept=False)
        world.run(for_ms=11_000)
    assert len(world.asked("n1")) == 1


def test_the_group_of_a_third_person_is_not_joined_as_a_conversation(monkeypatch):
    """n0 passes off an invitation of n2, who would read what n1 writes to n0."""
    world = Pair(3)
    other = world.run_command("n2", CreateGroup("other", "n2", world.envelope)).result.group
    link = world.invite(other, "n2").url()
    monkeypatch.setattr(Invitation, "url", lambda self: link)
    world.open("n0", "n1")
    world.run(for_ms=5_000)
    world.answer("n1", "n0")
    world.run(for_ms=70_000)
    assert world.told[-1][1].phase == "failed" and not world.conversations("n1")
    assert other not in world.nodes["n1"].agent.groups


def test_a_member_that_was_accepted_starts_one_join_at_a_time(monkeypatch):
    """Joins are few, and each one dials the address of an invitation."""
    world = Pair(3)
    other = world.run_command("n2", CreateGroup("other", "n2", world.envelope)).result.group
    links = [world.invite(other, "n2", lifetime_s=7_200).url() for _ in range(6)]
    world.stop("n2")
    monkeypatch.setattr(Invitation, "url", lambda self: links[-1])
    world.open("n0", "n1")
    world.run(for_ms=1_000)
    world.answer("n1", "n0")
    while len(links) > 1:
        links.pop()
        world.open("n0", "n1")
        world.run(for_ms=1_000)
    assert len(world.nodes["n1"].agent.joins) == 2, "that of the shared group, and one"
    world.run(for_ms=120_000)
    world.open("n0", "n1")
    world.run(for_ms=1_000)
    assert len(world.nodes["n1"].agent.joins) == 3, "another one after its end"


@pytest.mark.parametrize("keys", ["sender-key", "dcgka", "pairwise-multi"])
def test_a_conversation_with_other_keys_is_not_joined(world, keys, monkeypatch):
    """In a group that signs, the other member can prove what we have written; pairwise keys do not heal; and what is
    moved there is not asked for again."""
    monkeypatch.setattr(private_conversations, "KEYS", keys)
    theirs = world.open("n0", "n1")
    monkeypatch.undo()
    world.run(for_ms=5_000)
    world.answer("n1", "n0")
    world.run(for_ms=70_000)
    assert world.told[-1][1].phase == "failed" and theirs not in world.nodes["n1"].agent.groups


def test_a_conversation_that_the_other_opens_to_a_third_member_is_no_longer_one():
    world = Pair(3)
    made = world.open("n0", "n1")
    world.run(for_ms=5_000)
    world.answer("n1", "n0")
    world.run(for_ms=20_000)
    node = world.nodes["n1"]
    node.agent = replace(node.agent, groups={**node.agent.groups, made: replace(node.agent.groups[made], private=None)})
    world.join("n2", world.invite(made, "n1"))
    assert len(world.nodes["n0"].agent.groups[made].view.members) == 3
    fresh = world.open("n0", "n1")
    assert fresh != made and world.open("n0", "n1", group="") == fresh
