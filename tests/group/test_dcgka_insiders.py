"""Insiders against keys that heal: what they make others do, and what a former member of theirs could read."""

from typing import cast

import pytest
from msgspec.structs import replace

from tests.support.dcgka_thief import StolenKeys
from tests.support.dcgka_world import Healing, live, talk
from zerochat.crypto import two_party
from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import SecretKey
from zerochat.didcomm.message import Message
from zerochat.group import dispatch
from zerochat.group.dcgka import channels, complaints, publisher, receiver
from zerochat.group.dcgka.membership import membership_of
from zerochat.group.external import mediators
from zerochat.group.inputs import Rekey, RemoveMember, SendPost
from zerochat.group.key_agreement import production, reception
from zerochat.group.key_agreement.key_event import Directs, pair_context
from zerochat.group.key_agreement.message_keys import JUMP_MAX
from zerochat.group.key_modes.dcgka import Place, seal
from zerochat.group.links import mediator_mail, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.wire.messages import KEY_EVENTS
from zerochat.sim import SIMULATED_PACKERS


@pytest.fixture
def world():
    world = Healing(4)
    talk(world)
    return world


def provoke(world, insider, rounds):
    """Before each post of n0 the insider makes an update. Returns how many key events n0 has made."""
    before = world.keys("n0").number
    for number in range(rounds):
        world.run_command(insider, Rekey(world.id))
        world.run(for_ms=20)
        world.run_command("n0", SendPost(world.id, f"post {number}"))
        world.run(for_ms=40)
    return world.keys("n0").number - before


def test_a_removed_insider_that_has_exhausted_others_reads_nothing_later(world, monkeypatch):
    """It has made another member adopt so many updates that this one adopts no more for now."""
    monkeypatch.setattr(reception, "AUTHOR_ADOPTED_MAX", publisher.ADOPTIONS_MAX + 2)
    monkeypatch.setattr(production, "AUTHOR_OPERATIONS_MAX", publisher.ADOPTIONS_MAX + 2)
    provoke(world, "n3", publisher.ADOPTIONS_MAX + 2)
    assert not world.group("n0").dcgka.adoptions_left
    former = StolenKeys(world.group("n3"))
    world.run_command("n1", RemoveMember(world.id, world.did("n3")))
    world.run_command("n1", SendPost(world.id, "they are gone"))
    world.run(for_ms=200)
    world.sealed.clear()
    world.run_command("n0", SendPost(world.id, "so we can talk"))
    assert not world.group("n0").dcgka.adoptions_left, "no time has passed"
    ((_, envelope),) = world.sealed
    with pytest.raises(LookupError):
        former.opener()(envelope)
    world.settle()
    assert world.texts("n2")[-1] == "so we can talk"


def test_updates_for_few_members_cause_few_updates(world, monkeypatch):
    """An update that names an old view leaves its adopter with all the members that do not follow it any more. For many
    members the adopter makes an update of its own, which costs most."""
    monkeypatch.setattr(production, "TO_MAX", 0)
    insider, second = world.did("n1"), world.did("n2")
    (old,) = (name for name, one in world.group("n1").control.items() if one.body.get("member") == second)

    def narrow(group):
        whole = membership_of(group)
        few = replace(whole, heads=(old,), members=whole.at((old,)))
        return few if group.me == insider else whole

    monkeypatch.setattr(publisher, "membership_of", narrow)
    made = provoke(world, "n1", 60)
    assert 0 < made <= publisher.ADOPTIONS_MAX + 3
    monkeypatch.undo()
    talk(world, 2)
    world.run(for_ms=2 * receiver.HOLD_MS)
    talk(world, 1)
    assert live(world)


def test_false_claims_do_not_outlast_a_restore(world):
    """They have taken a member's number so far that its restored copy does not reach it in one step."""
    node, insider = world.nodes["n1"], world.did("n3")
    backup, rows = node.agent, list(node.log)
    for _ in range(3):
        tx = world.tx("n1")
        channels.on_claimed_number(tx, world.id, insider, world.keys("n1").number + channels.CLAIMED_EVENTS_MAX)
        node.agent = tx.agent
        talk(world, 1)
    lost = world.keys("n1").number
    assert lost > 3 * channels.CLAIMED_EVENTS_MAX and live(world)
    world.stop("n1")
    node.agent, node.log = backup, rows
    world.start("n1", restored=True)
    for _ in range(3):
        world.run(for_ms=120_000)
        talk(world, 1)
    assert world.keys("n1").number > lost and live(world)


def forged_update(world, name, victim):
    """An update of this member with another seed for the victim than for the others, which its core goes on from."""
    tx, did = world.tx(name), world.did(victim)
    group = tx.group(world.id)
    made = production.produce(group.dcgka.keys, membership_of(group), tx.context, update=True)
    pair = pair_context(world.id, group.me, did)
    channel, message = two_party.send(group.dcgka.keys.channels[did], pair, bytes(32), tx.context.random)
    directs = Directs({**made.directs.messages, did: message})
    event = replace(made.event, root=directs.root).signed(group.seed)
    after = replace(made.keys, channels={**made.keys.channels, did: channel})
    publisher.distribute(tx, world.id, after, event, directs)
    world.nodes[name].agent = tx.agent
    for effect in tx.effects:
        world._perform(world.nodes[name], effect)


def test_forged_seeds_cause_few_complaints(world, monkeypatch):
    """Each complaint is a message to every member."""
    shown = []
    monkeypatch.setattr(complaints, "pack", lambda *arguments: shown.append(arguments[1]) or pack(*arguments))
    count = 3 * rate_limits.STATEMENTS_MAX
    for _ in range(count):
        forged_update(world, "n3", "n1")
        world.run(for_ms=100)
    assert world.keys("n1").numbers[world.did("n3")] > count
    assert 0 < len(shown) <= 2 * rate_limits.STATEMENTS_MAX
    assert all(world.did("n3") in world.group(name).dcgka.forgers for name in ("n0", "n1", "n2"))


@pytest.mark.parametrize("how", ["message", "claim"])
def test_distant_keys_are_paid_for(world, how):
    """A short message, or the claim to have sent many, makes us derive the keys of all before."""
    author, tx = world.did("n3"), world.tx("n0")
    epoch = world.keys("n0").receiving[author][-1]
    if how == "message":
        envelope = seal(bytes(32), Place(epoch.event, epoch.next + JUMP_MAX), world.id, author, {})
        receiver.receive_sealed(tx, world.id, author, envelope)
    else:
        receiver.settle(tx, world.id, author, (epoch.event, 2**53 - 1, 0))
    assert tx.work_us >= receiver.STEP_WORK_US * JUMP_MAX
    tx = world.tx("n0")
    receiver.settle(tx, world.id, author, (epoch.event, epoch.next, 0))
    assert not tx.work_us, "usually it is the next message"


def test_rejected_mail_is_charged(world, monkeypatch):
    """As what comes over a link: a false signature costs us as much."""
    author, tx = world.did("n3"), world.tx("n3")
    owner = mediator_mail.KeyOwner("member", cast(SecretKey, None), world.id, author)
    monkeypatch.setattr(dispatch, "_is_allowed_over", lambda *_: True)
    monkeypatch.setattr(dispatch, "addressed_to", lambda _: ("simulated/transparent", ()))
    monkeypatch.setattr(mediator_mail, "owner_of", lambda *_: ("", owner))
    publisher.make(tx, world.id, update=True)
    group = tx.group(world.id)
    sent = group.dcgka.sent[group.dcgka.keys.number]
    record = sent.record[:-1] + bytes([sent.record[-1] ^ 1])
    body = {"group": world.id, "events": [[b64url(record), ""]], "before": 0}
    message = Message(type=KEY_EVENTS, id="1", body=body)
    relationship, packer = group.links.relationships[world.did("n0")], SIMULATED_PACKERS[group.profile.envelope]
    envelope = pack(relationship, message, packer, tx.context.random)
    at = world.tx("n0")
    for _ in range(10):
        mediators._deliver(at, envelope, lambda inner: dispatch.receive_web(at, inner, None, "mediator"))
    after = at.peer(world.id, author).rate_limit
    assert at.group(world.id).dcgka == world.group("n0").dcgka, "it is rejected"
    assert after.envelopes == rate_limits.ENVELOPES_MAX - 10
    assert after.work <= rate_limits.WORK_US_MAX - 10 * (rate_limits.ENVELOPE_WORK_US + receiver.EVENT_WORK_US)
