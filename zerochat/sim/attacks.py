"""The attacks of an adversary.

An attack returns what honest members must never accept because of it (`AttackResult`), or None if it could not be
tried.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.group.event_log.event import ADD, DELETE, EDIT, LABEL, PINS, POST, REACT, REMOVE, TOPIC
from zerochat.group.inputs import ChangeRole
from zerochat.group.links.rate_limits import ENVELOPES_MAX
from zerochat.group.membership import (
    READER,
    heads_of,
    may_change_role,
    may_remove,
    resolve_view,
)
from zerochat.group.membership.attestation import sign_heads
from zerochat.group.state import Chain, ChainStart
from zerochat.group.sync.negentropy import VERSION
from zerochat.group.wire.messages import (
    EVENTS,
    FORK_PROOF,
    HISTORY_REQUEST,
    HISTORY_RESPONSE,
    JOIN_PENDING,
    JOIN_REQUEST,
    MEMBER_CONNECTIONS,
    PROBLEM,
    RECONCILE,
    STATUS,
    SYNC,
    WELCOME,
)
from zerochat.sim.adversary import Adversary
from zerochat.sim.floods import FLOODS, LABELS_EACH, Flooder
from zerochat.sim.forged_evidence import EVIDENCE_ATTACKS
from zerochat.sim.forgeries import (
    Attack,
    AttackResult,
    active_group,
    activity_after_removal,
    downgrade,
    foreign_contact,
    forged_add,
    forged_votes,
    impersonation,
    readmission,
    sample_victims,
    send_to_some,
    sync_body,
    unauthorised_change,
    unauthorised_upgrade,
)
from zerochat.sim.key_attacks import KEY_ATTACKS
from zerochat.sim.relayed_attacks import (
    equivocating_crash,
    forged_history,
    forged_responses,
    inflated_claims,
    request_flood,
    shifting_chain_base,
    unsolicited_responses,
)

SEQ_MAX = 2**53 - 1
FLOOD_EVENTS, TORRENT_EVENTS = 60, ENVELOPES_MAX * 6 // 10
"""Messages of a flood, each sent twice: below and above the rate limit."""
REPLAYED_MAX = 20
KINDS = (
    *(EVENTS, STATUS, SYNC, HISTORY_REQUEST, HISTORY_RESPONSE, RECONCILE, FORK_PROOF),
    *(JOIN_REQUEST, JOIN_PENDING, WELCOME, MEMBER_CONNECTIONS, PROBLEM),
    "https://example.org/x/1.0/y",
)
"""Every message type between members, and an unknown one."""


# --- acknowledgements -----------------------------------------------------------------------------------------------


def inflated_acknowledgements(adversary: Adversary) -> AttackResult | None:
    """Claim that every member has everything, now and in the future."""
    victims = sample_victims(adversary)
    for name in victims:
        group, _ = adversary.known[adversary.members()[name]]
        have = [adversary.rng.choice((SEQ_MAX, 1000))] * len(group.view.members)
        adversary.send_message(
            name,
            SYNC,
            sync_body(adversary, group, have=have, acked=SEQ_MAX, start_seq=adversary.rng.choice((0, SEQ_MAX))),
        )
    return AttackResult() if victims else None


def false_attestation(adversary: Adversary) -> AttackResult | None:
    """Sign that we know fewer heads than we do, or unknown ones."""
    victims = sample_victims(adversary)
    for name in victims:
        group, _ = adversary.known[adversary.members()[name]]
        heads = adversary.rng.choice(((group.id,), (b64url(adversary.rng.randbytes(32)),), (group.id,) * 3))
        word = sign_heads(group.seed, group.id, heads)
        adversary.send_message(name, SYNC, sync_body(adversary, group, heads=list(heads), attestation=word, view="x"))
    return AttackResult() if victims else None


# --- equivocation ---------------------------------------------------------------------------------------------------


def equivocating_posts(adversary: Adversary) -> AttackResult | None:
    """Send two posts at one position of our chain."""
    group, victims = active_group(adversary), adversary.victims()
    if group is None or len(victims) < 2:
        return None
    yes, no = adversary.event(POST, {"text": "yes"}), adversary.event(POST, {"text": "no"})
    for name in victims:
        adversary.send_events(name, adversary.rng.choice((yes, no)))
        if adversary.rng.random() < 0.3:
            adversary.send_events(name, no)
    return AttackResult()


def equivocating_labels(adversary: Adversary) -> AttackResult | None:
    """Send two signed events at one position: two display names."""
    group, victims = active_group(adversary), adversary.victims()
    if group is None or len(victims) < 2:
        return None
    this, that = (
        adversary.event(LABEL, {"label": f"this {adversary.name}"}),
        adversary.event(LABEL, {"label": f"that {adversary.name}"}),
    )
    for place, name in enumerate(victims):
        adversary.send_events(name, (this, that)[place % 2])
    return AttackResult()


def forked_chain(adversary: Adversary) -> AttackResult | None:
    """Send two events of our chain of which the second does not follow the first: no position is used twice, but there
    are two histories."""
    group, victims = active_group(adversary), adversary.victims()
    if group is None or len(victims) < 2:
        return None
    heads = heads_of(group.control)[:16]
    first = adversary.event(LABEL, {"label": f"left {adversary.name}"})
    second = adversary.event(
        LABEL,
        {"label": f"right {adversary.name}"},
        seq=first.seq + 1,
        pre=first.id,
        deps=heads,
        lamport=first.lamport + 1,
    )
    for place, name in enumerate(victims):
        adversary.send_events(name, (first, second)[place % 2])
    return AttackResult()


def secret_removal(adversary: Adversary) -> AttackResult | None:
    """Send the removal of a member only to that member."""
    group = active_group(adversary)
    names = [
        name for name in adversary.victims() if group and may_remove(group.view, group.me, adversary.members()[name])
    ]
    if group is None or not names or group.view.policy.remove == "quorum":
        return None
    name = adversary.rng.choice(names)
    adversary.send_events(name, adversary.event(REMOVE, {"member": adversary.members()[name], "after": SEQ_MAX}))
    return AttackResult()


def split_history(adversary: Adversary) -> AttackResult | None:
    """Be two members from now on, one for each half of the group."""
    group = active_group(adversary)
    if group is None or adversary.is_split or len(group.others) < 2:
        return None
    adversary.split(adversary.rng.sample(group.others, adversary.rng.randint(1, len(group.others) - 1)))
    for client in (0, 1):
        with adversary.using_branch(client):
            adversary.commit(LABEL, {"label": f"{adversary.name} face {client}"})
            adversary.commit(POST, {"text": f"face {client} of {adversary.name}"})
    return AttackResult()


def hidden_add(adversary: Adversary) -> AttackResult | None:
    """Let joiners through us accept an accomplice whom the others do not know."""
    group = active_group(adversary)
    if group is None or adversary.is_split:
        return None
    adversary.split(())
    adversary.admits_into = adversary.rng.choice(("hidden", "both"))
    with adversary.using_branch(1):
        _, body = adversary.make_accomplice(f"Eve of {adversary.name}")
        adversary.commit(ADD, body)
    adversary.inviting_branch = 1
    return AttackResult()


def stale_welcome(adversary: Adversary) -> AttackResult | None:
    """Admit joiners into an outdated view."""
    group = active_group(adversary)
    if group is None or adversary.is_split:
        return None
    adversary.split(())
    adversary.admits_into = adversary.rng.choice(("hidden", "both"))
    adversary.inviting_branch = 1
    return AttackResult()


def forged_welcome(adversary: Adversary) -> AttackResult | None:
    """Admit joiners into a view with an accomplice who never consented or was never added."""
    group = active_group(adversary)
    if group is None or adversary.is_split:
        return None
    adversary.split(())
    with adversary.using_branch(1):
        member, body = adversary.make_accomplice(f"Eve of {adversary.name}", consent="A" * 86)
        event = adversary.event(ADD, body)
        agent = adversary.node.agent
        control = {**group.control, event.id: event}
        chains = {**group.log.chains, group.me: Chain(event.seq, event.id, event.lamport, ChainStart.FIXED)}
        forged = replace(
            group,
            control=control,
            view=resolve_view(control),
            log=replace(group.log, chains=chains, lamport=event.lamport),
        )
        adversary.node.agent = replace(agent, groups={group.id: forged})
    adversary.inviting_branch = 1
    return AttackResult((event.id,), strangers=(member,))


# --- denial of service ----------------------------------------------------------------------------------------------


def withholding(adversary: Adversary) -> AttackResult | None:
    """Drop most of our messages to some members."""
    group = adversary.group
    if group is None:
        return None
    for peer in group.links.peers.values():
        if adversary.rng.random() < 0.5:
            adversary.withhold_from[peer.link] = adversary.rng.choice((0.5, 0.9, 1.0))
    return AttackResult()


def replay(adversary: Adversary) -> AttackResult | None:
    """Replay our own envelopes in another order."""
    said = adversary.rng.sample(adversary.sent, min(len(adversary.sent), 60))
    for name, link, envelope in said:
        adversary.world._frame(name, adversary.as_received(link, envelope))
    return AttackResult() if said else None


def replay_others(adversary: Adversary) -> AttackResult | None:
    """Replay envelopes of others: over our links, over invitations' links, over unknown links."""
    victims = sample_victims(adversary)
    if not adversary.received_envelopes or not victims:
        return None
    for name in victims:
        doors = [*adversary.world.nodes[name].agent.invitations, adversary.rng.randbytes(16)]
        for envelope in adversary.rng.sample(
            list(adversary.received_envelopes), min(len(adversary.received_envelopes), REPLAYED_MAX)
        ):
            if adversary.rng.random() < 0.7:
                adversary.deliver(name, envelope)
            else:
                adversary.world._frame(name, adversary.as_received(adversary.rng.choice(doors), envelope))
    return AttackResult()


def malformed_messages(adversary: Adversary) -> AttackResult | None:
    """Send malformed and unsolicited messages."""
    victims = sample_victims(adversary)
    for name in victims:
        for kind in KINDS:
            body: dict[str, Any] = {"group": 1, "runs": [{"author": "x"}], "heads": "no", "have": [-1, None, 2**70]}
            adversary.send_message(name, kind, adversary.rng.choice(({}, body)))
        for size in (0, 1, 40, 3000):
            adversary.deliver(
                name, adversary.rng.choice((b"", b"\x01", b"{", b"[" * 50)) + adversary.rng.randbytes(size)
            )
    return AttackResult() if victims else None


def malformed_reconciliation(adversary: Adversary) -> AttackResult | None:
    """Send malformed reconciliation messages, and false head digests that start reconciliation."""
    victims = sample_victims(adversary)
    for name in victims:
        group, _ = adversary.known[adversary.members()[name]]
        adversary.send_message(
            name,
            SYNC,
            sync_body(adversary, group, head_digests=b64url(adversary.rng.randbytes(2 * len(group.view.members)))),
        )
        for _ in range(adversary.rng.randint(1, 12)):
            malformed_messages = adversary.rng.randbytes(adversary.rng.choice((0, 1, 40, 3000)))
            # Unbounded ranges, empty lists and fingerprints, unbounded numbers.
            words = (
                b"",
                malformed_messages,
                bytes([VERSION]),
                bytes([VERSION ^ 1]) + malformed_messages,
                bytes([VERSION]) + malformed_messages,
            )
            word = adversary.rng.choice(
                (*words, bytes([VERSION]) + b"\0\0\1" * 9_000, bytes([VERSION]) + b"\xff" * 9_000)
            )
            since = adversary.rng.choice((0, adversary.world.now - 60_000, SEQ_MAX))
            thread = adversary.rng.choice((None, "never asked"))
            adversary.send_message(
                name, RECONCILE, {"group": group.id, "since": since, "message": b64url(word)}, thread
            )
    return AttackResult() if victims else None


def flood(adversary: Adversary) -> AttackResult | None:
    """Send many events at once, sometimes beyond the rate limit."""
    victims = sample_victims(adversary)
    for name in victims[:1]:
        event = adversary.event(POST, {"text": "x" * 200})
        for _ in range(FLOOD_EVENTS if adversary.rng.random() < 0.8 else TORRENT_EVENTS):
            adversary.send_events(name, event)
            event = adversary.event(
                POST, {"text": "x" * 200}, seq=event.seq + 1, pre=event.id, lamport=event.lamport + 1
            )
    return AttackResult() if victims else None


def _flood_of(kind: str) -> Attack:
    def attack(adversary: Adversary) -> AttackResult | None:
        group, victims = active_group(adversary), adversary.victims()
        if group is None or not victims:
            return None
        name = adversary.rng.choice(victims)
        did = adversary.members()[name]
        by = Flooder(group, did, adversary.known[did][1], adversary.world.now, adversary.rng.randbytes)
        # One chain of membership events for all victims: a second one would be an equivocation, another attack.
        messages = adversary.floods.setdefault(kind if kind == "membership" else f"{kind} {did}", FLOODS[kind](by))
        count = FLOOD_EVENTS if adversary.rng.random() < 0.8 else TORRENT_EVENTS
        for type_, body in islice(messages, count // LABELS_EACH + 3 if kind == "membership" else count):
            adversary.send_message(name, type_, body)
        return AttackResult()

    return attack


FLOOD_ATTACKS: Mapping[str, Attack] = {f"flood of {kind}": _flood_of(kind) for kind in FLOODS}
"""Genuine messages that are cheap to send and costly to answer, as many as the rate limits allow."""


def far_future_clock(adversary: Adversary) -> AttackResult | None:
    """Send events with timestamps from the far future."""
    group = active_group(adversary)
    if group is None:
        return None
    ahead = adversary.rng.choice((SEQ_MAX, adversary.world.now + 3_600_000, adversary.world.now + 301_000 + 900_000))
    kind, body = adversary.rng.choice(((POST, {"text": "tomorrow"}), (LABEL, {"label": f"late {adversary.name}"})))
    return send_to_some(adversary, adversary.event(kind, body, lamport=ahead))


def clock_ahead(adversary: Adversary) -> AttackResult | None:
    """Set our clock ahead as far as others accept."""
    group = active_group(adversary)
    if group is None:
        return None
    for name in sample_victims(adversary):
        adversary.send_events(name, adversary.event(POST, {"text": "soon"}, lamport=adversary.world.now + 240_000))
    return AttackResult()


def reader_posts(adversary: Adversary) -> AttackResult | None:
    """Become a reader and post."""
    group = active_group(adversary)
    if group is None or adversary.is_split:
        return None
    if group.view.members[group.me].role != READER:
        if not may_change_role(group.view, group.me, group.me, READER):
            return None
        adversary.world.run_command(adversary.name, ChangeRole(group.id, "", READER))
    event = adversary.commit(POST, {"text": "a reader's word"})
    return AttackResult(unshown=(event.id,)) if event else None


def foreign_annotations(adversary: Adversary) -> AttackResult | None:
    """Edit and delete posts of others, and send invalid annotations."""
    group = active_group(adversary)
    posts = [row.id for row in adversary.node.log if row.type == POST and row.author != group.me] if group else []
    if not posts:
        return None
    of = adversary.rng.choice(posts)
    last = adversary.node.log[-1].id
    said: list[tuple[str, dict[str, Any]]] = [
        (EDIT, {"target": of, "text": f"put into its mouth by {adversary.name}"}),
        (DELETE, {"target": of}),
        (EDIT, {"target": of, "text": None}),
        (EDIT, {"target": last, "text": "an edit of whatever that is"}),
        (REACT, {"target": last, "emoji": "👍", "on": True}),
        (REACT, {"target": of, "emoji": "👍" * 16_384, "on": True}),
        (REACT, {"target": [of], "emoji": {}, "on": 1}),
        (TOPIC, {"text": "two\nlines"}),
        (PINS, {"targets": [of, 7, {}]}),
        (PINS, {"targets": [of] * 16_384}),
    ]
    for kind, body in adversary.rng.sample(said, adversary.rng.randint(1, len(said))):
        adversary.commit(kind, body)
    return AttackResult()


def _named(attacks: Iterable[Attack]) -> dict[str, Attack]:
    return {attack.__name__.replace("_", " "): attack for attack in attacks}


ATTACKS: Mapping[str, Attack] = dict(FLOOD_ATTACKS) | _named(
    [
        forged_add,
        impersonation,
        readmission,
        unauthorised_change,
        unauthorised_upgrade,
        downgrade,
        forged_votes,
        activity_after_removal,
        foreign_contact,
        inflated_acknowledgements,
        false_attestation,
        equivocating_posts,
        equivocating_labels,
        forked_chain,
        secret_removal,
        split_history,
        hidden_add,
        stale_welcome,
        forged_welcome,
        withholding,
        replay,
        replay_others,
        malformed_messages,
        malformed_reconciliation,
        flood,
        far_future_clock,
        clock_ahead,
        reader_posts,
        forged_responses,
        forged_history,
        unsolicited_responses,
        inflated_claims,
        shifting_chain_base,
        equivocating_crash,
        request_flood,
        foreign_annotations,
        *EVIDENCE_ATTACKS,
        *KEY_ATTACKS,
    ]
)
