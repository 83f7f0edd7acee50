"""Messages of the inviter of a join of ours, and of the holder of an invitation of ours."""

from random import Random
from typing import Any

from fuzzing.work.kinds import kind
from fuzzing.work.speaker import Speaker
from zerochat.crypto.encoding import b64url
from zerochat.didcomm.did import Identity, new_peer4
from zerochat.didcomm.protocols import exchange
from zerochat.group.inputs import Received
from zerochat.group.links.contact import join_link, sign_consent, sign_possession, transport_public
from zerochat.group.links.relationship import Relationship
from zerochat.group.wire.messages import JOIN_PENDING, JOIN_REQUEST, PROBLEM, WELCOME

# --- the inviter ------------------------------------------------------------------------------------------------------


def _invited(speaker: Speaker, type_: str, body: dict[str, Any]) -> Received:
    link = bytes.fromhex(speaker.scene.asked)
    (claim,) = speaker.agent.invitations[link].claims.values()
    return Received(link, speaker.packed(claim.relationship, type_, body))


@kind(JOIN_PENDING, "inviter")
def join_pending(speaker: Speaker, dice: Random) -> Received:
    group = speaker.victim.joins[bytes.fromhex(speaker.scene.asked)].group
    return _invited(speaker, JOIN_PENDING, {"group": group, "until": speaker.now + speaker.dice.randrange(1 << 30)})


@kind(WELCOME, "inviter")
def welcome(speaker: Speaker, dice: Random) -> Received:
    """Parts of an evidence that never ends, or one that proves nothing."""
    group = speaker.victim.joins[bytes.fromhex(speaker.scene.asked)].group
    runs = speaker.events(list(speaker.ours().control.values()))["runs"]
    parts = dice.choice((1, 300))
    body = {"group": group, "start_seq": 0, "part": speaker.dice.randrange(parts), "parts": parts, "runs": runs}
    return _invited(speaker, WELCOME, body)


@kind("", "inviter")
def inviter_garbage(speaker: Speaker, dice: Random) -> Received:
    return Received(bytes.fromhex(speaker.scene.asked), speaker.random(dice.choice((10, 1_000, 100_000))))


# --- the holder of an invitation --------------------------------------------------------------------------------------


def _link(speaker: Speaker) -> bytes:
    return join_link(speaker.scene.invitation.id)


def _exchanged(speaker: Speaker, mine: Identity, member: str) -> Received:
    invitation = speaker.scene.invitation
    body = {"goal_code": "org.zerochat.join", "member": member, "label": "stranger"}
    request = exchange.request(mine, invitation.did, invitation.pthid, body, speaker.random)
    return Received(_link(speaker), speaker.first(mine, invitation.did, request), b"handle")


@kind(exchange.REQUEST, "holder")
def stranger_request(speaker: Speaker, dice: Random) -> Received:
    """A new DID and a new key each time, or the last ones again."""
    if "stranger" not in speaker.kept or speaker.dice.random() < 0.7:
        speaker.kept["stranger"] = new_peer4(speaker.random, []), *speaker.new_member()
    mine, _, member = speaker.kept["stranger"]
    return _exchanged(speaker, mine, member)


@kind(JOIN_REQUEST, "holder")
def stranger_join(speaker: Speaker, dice: Random) -> Received:
    """A join request in a claimed relationship; without one, the exchange that leads there."""
    claims = speaker.victim.invitations[_link(speaker)].claims
    known = speaker.kept.get("stranger")
    claim = claims.get(known[0].short) if known is not None else None
    if known is None or claim is None:
        return stranger_request(speaker, dice)
    mine, seed, member = known
    there = Relationship(claim.relationship.member, mine, claim.relationship.mine.did, "", "", requester=True)
    group = speaker.ours()
    label, contact = "stranger", new_peer4(speaker.random, []).did
    said = (member, label, contact, "writer", transport_public(seed))
    body: dict[str, Any] = dict(zip(("member", "label", "contact", "role", "transport"), said, strict=True))
    body["possession"] = sign_possession(seed, group.id, member)
    body["consent"] = sign_consent(seed, group.id, group.me, *said)
    body["proof"] = b64url(speaker.random(64))
    return Received(_link(speaker), speaker.packed(there, JOIN_REQUEST, {"group": group.id, **body}), b"handle")


@kind(PROBLEM, "holder")
def stranger_cancels(speaker: Speaker, dice: Random) -> Received:
    known = speaker.kept.get("stranger")
    claims = speaker.victim.invitations[_link(speaker)].claims
    claim = claims.get(known[0].short) if known is not None else None
    if known is None or claim is None:
        return stranger_request(speaker, dice)
    there = Relationship("", known[0], claim.relationship.mine.did, "", "", requester=True)
    return Received(_link(speaker), speaker.packed(there, PROBLEM, {"code": "e.p.req.withdrawn"}), b"handle")


@kind("", "holder")
def stranger_garbage(speaker: Speaker, dice: Random) -> Received:
    return Received(_link(speaker), speaker.random(dice.choice((10, 1_000, 100_000))), b"handle")
