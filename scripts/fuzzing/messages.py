"""Fuzz targets of plaintexts: messages of both versions, bodies of the protocols, and forwards."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

from fuzzing.envelopes import TEXT, V1, V2
from fuzzing.nodes import Part
from fuzzing.people import ALICE, BOB, INVITER, KEYS, MEDIATOR, dice, known, own
from fuzzing.run import Form
from zerochat.crypto.encoding import b64url, compact_json
from zerochat.crypto.keys import SecretKey, public_of
from zerochat.didcomm import jws, message, v1
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.attachment import Attachment, attachment_bytes, check_hash
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message
from zerochat.didcomm.protocols import (
    STANDARD,
    ack,
    basic,
    didexchange,
    features,
    mediation,
    mixing,
    pickup,
    ping,
    problem,
    relayed_post,
    rotate,
    routing,
    shared_mailbox,
    signed_attachment,
    standard_answer,
)
from zerochat.didcomm.rotation import Prior, from_prior
from zerochat.errors import Malformed, RemoteError

RICH = Message(
    type="https://didcomm.org/discover-features/2.0/queries",
    id="6f0a5b9e-6b0c-4c2e-9d6e-0f5c1a2b3c4d",
    body={"queries": [{"feature-type": "protocol", "match": "https://didcomm.org/*"}], "n": [1, 2.5, None, True]},
    from_=ALICE.did,
    to=(BOB.short, "did:key:z6Mk"),
    thid="t-1",
    pthid="p-1",
    created_time=1_800_000_000,
    expires_time=1_900_000_000,
    from_prior=from_prior(Prior(INVITER.did, INVITER.kid_signing, INVITER.signing_seed), ALICE.did, 1_800_000_000),
    attachments=(
        Attachment(id="a", media_type="text/plain", filename="a.txt", base64="aGVsbG8", lastmod_time=5, byte_count=5),
        Attachment(json={"x": [1]}, jws=jws.sign_detached(b"{}", [(own("alice", "Ed25519").kid, KEYS["Ed25519"])])),
        Attachment(links=("https://example.com/1",), hash="1220" + "ab" * 32, format="x@1"),
    ),
    please_ack=("", "m-1"),
    ack=("m-0",),
    lang="en",
    accept_lang=("de", "en-GB"),
    return_route="all",
    delay_milli=-5,
)


class _Plain:
    """A message and its attachments are read, and written again as the same message."""

    form: Form = "text"
    size_max = MESSAGE_BYTES_MAX
    name: str
    dump: Callable[[Message], bytes]
    read: Callable[[bytes], Message]

    def seeds(self) -> list[bytes]:
        return [type(self).dump(RICH), type(self).dump(TEXT), type(self).dump(Message(type="x", id="1"))]

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        found = type(self).read(data)
        for attachment in found.attachments:
            _look_at(attachment)
        try:
            again = type(self).dump(found)
        except Malformed:
            return found
        assert type(self).read(again) == found, "what is written again reads differently"
        return found


def _look_at(attachment: Attachment) -> None:
    try:
        content = attachment_bytes(attachment)
        check_hash(attachment, content)
    except RemoteError:
        return


class PlainV2(_Plain):
    name = "plain"
    dump = staticmethod(message.dump)
    read = staticmethod(message.parse)


class PlainV1(_Plain):
    name = "plain-v1"
    dump = staticmethod(v1.dump_v1)
    read = staticmethod(v1.parse_v1)


def envelope() -> bytes:
    """A sealed payload, for the relay."""
    return V2.anoncrypt(b"{}", recipient=V2.their_key(known(BOB.did), BOB.short), random=dice("parcel"))


# --- protocols ------------------------------------------------------------------------------------------------------


class Protocols:
    """The bodies: every reader of every protocol is given every message."""

    name = "protocols"
    form: Form = "text"
    size_max = MESSAGE_BYTES_MAX

    def seeds(self) -> list[bytes]:
        random = dice(self.name)
        both = [
            features.queries(
                random, features.Query("protocol", "https://didcomm.org/*"), features.Query("header", "*")
            ),
            features.query_v1(random, "https://*"),
            ping.ping(random),
            ping.ping(random, "didcomm/v1"),
            ack.empty(random, "t-1"),
            basic.basic("hello", 1_800_000_000, random),
            problem.problem("e.p.req.max-errors-exceeded", TEXT, random, ("a", "b"), "{1} of {2}"),
            problem.problem_v1("request_not_accepted", TEXT, "no", random),
        ]
        asked = mediation.request(random, pthid="p-1")
        update = mediation.update([mediation.Change(ALICE.short, "add")], random)
        query = mediation.query(random, mediation.Page())
        waiting = pickup.status_request(random, ALICE.short)
        wanted = pickup.delivery_request(random, 10, ALICE.short)
        both += [
            asked,
            update,
            query,
            mediation.grant(asked, MEDIATOR.short, random),
            mediation.deny(asked, random),
            mediation.update_response(update, [mediation.Changed(ALICE.short, "add", "success")], random),
            mediation.listing(query, mediation.Listed((ALICE.short,), 0, 0), random),
            waiting,
            wanted,
            pickup.status(waiting, pickup.Waiting(3), 1_800_000_000, random),
            pickup.delivery([pickup.Parcel("1", envelope())], random, thid="t-1"),
            pickup.messages_received(["1"], random),
            pickup.live_delivery_change(True, random),
        ]
        both += [rotate.rotate(ALICE.did, random), rotate.hangup(random)]
        wish = relayed_post.PostRequest("http://relay.example/", envelope(), "x", AddressKind.PRIVATE)
        both.append(posting := relayed_post.post(wish, random))
        both.append(relayed_post.posted(posting, relayed_post.PostResult("busy", envelope()), random))
        share = shared_mailbox.share(bytes(32), ALICE.short, BOB.did, MEDIATOR.did)
        both.append(keeping := shared_mailbox.keep([share], random))
        both.append(shared_mailbox.kept(keeping, [share.key], random))
        answers = [standard_answer(asked, disclosed=STANDARD, random=random) for asked in both]
        both += [answer for answer in answers if answer is not None]
        document = {"id": ALICE.did, "service": [didexchange.service_v1("https://example.com/")]}
        signer = public_of(_ALICE_SIGNS)
        _, exchange = didexchange.request(
            ALICE.did, "Alice", (signer,), random, pthid="p-1", attached=(document, _ALICE_SIGNS)
        )
        return [*(message.dump(each) for each in both), v1.dump_v1(exchange)]

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        found = v1.parse_v1(data) if b'"@type"' in data else message.parse(data)
        kept = [_tried(read, found) for read in _READERS]
        trees = [value for value in found.body.values() if isinstance(value, dict)][:4]
        return kept + [_tried(signed_attachment.read_signed, tree) for tree in trees]


_ALICE_SIGNS = SecretKey("Ed25519", ALICE.signing_seed)
_READERS: tuple[Callable[[Message], object], ...] = (
    features.read_queries,
    features.read_disclosure,
    basic.read_basic,
    problem.read_problem,
    mediation.read_update,
    mediation.read_query,
    mediation.read_grant,
    mediation.read_update_response,
    mediation.read_listing,
    pickup.read_status_request,
    pickup.read_delivery_request,
    pickup.read_received,
    pickup.read_live_change,
    pickup.read_status,
    pickup.read_delivery,
    routing.read_forward,
    rotate.read_rotate,
    relayed_post.read_post,
    relayed_post.read_posted,
    shared_mailbox.read_keep,
    shared_mailbox.read_kept,
    lambda found: problem.parse_code(str(found.body.get("code"))),
    lambda found: didexchange.receive_request(found, found.pthid or "", public_of(_ALICE_SIGNS), known),
    lambda found: standard_answer(found, disclosed=STANDARD, random=dice("answer")),
    lambda found: standard_answer(found, disclosed=STANDARD, random=dice("answer"), profile="didcomm/v1"),
)


def _tried(read: Callable[[Any], object], value: object) -> object:
    try:
        return read(value)
    except RemoteError:
        return None


# --- forwards -------------------------------------------------------------------------------------------------------


class Forward:
    """A forward request to a mediator, in the spellings of v2, of the draft and of v1."""

    name = "forward"
    form: Form = "text"
    size_max = MESSAGE_BYTES_MAX

    def seeds(self) -> list[bytes]:
        random, inner = dice(self.name), envelope()
        wish = mixing.Mix(0.5, 0.5, 0.1)
        near = MEDIATOR.short
        v2 = routing.forward(
            inner, BOB.short, to=near, random=random, delay_milli=-500, mix=wish, noise=9, wants_receipt=True
        )
        shared = shared_mailbox.sign_post(bytes(32), inner)
        packed = Message(
            type=routing.FORWARD, id="1", body={"next": BOB.did}, attachments=(Attachment(base64=b64url(inner)),) * 2
        )
        payload = {"@id": "a", "mime-type": "application/json", "data": {"json": json.loads(inner)}}
        timing = {"delay_milli": 5, "wait_until_time": "2026-01-31 09:05:00Z", "expires_time": "2026-02-01T09:05Z"}
        draft = {
            "@type": routing.FORWARD_V1,
            "@id": "1",
            "to": BOB.did,
            "payloads~attach": [payload],
            "~timing": timing,
        }
        v1_to = V1.their_key(known(BOB.did), BOB.short)
        return [
            v2,
            routing.forward(inner, shared_mailbox.key_of(bytes(32)), to=near, random=random, shared=shared),
            message.dump(packed),
            routing.forward(inner, v1_to.kid, to=None, random=random, profile="didcomm/v1"),
            compact_json(draft),
            compact_json({**draft, "mix": {"hop_chance": 0.5, "hop_decay": 0.5, "noise_chance": 1}}),
        ]

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        wanted = routing.forward_in(data)
        if wanted is None:
            return None
        when = routing.ready_at(wanted, 1_800_000_000_000, dice("delay"))
        assert when >= 1_800_000_000_000
        assert all(wanted.envelopes) and wanted.next
        return when, mixing.detour(wanted.mix, (MEDIATOR.did,), dice("detour"))
