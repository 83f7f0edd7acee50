"""Content for one member is sealed to its content key, in groups whose keys heal."""

import pytest
from msgspec.structs import replace

from tests.support.dcgka_world import Healing
from tests.support.watched_world import MINUTE_MS, Watched
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.group.dcgka import publisher, receiver
from zerochat.group.inputs import Received, SendPost
from zerochat.group.key_agreement.message_keys import JUMP_MAX
from zerochat.group.key_modes.dcgka import Dcgka
from zerochat.group.links import content_keys, mediator_mail, outbox
from zerochat.group.links.content_keys import CONTENT_KINDS, HELD_MAX, LINKED, MAILED
from zerochat.group.links.relationship import pack
from zerochat.group.state.content_keys import ContentKeys, HeldContentKey, PeerContentKey
from zerochat.group.wire.event_runs import compress_runs, write_runs
from zerochat.group.wire.files import FILE_PART
from zerochat.group.wire.messages import CONTENT, EVENTS, HISTORY_RESPONSE, SYNC
from zerochat.sim import SIMULATED_PACKERS


class Repaired(Healing):
    """Only what is sent to one member arrives, as long as the group's own queues are down."""

    down = False

    def _publish(self, node, published):
        if not self.down:
            super()._publish(node, published)

    def held(self, name):
        return self.group(name).content_keys

    def set_keys(self, name, keys):
        agent = self.nodes[name].agent
        group = replace(agent.groups[self.id], content_keys=keys)
        self.nodes[name].agent = replace(agent, groups={**agent.groups, self.id: group})

    def seal_for(self, sender, recipient, message):
        """The sealed form of a message between two members."""
        return content_keys.sealed(self.tx(sender), self.id, self.did(recipient), message)

    def open_at(self, recipient, sender, message):
        return content_keys.opened(self.tx(recipient), self.id, self.did(sender), message)


@pytest.fixture
def world():
    return Repaired(2)


def part(data="AAAA"):
    return Message(type=FILE_PART, id="1", thid="2", body={"data": data})


def test_a_sealed_message_opens_for_its_recipient(world):
    sealed = world.seal_for("n0", "n1", part())
    assert sealed.type == CONTENT and "AAAA" not in str(sealed.body)
    assert world.open_at("n1", "n0", sealed) == part()
    with pytest.raises(Unauthentic):  # it names the sender
        content_keys.opened(world.tx("n1"), world.id, world.did("n1"), sealed)
    broken = replace(sealed, body={**sealed.body, "sealed": "A" + sealed.body["sealed"][1:]})
    with pytest.raises(Unauthentic):
        world.open_at("n1", "n0", broken)
    for body in ({}, {"key": "x", "sealed": ""}, {**sealed.body, "sealed": ""}):
        with pytest.raises(Malformed):
            world.open_at("n1", "n0", replace(sealed, body=body))


def test_only_content_can_be_sealed(world, monkeypatch):
    for kind in (SYNC, CONTENT, "x"):
        with monkeypatch.context() as patched:
            patched.setattr(content_keys, "CONTENT_KINDS", {kind})
            sealed = world.seal_for("n0", "n1", replace(part(), type=kind))
        with pytest.raises(Refused, match="without content"):
            world.open_at("n1", "n0", sealed)


def test_membership_events_need_no_seal(world):
    """Otherwise two members whose views differ could not exchange them before they know each other's keys."""
    control = [*world.group("n0").control.values()]
    post = world.next_post("n0", "a post")
    for events, expected in ((control, False), ([post], True), ([*control, post], True)):
        message = Message(type=EVENTS, id="1", body={"runs": write_runs(events), "view": "", "have": []})
        assert content_keys.has_content(message) == expected
        assert content_keys.has_content(compress_runs(message)) == expected
    for kind in CONTENT_KINDS - {EVENTS}:
        assert content_keys.has_content(Message(type=kind, id="1", body={}))


def test_nothing_is_sent_to_a_member_whose_key_is_unknown(world):
    tx = world.tx("n0")
    tx.update_peer(world.id, world.did("n1"), content_key=PeerContentKey())
    for kind in CONTENT_KINDS:
        body = {"runs": write_runs([world.next_post("n0", "a post")]), "view": "", "have": []}
        outbox.send_content(tx, world.id, world.did("n1"), Message(type=kind, id="1", body=body))
    assert [one.name for one in tx.effects] == ["unsent"] * 3


def test_other_groups_have_no_content_keys():
    world = Watched("pairwise-multi", 1, 2)
    world.talk(1)
    world.run(for_ms=5 * MINUTE_MS)
    for node in world.nodes.values():
        group = node.agent.groups[world.id]
        assert group.content_keys == ContentKeys()
        assert not any(peer.content_key.public for peer in group.links.peers.values())


def test_content_under_an_erased_key_is_sent_again(world):
    world.post("n0", "first")
    world.down = True
    world.set_keys("n1", ContentKeys())
    world.post("n0", "second")
    world.run(for_ms=MINUTE_MS)
    assert world.nodes["n1"].dropped["dropped ContentKeyErased"] == 1
    assert world.texts("n1") == ["first", "second"]


def announced(world, tx):
    """The public key that n0 announces, and its number."""
    written = b64url_bytes(content_keys.announced(tx, world.id, world.did("n1"))["content_key"])
    return written[:32], int.from_bytes(written[32:])


@pytest.mark.parametrize("by_mail", [False, True])
def test_keys_are_replaced_and_erased(world, by_mail, monkeypatch):
    monkeypatch.setattr(mediator_mail, "goes_by_mail", lambda *_: by_mail)
    lifetime, tx, start = MAILED if by_mail else LINKED, world.tx("n0"), world.now
    tx.update_group(world.id, content_keys=ContentKeys())
    seen = set()
    for passed in range(0, 3 * lifetime.kept, lifetime.announced // 4):
        tx.context = replace(tx.context, now=start + passed)
        seen.add(announced(world, tx))
        keys = tx.group(world.id).content_keys
        held = keys.mailed if by_mail else keys.linked
        assert tx.now - held[0].made < lifetime.announced and tx.now - held[-1].made < lifetime.kept
        assert len(held) <= lifetime.kept // lifetime.announced + 1
    assert len(seen) >= 3 * lifetime.kept // lifetime.announced
    tx.context = replace(tx.context, now=tx.now + lifetime.kept)
    content_keys.erase_expired(tx, world.id)
    assert tx.group(world.id).content_keys == ContentKeys(number=max(number for _, number in seen))


def test_an_older_announcement_is_ignored(world):
    """Holding back an envelope does not bring back a key that was stolen."""
    tx, n0 = world.tx("n1"), world.did("n0")
    known = tx.peer(world.id, n0).content_key
    for number in (0, known.number - 1, known.number):
        content_keys.record(tx, world.id, n0, b64url(b"\x09" + bytes(31) + number.to_bytes(8)))
        assert tx.peer(world.id, n0).content_key == known
    content_keys.record(tx, world.id, n0, b64url(b"\x09" + bytes(31) + (known.number + 1).to_bytes(8)))
    assert tx.peer(world.id, n0).content_key == PeerContentKey(b"\x09" + bytes(31), known.number + 1)


def test_old_keys_are_erased_by_the_timer(world):
    """In a group without any message, and after a restart."""
    old = HeldContentKey(bytes(32), world.now, 1)
    world.set_keys("n0", replace(world.held("n0"), linked=(*world.held("n0").linked, old)))
    world.restart("n0")
    assert old in world.held("n0").linked
    world.run(for_ms=LINKED.kept + 1_000)
    assert old not in world.held("n0").linked
    for _ in range(30):
        world.run(for_ms=MINUTE_MS)
        assert all(world.now - one.made <= LINKED.kept for one in world.held("n0").linked)


def test_a_clock_that_was_set_back_keeps_no_key_for_longer(world):
    tx = world.tx("n0")
    first, number = announced(world, tx)
    tx.context = replace(tx.context, now=tx.now - 100 * LINKED.kept)
    second, later = announced(world, tx)
    assert second != first and later > number
    assert len(tx.group(world.id).content_keys.linked) == 1


@pytest.mark.parametrize("by_mail", [False, True])
def test_a_member_causes_few_new_keys(world, by_mail, monkeypatch):
    """Whatever keys it names: those that others have been told stay as long as without it."""
    monkeypatch.setattr(mediator_mail, "goes_by_mail", lambda *_: by_mail)
    lifetime, sealed, tx = MAILED if by_mail else LINKED, world.seal_for("n0", "n1", part()), world.tx("n1")
    content_keys.announced(tx, world.id, world.did("n0"))

    def held():
        keys = tx.group(world.id).content_keys
        return keys.mailed if by_mail else keys.linked

    first = held()[0]
    while tx.now < first.made + lifetime.kept - 1_000:
        assert first in held()
        tx.context = replace(tx.context, now=tx.now + lifetime.kept // 200)
        named = replace(sealed, body={**sealed.body, "key": b64url(world.rng.randbytes(8))})
        assert content_keys.opened(tx, world.id, world.did("n0"), named) is None
        content_keys.announced(tx, world.id, world.did("n0"))
    assert 3 <= len(held()) < HELD_MAX


@pytest.mark.parametrize("key", ["!", "A" * 54, "A" * 43, "AAAA", "A"])
def test_a_key_that_is_none_is_refused(world, key):
    with pytest.raises(Malformed):
        content_keys.record(world.tx("n0"), world.id, world.did("n1"), key)


@pytest.mark.parametrize("kind", sorted(CONTENT_KINDS))
def test_content_without_a_seal_is_refused(world, kind):
    """However well it would be authenticated by the envelope."""
    group, before = world.group("n0"), world.nodes["n1"].dropped.copy()
    body = {"runs": write_runs([world.next_post("n0", "a post")], group.me), "view": "", "have": []}
    message = Message(type=kind, id="1", body=body)
    for one in (message, compress_runs(message)):
        relationship = group.links.relationships[world.did("n1")]
        envelope = pack(relationship, one, SIMULATED_PACKERS[group.profile.envelope], world.rng.randbytes)
        world.process("n1", Received(world.group("n1").links.peers[world.did("n0")].link, envelope))
    assert world.nodes["n1"].dropped["dropped Refused"] - before.get("dropped Refused", 0) == 2
    assert world.texts("n1") == []


def test_every_kind_of_content_is_sealed(monkeypatch):
    """Retransmissions, history for a newcomer and parts of files, as they occur."""
    kinds = []
    seal = content_keys.sealed

    def spy(tx, name, member, message):
        found = seal(tx, name, member, message)
        if content_keys.has_content(message):
            assert found is None or found.type == CONTENT
            kinds.append(message.type)
        return found

    monkeypatch.setattr(content_keys, "sealed", spy)
    world = Watched(Dcgka.name, 3)
    world.talk(3)
    world.share_file("n0")
    world.newcomer()
    assert set(kinds) == {EVENTS, HISTORY_RESPONSE, FILE_PART} == CONTENT_KINDS


def test_content_over_a_mediator_is_sealed_to_a_key_that_lasts_longer():
    """A member may fetch it the day after."""
    world = Watched(Dcgka.name, 2, mailed=("n1", "n2"))
    world.talk(2)
    world.share_file("n1")
    keys = [world.nodes[name].agent.groups[world.id].content_keys for name in world.nodes]
    assert [bool(one.mailed) for one in keys] == [False, True, True] and all(one.linked for one in keys)
    known = {name: world.nodes[name].agent.groups[world.id].links.peers for name in world.nodes}
    for sender, recipient, by_mail in (("n1", "n2", True), ("n2", "n1", True), ("n0", "n1", False)):
        own = world.nodes[recipient].agent.groups[world.id].content_keys
        key = (own.mailed if by_mail else own.linked)[0]
        assert known[sender][world.did(recipient)].content_key.public == x25519_public(key.secret)


def test_an_update_replaces_the_content_key(world):
    """Otherwise what is sent again after it would open for a thief of the old one for some minutes."""
    before = world.held("n0").linked[0]
    assert world.group("n1").links.peers[world.did("n0")].content_key.public == x25519_public(before.secret)
    tx = world.tx("n0")
    for _ in range(2 * HELD_MAX):
        publisher.make(tx, world.id, update=True)
    fresh = tx.group(world.id).content_keys.linked
    assert fresh[0] != before and len(fresh) == HELD_MAX
    world.nodes["n0"].agent = tx.agent
    for effect in tx.effects:
        world._perform(world.nodes["n0"], effect)
    world.run(for_ms=1_000)
    assert world.group("n1").links.peers[world.did("n0")].content_key.public == x25519_public(fresh[0].secret)


def test_the_keys_of_lost_messages_are_erased_once_their_content_is_here():
    """Also of the last message of an epoch, which nothing has overtaken."""
    world = Repaired(3)
    for name in world.nodes:
        world.post(name, f"first by {name}")
    for texts in (["lost", "overtakes"], ["lost last"]):
        for text in texts:
            world.down = text.startswith("lost")
            world.run_command("n0", SendPost(world.id, text))
        world.run(for_ms=MINUTE_MS)
        for name in ("n1", "n2"):
            assert world.texts(name)[-len(texts) :] == texts
            sent = world.keys("n0").epoch
            (epoch,) = world.keys(name).receiving[world.did("n0")]
            assert (epoch.event, epoch.next, epoch.skipped) == (sent.event, sent.sent, ())
            assert epoch.chain_key == sent.chain_key


def test_a_false_count_erases_no_key_of_another_author_and_has_a_bound(world):
    world.post("n0", "first")
    tx, author = world.tx("n1"), world.did("n0")
    before = tx.group(world.id).dcgka.keys
    (epoch,) = before.receiving[author]
    seq = tx.group(world.id).chain(author).seq
    for sent in (None, (epoch.event, 9, seq + 1), ("A" * 43, 9, seq), (epoch.event, epoch.next, seq)):
        receiver.settle(tx, world.id, author, sent)
        assert tx.group(world.id).dcgka.keys == before
    receiver.settle(tx, world.id, author, (epoch.event, 2**50, seq))
    (after,) = tx.group(world.id).dcgka.keys.receiving[author]
    assert after.next == epoch.next + JUMP_MAX
