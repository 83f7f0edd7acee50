"""Keys that heal after a loss: restored and copied profiles, channels begun anew, proven lies, bounds."""

from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.dcgka_world import Healing, live, talk
from tests.support.restored_world import older
from tests.support.ruled_world import Ruled
from zerochat.crypto import hpke
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.two_party import Channel
from zerochat.group.commands import KeysDoNotHeal
from zerochat.group.dcgka import channels, complaints, publisher, receiver
from zerochat.group.dcgka.membership import membership_of
from zerochat.group.inputs import LeaveGroup, Received, Rekey, RemoveMember, SendPost
from zerochat.group.key_agreement.state import AUTHOR_ADOPTED_MAX
from zerochat.group.key_agreement.wire import parse_direct, parse_key_event
from zerochat.group.key_modes.dcgka import Place, seal
from zerochat.group.links import rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership.attestation import warnings_of
from zerochat.group.notifications import ViewDisagreement
from zerochat.group.state.content_keys import ContentKeys
from zerochat.group.state.dcgka import Dcgka
from zerochat.group.sync import acknowledgements, stale_profile
from zerochat.group.wire.messages import KEY_EVENTS_MAX, SyncBody
from zerochat.sim.adversary import Adversary
from zerochat.sim.key_attacks import different_seeds


@pytest.fixture
def world():
    world = Healing()
    talk(world)
    return world


def test_a_profile_restored_from_a_backup_follows_and_is_followed(world):
    node = world.nodes["n1"]
    backup, rows = node.agent, list(node.log)
    talk(world, 3)
    world.run_command("n0", Rekey(world.id))
    talk(world, 1)
    world.stop("n1")
    node.agent, node.log = backup, rows
    world.start("n1", restored=True)
    assert world.keys("n1").number >= channels.LOST_EVENTS_MAX
    world.run(world.converged, for_ms=300_000)
    world.settle()
    assert world.converged() and live(world, 2)


@pytest.mark.parametrize("restored", [True, False])
def test_a_profile_without_any_key_follows_and_is_followed(world, restored):
    """A backup has no keys that get used up, nor has a profile whose erasure key is lost."""
    for _ in range(5):
        world.run_command("n1", Rekey(world.id))
        talk(world, 1)
    node = world.nodes["n1"]
    group = replace(world.group("n1"), dcgka=Dcgka(), content_keys=ContentKeys())
    without, rows = replace(node.agent, groups={world.id: group}), list(node.log)
    if restored:
        talk(world, 3)
        world.run_command("n0", Rekey(world.id))
        talk(world, 1)
    world.stop("n1")
    node.agent, node.log = without, rows
    world.start("n1", restored=restored)
    world.run(world.converged, for_ms=300_000)
    talk(world, 1)
    world.settle()
    assert world.converged() and live(world, 2)


@pytest.mark.parametrize("lost", [1, 3])
def test_a_profile_copied_by_hand_is_noticed_and_heals(world, lost):
    node = world.nodes["n1"]
    copy, rows = node.agent, list(node.log)
    for _ in range(lost):
        world.run_command("n1", Rekey(world.id))
        talk(world, 1)
    older(world, "n1", copy, rows)
    world.run(world.converged, for_ms=300_000)
    talk(world, 1)
    world.settle()
    assert world.converged() and live(world, 2)


def test_a_copy_that_only_lost_messages_reuses_no_key(world):
    node = world.nodes["n1"]
    copy, rows = node.agent, list(node.log)
    talk(world, 2)
    older(world, "n1", copy, rows)
    world.run(world.converged, for_ms=300_000)
    before = len(world.sealed)
    talk(world, 1)
    headers = [envelope[:37] for _, envelope in world.sealed]
    assert len(set(headers)) == len(headers) and len(headers) > before


@pytest.mark.parametrize("both", [False, True])
def test_channels_begin_anew_and_cross(world, both):
    for name, other in (("n0", "n1"), ("n1", "n0"))[: 1 + both]:
        keys = world.keys(name)
        broken = replace(keys, channels={**keys.channels, world.did(other): Channel(peer=bytes(31) + b"\x09")})
        tx = world.tx(name)
        tx.update_dcgka(world.id, keys=broken)
        assert channels.renew(tx, world.id, world.did(other))
        world.nodes[name].agent = tx.agent
    talk(world, 2)
    world.settle()
    assert world.converged() and live(world, 2)
    pairs = [world.group(name).dcgka.pairs for name in ("n0", "n1")]
    assert pairs[0][world.did("n1")].theirs == pairs[1][world.did("n0")].ours
    assert pairs[1][world.did("n0")].theirs == pairs[0][world.did("n1")].ours


def test_an_older_state_of_a_member_changes_no_channel(world):
    """Over a mediator, envelopes may be repeated."""
    pair = world.group("n0").dcgka.pairs[world.did("n1")]
    reach = {"pair": "", "queue": "", "at": pair.at - 1}
    body = {"group": world.id, "view": "", "have": [], "start_seq": 0, "acked": 0, "heads": [], "reach": reach}
    prekey = world.group("n2").dcgka.pairs[world.did("n1")].ours
    for at, changes in ((pair.at - 1, False), (pair.at + 1, True)):
        tx = world.tx("n0")
        shown = {**body, "reach": {**reach, "at": at}, "prekey": b64url(prekey)}
        channels.receive_prekey(tx, world.id, world.did("n1"), msgspec.convert(shown, SyncBody))
        assert (tx.group(world.id).dcgka.pairs[world.did("n1")] != pair) == changes


def test_false_claims_cause_few_updates(world):
    """A member that claims key events which were never made causes as many as its rate limit allows."""
    tx, claims = world.tx("n0"), 0
    for number in range(100):
        claims += channels.on_claimed_number(tx, world.id, world.did("n1"), world.keys("n0").number + number * 100)
    assert claims <= 1
    assert tx.group(world.id).dcgka.keys.number <= world.keys("n0").number + 100 * rate_limits.STATEMENTS_MAX
    tx = world.tx("n0")
    channels.on_claimed_number(tx, world.id, world.did("n1"), 2**53 - 1)
    assert tx.group(world.id).dcgka.keys.number == world.keys("n0").number + channels.CLAIMED_EVENTS_MAX


def test_a_false_claim_breaks_no_channel_with_an_absent_member(world):
    """It gets the direct messages that it lacks; the channel opens each only after those before."""
    world.stop("n1")
    for _ in range(2):
        world.run_command("n0", Rekey(world.id))
        world.run(for_ms=500)
    pair, tx = world.group("n1").dcgka.pairs[world.did("n0")], world.tx("n0")
    assert channels.on_claimed_number(tx, world.id, world.did("n2"), world.keys("n0").number + 1)
    acknowledgements.schedule_ack(tx, world.id, world.did("n2"))
    world.nodes["n0"].agent = tx.agent
    for effect in tx.effects:
        world._perform(world.nodes["n0"], effect)
    talk(world, 1, ["n0"])
    world.start("n1")
    world.run(for_ms=8_000)
    assert world.group("n1").dcgka.pairs[world.did("n0")] == pair
    talk(world, 1)
    world.settle()
    assert world.converged() and live(world, 2)


def test_claims_that_are_withdrawn_cost_no_keys():
    """Two members that claim more of our chain than there is make our profile look like an older copy."""
    world = Healing(4)
    talk(world)
    before = world.keys("n0")

    def claim(name, more):
        tx = world.tx("n0")
        stale_profile.receive_claim(tx, world.id, world.did(name), tx.group(world.id).seq + more)
        world.nodes["n0"].agent = tx.agent
        return stale_profile.is_suspended(tx.group(world.id))

    assert not claim("n3", 5)
    for _ in range(10):
        assert claim("n2", 1) and not claim("n2", 0)
    assert world.keys("n0").channels == before.channels and world.keys("n0").number == before.number
    claim("n3", 0)
    assert live(world, 2)


def test_rekey_makes_an_update_that_all_adopt(world):
    numbers = {name: world.keys(name).number for name in world.nodes}
    assert world.says("n0", Rekey(world.id))
    assert world.keys("n0").number == numbers["n0"] + 1 and world.keys("n0").sent == 0
    assert world.keys("n1").numbers[world.did("n0")] == world.keys("n0").number
    assert live(world)
    assert all(world.keys(name).number > numbers[name] for name in world.nodes)


def test_rekey_in_a_group_of_other_keys_is_refused():
    pairwise = Ruled(2)
    assert "cannot be renewed" in pairwise.refuses("n0", Rekey(pairwise.id), KeysDoNotHeal)


class _Liar:
    """What `different_seeds` needs of an adversary."""

    def __init__(self, world, name, victims):
        self.world, self.name, self.victims_, self.node = world, name, victims, world.nodes[name]
        self.rng = self

    def random(self):
        return 0.0

    def choice(self, some):
        return some[0]

    def sample(self, some, count):
        return self.victims_

    def randint(self, least, most):
        return most

    @property
    def group(self):
        return self.world.group(self.name)

    def members(self):
        return {name: self.world.did(name) for name in self.world.nodes if name != self.name}

    def victims(self):
        return self.victims_

    def context(self):
        return self.world.tx(self.name).context

    def filter_effect(self, effect):
        return [effect]

    def update_known_members(self):
        pass


def test_a_member_with_another_seed_proves_it_and_all_are_warned(world):
    liar = world.did("n2")
    different_seeds(cast(Adversary, _Liar(world, "n2", ["n1"])))
    world.run_command("n2", SendPost(world.id, "to all"))
    world.settle()
    assert world.texts("n1")[-1] == "to all", "by retransmission"
    for name in ("n0", "n1"):
        assert [notice.member for notice in world.heard(name, ViewDisagreement)] == [liar]
        assert [one.subject for one in warnings_of(world.group(name))] == [liar]
        assert world.group(name).dcgka.forgers[liar] not in world.keys(name).pending
    assert not warnings_of(world.group("n2"))
    world.run_command("n2", Rekey(world.id))
    talk(world, 2)
    world.settle()
    assert live(world), "an honest update ends it, and the adoptions that follow"


def test_a_proof_that_overtakes_the_update_counts(world):
    different_seeds(cast(Adversary, _Liar(world, "n2", ["n1"])))
    group, tx = world.group("n2"), world.tx("n0")
    forged = parse_key_event(group.dcgka.sent[group.dcgka.keys.number].record, world.id).id
    tx.update_dcgka(world.id, forgers={group.me: forged})
    world.nodes["n0"].agent = tx.agent
    world.run(for_ms=300)
    assert world.keys("n0").numbers[group.me] == group.dcgka.keys.number
    assert forged in world.keys("n0").operations and forged not in world.keys("n0").pending


def test_a_proof_discloses_no_later_key(world, monkeypatch):
    """The disclosed message has the secret for the next one, too: the present channel must not use it."""
    shown = []
    monkeypatch.setattr(complaints, "pack", lambda *arguments: shown.append(arguments[1].body) or pack(*arguments))
    different_seeds(cast(Adversary, _Liar(world, "n2", ["n1"])))
    world.settle()
    direct = parse_direct(b64url_bytes(shown[0]["direct"]), world.did("n1"))
    header = (1, 5, 1, 5)[direct.message[0]]
    opened = hpke.open_with(b64url_bytes(shown[0]["key"]), direct.message[header:])
    channel = world.keys("n1").channels[world.did("n2")]
    assert opened[:32] not in (channel.given, channel.offered, *(secret for _, secret in channel.own))
    talk(world, 2)
    assert live(world)


def test_what_waits_is_bounded(world):
    sender, reader = "n1", "n0"
    link = world.group(reader).links.peers[world.did(sender)].link
    for number in range(2 * receiver.EARLY_MAX):
        place = Place(b64url(number.to_bytes(8, "big") + bytes(24)), 0)
        envelope = seal(bytes(32), place, world.id, world.did(sender), {"text": "x"})
        world.process(reader, Received(link, envelope))
    assert len(world.group(reader).dcgka.early[world.did(sender)].messages) == receiver.EARLY_MAX
    world.run(for_ms=channels.ROUND_MS + receiver.EARLY_MS)
    assert not world.group(reader).dcgka.early


def test_key_events_for_an_absent_member_are_bounded(world, monkeypatch):
    monkeypatch.setattr(publisher, "SENT_MAX", 8)
    world.stop("n1")
    world.away = {"n1"}
    for _ in range(3 * KEY_EVENTS_MAX):
        world.run_command("n0", Rekey(world.id))
    assert len(world.group("n0").dcgka.sent) == 8
    world.away = set()
    world.start("n1")
    world.run(for_ms=60_000)
    talk(world, 2)
    world.run(for_ms=2 * receiver.HOLD_MS)
    talk(world, 1)
    world.settle()
    assert world.converged() and live(world)


def test_nothing_is_kept_for_a_removed_member(world):
    gone = world.did("n2")
    world.run_command("n0", RemoveMember(world.id, gone))
    world.run(for_ms=20_000)
    for name in ("n0", "n1"):
        dcgka = world.group(name).dcgka
        assert gone not in dcgka.pairs and gone not in dcgka.keys.channels and gone not in dcgka.keys.ratchets
        assert not any(gone in event.pending for event in dcgka.sent.values())


@pytest.mark.parametrize("end", ["left", "removed"])
def test_no_key_stays_of_a_group_that_is_over(world, end):
    """A thief of the profile would open what was recorded: the log of the group stays on disk."""
    assert world.keys("n1").ratchets and world.group("n1").content_keys.linked
    if end == "left":
        world.run_command("n1", LeaveGroup(world.id))
    else:
        world.run_command("n0", RemoveMember(world.id, world.did("n1")))
    world.run(for_ms=30_000)
    group = world.group("n1")
    assert group.state == "left"
    assert group.dcgka == Dcgka() and group.content_keys == ContentKeys()


def test_other_groups_have_no_keys():
    world = Ruled(2)
    assert world.group("n0").dcgka == Dcgka()


@pytest.mark.parametrize("how", ["updates", "losses"])
def test_an_insider_causes_few_key_events(world, how):
    """An update, or a lost ratchet, before each message of another member."""
    before, posts = world.keys("n0").number, 120
    for number in range(posts):
        if how == "updates":
            world.run_command("n2", Rekey(world.id))
            world.run(for_ms=20)
        else:
            tx = world.tx("n0")
            publisher.record_ack(tx, world.id, world.did("n2"), world.keys("n0").number, lost=True)
            world.nodes["n0"].agent = tx.agent
        world.run_command("n0", SendPost(world.id, f"post {number}"))
        world.run(for_ms=80)
    made = world.keys("n0").number - before
    allowed = publisher.ADOPTIONS_MAX
    assert (
        min(allowed, AUTHOR_ADOPTED_MAX)
        <= made
        <= allowed + posts * 100 // publisher.ADOPTION_INTERVAL_MS + 2
        < posts / 2
    )
    world.settle()
    assert world.converged()
    world.run(for_ms=120_000)
    talk(world, 2)
    assert live(world)


def test_a_copy_that_lost_key_events_alone_goes_on_beyond_them(world):
    """Its chain of posts is complete, so only the numbers of its key events tell."""
    node = world.nodes["n1"]
    copy, rows = node.agent, list(node.log)
    for _ in range(2):
        world.says("n1", Rekey(world.id))
    lost = world.keys("n1").number
    older(world, "n1", copy, rows)
    world.run(for_ms=20_000)
    talk(world, 1)
    assert world.keys("n1").number > lost
    for _ in range(2):  # others have adopted updates of the lost copy, for which the older one waits in vain
        world.run(for_ms=2 * receiver.HOLD_MS)
        talk(world, 1)
    world.settle()
    assert live(world) and world.converged()


def test_a_key_event_whose_membership_events_never_come_is_passed_over(world, monkeypatch):
    """An inviter that forks the log can make its joiner name an addition that no other member accepts."""
    author, was = world.did("n1"), membership_of

    def with_another_head(group):
        membership = was(group)
        forked = replace(membership, heads=(*membership.heads, b64url(bytes(32))), at=lambda _: membership.members)
        return forked if group.me == author else membership

    monkeypatch.setattr(publisher, "membership_of", with_another_head)
    world.run_command("n1", Rekey(world.id))
    monkeypatch.setattr(publisher, "membership_of", was)
    world.run(for_ms=receiver.HOLD_MS // 2)
    assert all(author in world.group(name).dcgka.held for name in ("n0", "n2"))
    world.run(for_ms=2 * receiver.HOLD_MS)
    assert not any(world.group(name).dcgka.held or world.group("n1").dcgka.sent for name in ("n0", "n2"))
    talk(world, 2)
    world.settle()
    assert live(world) and world.converged()


def test_a_ratchet_whose_messages_do_not_open_is_given_again(world):
    tx, author = world.tx("n0"), world.did("n1")
    keys = world.keys("n0")
    epochs = tuple(replace(one, chain_key=bytes(32)) for one in keys.receiving[author])
    tx.update_dcgka(world.id, keys=replace(keys, receiving={**keys.receiving, author: epochs}))
    world.nodes["n0"].agent = tx.agent
    world.post("n1", "does not open")
    assert world.texts("n0")[-1] == "does not open" and world.retransmissions
    assert live(world)


def test_a_new_relationship_begins_its_numbers_anew(world):
    """Its clock was a year ahead, or a thief has spoken as this member."""
    node, member, ahead = world.nodes["n1"], world.did("n1"), world.now + 365 * 86_400_000
    backup, rows = node.agent, list(node.log)
    for name in ("n0", "n2"):
        tx = world.tx(name)
        tx.update_peer(world.id, member, content_key=replace(tx.peer(world.id, member).content_key, number=ahead))
        pairs = tx.group(world.id).dcgka.pairs
        tx.update_dcgka(world.id, pairs={**pairs, member: replace(pairs[member], at=ahead)})
        world.nodes[name].agent = tx.agent
    world.stop("n1")
    node.agent, node.log = backup, rows
    world.start("n1", restored=True)
    world.run(for_ms=300_000)
    for name in ("n0", "n2"):
        group = world.group(name)
        assert group.links.peers[member].content_key.number < ahead
        assert group.dcgka.pairs[member].theirs == world.group("n1").dcgka.pairs[world.did(name)].ours
    talk(world, 2)
    assert world.converged() and live(world)


@pytest.mark.parametrize("field", ["content keys", "pre-keys"])
def test_keys_lost_after_the_clock_was_corrected_come_again(world, field):
    """The member's clock was a year ahead, and later it lost its erasure key."""
    node, member, ahead = world.nodes["n1"], world.did("n1"), world.now + 365 * 86_400_000
    for name in ("n0", "n2"):
        tx = world.tx(name)
        if field == "content keys":
            tx.update_peer(world.id, member, content_key=replace(tx.peer(world.id, member).content_key, number=ahead))
        else:
            pairs = tx.group(world.id).dcgka.pairs
            tx.update_dcgka(world.id, pairs={**pairs, member: replace(pairs[member], at=ahead)})
        world.nodes[name].agent = tx.agent
    world.stop("n1")
    group = replace(world.group("n1"), dcgka=Dcgka(), content_keys=ContentKeys())
    node.agent = replace(node.agent, groups={world.id: group})
    world.start("n1")
    talk(world, 1)
    world.run(world.converged, for_ms=300_000)
    talk(world, 1)
    world.settle()
    assert world.converged() and live(world, 2)


def test_a_channel_begun_anew_uses_a_pre_key_that_is_unused():
    """n0 has offered its pre-key and sent nothing in the channel yet, so it keeps it."""
    world = Healing(2)
    one, two = world.did("n0"), world.did("n1")
    kept = world.group("n0").dcgka.pairs[two].ours
    assert world.keys("n0").channels[two].index == 0 and world.keys("n1").channels[one].peer == kept
    tx = world.tx("n1")
    assert channels.renew(tx, world.id, one)
    acknowledgements.send_sync(tx, world.id, one)
    world.nodes["n1"].agent = tx.agent
    for effect in tx.effects:
        world._perform(world.nodes["n1"], effect)
    world.settle()
    assert world.group("n0").dcgka.pairs[two].ours == kept
    assert world.keys("n1").channels[one].peer and world.keys("n0").channels[two].peer
    assert live(world, 2)
