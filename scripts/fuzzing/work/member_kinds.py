"""Messages of a member: posts and membership, state, history, comparisons, files, and the standard protocols."""

from random import Random
from typing import Any

from fuzzing.work.kinds import kind
from fuzzing.work.scene import FILE
from fuzzing.work.speaker import Speaker
from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.did import new_peer4
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.message import ACKS_MAX, Message
from zerochat.didcomm.protocols import ack, exchange, features, ping, problem
from zerochat.group.event_log.event import ADD, EDIT, LABEL, REACT, ROLE, Event
from zerochat.group.inputs import Received
from zerochat.group.links.contact import (
    Reach,
    new_identity,
    sign_consent,
    sign_possession,
    sign_proof,
    transport_public,
)
from zerochat.group.sync.negentropy import Items, initial_message
from zerochat.group.wire.event_runs import compress_runs, write_runs
from zerochat.group.wire.files import (
    AVAILABLE_FILES_MAX,
    FILE_PART,
    FILE_REQUEST,
    FILE_UNAVAILABLE,
    FILES_AVAILABLE,
    REQUEST_PARTS_MAX,
)
from zerochat.group.wire.messages import (
    EVENTS,
    FORK_PROOF,
    HAVE_MAX,
    HEADS_MAX,
    HISTORY_REQUEST,
    HISTORY_RESPONSE,
    JOIN_REQUEST,
    MEMBER_CONNECTIONS,
    PRIVATE_INVITATION,
    READ,
    RECONCILE,
    STATUS,
    SYNC,
    TYPING,
    WELCOME,
)
from zerochat.limits import LATEST_AUTHORS_MAX


def _text(speaker: Speaker, size: int) -> str:
    """Random text, which does not compress."""
    return b64url(speaker.random(size * 3 // 4))


def _packed(speaker: Speaker, events: list[Event]) -> dict[str, Any]:
    """A body with compressed events."""
    return dict(compress_runs(Message(type=EVENTS, id="x", body=speaker.events(events))).body)


# --- events -----------------------------------------------------------------------------------------------------------


@kind(EVENTS)
def posts(speaker: Speaker, dice: Random) -> Received:
    count = dice.choice((1, 1, 8, 64))
    size = dice.choice((15, 150, 40_000 // count))
    return speaker.say(
        EVENTS, speaker.events([speaker.event(body={"text": _text(speaker, size)}) for _ in range(count)])
    )


@kind(EVENTS)
def packed_posts(speaker: Speaker, dice: Random) -> Received:
    """A few bytes that are many."""
    text = "x" * dice.choice((10, 300, 30_000))
    count = 256 if len(text) < 500 else 7
    return speaker.say(EVENTS, _packed(speaker, [speaker.event(body={"text": text}) for _ in range(count)]))


@kind(EVENTS)
def early_posts(speaker: Speaker, dice: Random) -> Received:
    """Posts behind a gap, which wait in the reorder buffer."""
    count = dice.choice((1, 1, 16))
    body = {"text": _text(speaker, 20_000 // count)}
    return speaker.say(
        EVENTS, speaker.events([speaker.event(body=body, ahead=speaker.dice.randrange(1, 300)) for _ in range(count)])
    )


@kind(EVENTS)
def repeated_posts(speaker: Speaker, dice: Random) -> Received:
    known = speaker.kept.setdefault("repeated", [speaker.event(body={"text": "again"}) for _ in range(64)])
    return speaker.say(EVENTS, speaker.events(known))


@kind(EVENTS)
def annotations(speaker: Speaker, dice: Random) -> Received:
    target = {"target": speaker.scene.post}
    made = [
        speaker.event(REACT, {**target, "emoji": "👍", "on": speaker.dice.random() < 0.5})
        if speaker.dice.random() < 0.7
        else speaker.event(EDIT, {**target, "text": _text(speaker, 500)})
        for _ in range(dice.choice((1, 64)))
    ]
    return speaker.say(EVENTS, speaker.events(made))


@kind(EVENTS)
def membership(speaker: Speaker, dice: Random) -> Received:
    """New members, and renames by all of them."""
    made: list[Event] = []
    heads, concurrent = speaker.heads(), dice.random() < 0.3
    for _ in range(dice.choice((1, 16, 64))):
        by = speaker.dice.choice([None, *speaker.sybils])
        if len(speaker.sybils) < 20 and speaker.dice.random() < 0.2:
            event = _add(speaker, heads)
        else:
            event = speaker.event(LABEL, {"label": f"name {speaker.dice.randrange(1 << 40)}"}, deps=heads, by=by)
        made.append(event)
        heads = heads if concurrent else (event.id,)
    return speaker.say(EVENTS, speaker.events(made))


def _add(speaker: Speaker, heads: tuple[str, ...]) -> Event:
    seed, member = speaker.new_member()
    at = Endpoint("10.9.9.9", 9)
    contact = new_identity(speaker.random, Reach(speaker.random(32), at, at), "didcomm/v2").did
    said = (member, f"sybil {len(speaker.sybils)}", contact, "writer", transport_public(seed))
    body: dict[str, Any] = dict(zip(("member", "label", "contact", "role", "transport"), said, strict=True))
    group, me = speaker.ours().id, speaker.mine().me
    body["possession"] = sign_possession(seed, group, member)
    body["consent"] = sign_consent(seed, group, me, *said)
    speaker.sybils.append((seed, member))
    return speaker.event(ADD, body, deps=heads)


@kind(EVENTS)
def blocked_membership(speaker: Speaker, dice: Random) -> Received:
    """Membership events whose dependencies never come."""
    body = {"member": speaker.mine().me, "role": "writer", "after": 0}
    return speaker.say(
        EVENTS,
        speaker.events(
            [
                speaker.event(ROLE, body, deps=(b64url(speaker.random(32)),), ahead=9)
                for _ in range(dice.choice((1, 64)))
            ]
        ),
    )


@kind(STATUS)
def status(speaker: Speaker, dice: Random) -> Received:
    """News about membership, and another address each time."""
    body: dict[str, Any] = {"group": speaker.ours().id, **_state(speaker, dice), "runs": []}
    if dice.random() < 0.7:
        body["reach"] = _reach(speaker, dice)
    if dice.random() < 0.3:
        body["runs"] = speaker.events([speaker.event(LABEL, {"label": _text(speaker, 40)}, deps=speaker.heads())])[
            "runs"
        ]
    return speaker.say(STATUS, body)


# --- state ------------------------------------------------------------------------------------------------------------


def _state(speaker: Speaker, dice: Random, where: str = "plain") -> dict[str, Any]:
    """A view and acknowledgements: ever more, or anything."""
    view = speaker.ours(where).view.checksum if dice.random() < 0.8 else b64url(speaker.random(16))
    speaker.kept["have"] = speaker.kept.get("have", 0) + 1
    count, upto = dice.choice((3, HAVE_MAX)), speaker.kept["have"] if dice.random() < 0.7 else dice.randrange(2**50)
    latest = [[dice.choice((place, 2**50)), upto] for place in range(dice.choice((0, LATEST_AUTHORS_MAX)))]
    return {"view": view, "have": [upto] * count, "have_from": dice.choice((0, 1, 2**50)), "latest": latest}


KEY = did_key(ed25519_public(b"\7" * 32))
"""The routing key of a mediator that is not there."""


def _reach(speaker: Speaker, dice: Random) -> dict[str, Any]:
    random = speaker.dice.randrange
    endpoint = f"zmq+tcp://10.1.{random(256)}.{random(256)}:7000"
    shared = {"shared": b64url(speaker.random(32))} if dice.random() < 0.5 else {}
    uris = [f"https://m{random(1 << 30)}.example/x" for _ in range(dice.choice((0, 2)))]
    mail = [{"uri": uri, "keys": [KEY], **shared} for uri in uris]
    return {"pair": endpoint, "queue": endpoint, "at": speaker.now, "mail": mail}


@kind(SYNC)
def sync(speaker: Speaker, dice: Random) -> Received:
    """A state that asks for much: gaps, relays, comparisons, views that differ."""
    group, full = speaker.ours(), dice.random() < 0.5
    body = {
        "group": group.id,
        **_state(speaker, dice),
        "start_seq": 0,
        "acked": dice.choice((0, group.seq)),
        "heads": [b64url(speaker.random(32)) for _ in range(HEADS_MAX if full else 1)],
        "reach": _reach(speaker, dice),
        "gap": True,
        "head_digests": b64url(speaker.random(2 * len(group.view.members))),
        "former": [[did, 3] for did in list(group.view.former)[:64]],
        "unreachable": [0, 1, 2],
    }
    return speaker.say(SYNC, body)


# --- history and comparisons ------------------------------------------------------------------------------------------


@kind(HISTORY_REQUEST)
def history_request(speaker: Speaker, dice: Random) -> Received:
    group = speaker.ours()
    authors = [*group.view.members, *group.view.former]
    after, upto = dice.choice((0, 0, 20)), dice.choice((21, 1_000, 2**50))
    ranges = [[did, after, upto] for did in authors[: dice.choice((1, 3, 64))]]
    body = {
        "group": group.id,
        "ranges": ranges,
        "limit": dice.choice((1, 64, 256)),
        "backwards": dice.random() < 0.6,
        "pages": dice.choice((1, 8)),
    }
    return speaker.say(HISTORY_REQUEST, body)


@kind(HISTORY_RESPONSE)
def history_response(speaker: Speaker, dice: Random) -> Received:
    """An answer to no question."""
    if "packed" not in speaker.kept:
        events = [speaker.event(body={"text": "x" * 100}, ahead=1) for _ in range(256)]
        speaker.kept["packed"] = _packed(speaker, events)["packed"]
    body = {"group": speaker.ours().id, "more": True, "packed": speaker.kept["packed"]}
    return speaker.say(HISTORY_RESPONSE, body, thid="x")


@kind(RECONCILE)
def comparison(speaker: Speaker, dice: Random) -> Received:
    group = speaker.ours()
    times = [speaker.dice.randrange(1, speaker.now) for _ in range(dice.choice((0, 10, 1_000)))]
    items = Items(sorted((time, speaker.random(32)) for time in times))
    since = group.view.members[speaker.mine().me].joined
    return speaker.say(RECONCILE, {"group": group.id, "since": since, "message": b64url(initial_message(items))})


@kind(FORK_PROOF)
def fork_proof(speaker: Speaker, dice: Random) -> Received:
    """Two events at one place, which prove that the rogue has lied; then the same again."""
    if "fork" not in speaker.kept or speaker.dice.random() < 0.3:
        heads = speaker.heads()
        first = speaker.event(LABEL, {"label": "one"}, deps=heads, ahead=7)
        other = speaker.event(LABEL, {"label": _text(speaker, 40)}, deps=heads, ahead=7)
        speaker.kept["fork"] = write_runs([first, other])
    return speaker.say(FORK_PROOF, {"group": speaker.ours().id, "runs": speaker.kept["fork"]})


# --- files ------------------------------------------------------------------------------------------------------------


@kind(FILE_REQUEST)
def file_request(speaker: Speaker, dice: Random) -> Received:
    file = FILE.id if dice.random() < 0.9 else b64url(speaker.random(32))
    count = dice.choice((1, REQUEST_PARTS_MAX))
    first = speaker.dice.randrange(FILE.parts - count)
    return speaker.say(FILE_REQUEST, {"group": speaker.ours().id, "file": file, "first": first, "count": count})


@kind(FILE_PART)
def file_part(speaker: Speaker, dice: Random) -> Received:
    data, path = b64url(speaker.random(dice.choice((1, 20_000)))), [b64url(speaker.random(32)) for _ in range(8)]
    return speaker.say(FILE_PART, {"group": speaker.ours().id, "file": FILE.id, "part": 0, "data": data, "path": path})


@kind(FILE_UNAVAILABLE)
def file_unavailable(speaker: Speaker, dice: Random) -> Received:
    reason = dice.choice(("absent", "busy"))
    return speaker.say(FILE_UNAVAILABLE, {"group": speaker.ours().id, "file": FILE.id, "reason": reason})


@kind(FILES_AVAILABLE)
def files_available(speaker: Speaker, dice: Random) -> Received:
    listed = [FILE.id, *(b64url(speaker.random(32)) for _ in range(AVAILABLE_FILES_MAX - 1))]
    return speaker.say(FILES_AVAILABLE, {"group": speaker.ours().id, "files": listed})


# --- joining, indicators ----------------------------------------------------------------------------------------------


@kind(JOIN_REQUEST)
def join_request(speaker: Speaker, dice: Random) -> Received:
    """A member repeats its join request."""
    group, me, seed = speaker.ours(), speaker.mine().me, speaker.mine().seed
    said = (me, "rogue", speaker.mine().contact.did, "writer", transport_public(seed))
    body: dict[str, Any] = dict(zip(("member", "label", "contact", "role", "transport"), said, strict=True))
    proofs = {
        "possession": sign_possession(seed, group.id, me),
        "consent": sign_consent(seed, group.id, group.me, *said),
        "proof": "",
    }
    return speaker.say(JOIN_REQUEST, {"group": group.id, **body, **proofs})


@kind(WELCOME)
def stray_welcome(speaker: Speaker, dice: Random) -> Received:
    """A welcome from a member that has not invited us."""
    runs = speaker.events(list(speaker.ours().control.values()))["runs"]
    return speaker.say(WELCOME, {"group": speaker.ours().id, "start_seq": 0, "part": 0, "parts": 1, "runs": runs})


@kind(MEMBER_CONNECTIONS)
def member_connections(speaker: Speaker, dice: Random) -> Received:
    body = {"group": speaker.ours().id, "connected": dice.randrange(9), "members": dice.randrange(9)}
    return speaker.say(MEMBER_CONNECTIONS, body)


@kind(PRIVATE_INVITATION)
def private_invitation(speaker: Speaker, dice: Random) -> Received:
    body = {
        "group": speaker.ours().id,
        "conversation": b64url(speaker.random(32)),
        "founder": b64url(speaker.random(64)),
        "invitation": speaker.scene.invitation.url(),
    }
    return speaker.say(PRIVATE_INVITATION, body)


@kind(TYPING)
def typing(speaker: Speaker, dice: Random) -> Received:
    return speaker.say(TYPING, {"group": speaker.ours().id})


@kind(READ)
def read(speaker: Speaker, dice: Random) -> Received:
    speaker.kept["read"] = speaker.kept.get("read", speaker.ours().log.lamport - 10_000) + 1
    return speaker.say(READ, {"group": speaker.ours().id, "upto": speaker.kept["read"]})


# --- standard protocols -----------------------------------------------------------------------------------------------


@kind(ping.PING)
def pings(speaker: Speaker, dice: Random) -> Received:
    ids = tuple(f"{number:0200}" for number in range(ACKS_MAX)) if dice.random() < 0.5 else ()
    return speaker.say(ping.PING, {"response_requested": True}, please_ack=ids)


@kind(features.QUERIES)
def feature_query(speaker: Speaker, dice: Random) -> Received:
    match = [f"*{letter}*o*" + "x" * dice.randrange(90) for letter in "abcdefghijklmnop"] + ["*"]
    listed = [{"feature-type": "protocol", "match": each} for each in match]
    return speaker.say(features.QUERIES, {"queries": listed})


@kind(ack.EMPTY)
def acknowledgement(speaker: Speaker, dice: Random) -> Received:
    ids = tuple(f"{number:0200}" for number in range(ACKS_MAX))
    if dice.random() < 0.5:
        return speaker.say(ack.EMPTY, {}, ack=ids)
    return speaker.say(ack.EMPTY, {}, please_ack=ids)


@kind(problem.PROBLEM)
def problem_report(speaker: Speaker, dice: Random) -> Received:
    return speaker.say(problem.PROBLEM, {"code": "e.p.msg", "comment": _text(speaker, 400)}, pthid="x")


@kind("https://example.org/unknown/1.0/x")
def unknown_message(speaker: Speaker, dice: Random) -> Received:
    return speaker.say("https://example.org/unknown/1.0/x", {"text": _text(speaker, dice.choice((10, 100_000)))})


@kind(exchange.REQUEST)
def exchange_request(speaker: Speaker, dice: Random) -> Received:
    """The member offers another relationship, again and again."""
    ours, mine = speaker.ours(), speaker.mine()
    fresh = new_peer4(speaker.random, [])
    contact = ours.view.members[ours.me].contact
    proof = sign_proof(mine.seed, ours.id, fresh.did, contact, ours.me)
    body = {"goal_code": "org.zerochat.contact", "member": mine.me, "proof": proof}
    request = exchange.request(fresh, contact, ours.id, body, speaker.random)
    return speaker.raw(speaker.first(fresh, contact, request))


@kind("")
def garbage(speaker: Speaker, dice: Random) -> Received:
    return speaker.raw(speaker.random(dice.choice((10, 1_000, 100_000))))
