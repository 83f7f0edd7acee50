"""Proof of mediators: an address that a peer names gets no mail until the mediator there has answered.

    sender                                    the address that a peer names
      | -- trust ping, from a new DID ---------> |   encrypted to the first routing key of the route
      | <- answer, authenticated by that key --- |   on the same connection

Otherwise a member could name any machine as its mediator, and have the agents of all others send there what it asks
for (reflection). Until the proof, an address gets one small probe at a time with exponential backoff, within a token
bucket of bytes for the peer that names it. An address that has never proved itself gets at most twice the bytes that
the peer has sent, as in QUIC (RFC 9000, section 8), and a probe a day: a mediator may have been down. A proof ends with
time, with the bytes that it covers, or when the address fails: a name may point to another machine by then.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from zerochat.crypto.keys import PublicKey
from zerochat.didcomm.address_kinds import AddressKind, authority
from zerochat.didcomm.did import Document, Identity, new_peer2, resolve, same_did, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer
from zerochat.didcomm.protocols import ping
from zerochat.didcomm.service import Route
from zerochat.errors import Refused, RemoteError, Unauthentic
from zerochat.group.backoff import Backoff
from zerochat.group.effects import Measure, WebPost
from zerochat.group.links.relationship import own_keys
from zerochat.group.state.external import HeldEnvelope, MailedBytes, MediatorProbe, MediatorProof, ProbeRecord
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

ENVELOPE = "didcomm/v2"
"""The envelope of probes and forwards, whatever they contain: mediators support it, and it hides the sender."""
PROOF_MS, PROOF_BYTES = 3_600_000, 8 << 20
"""How long and for how many bytes an address counts as proved. It is probed again from the half on."""
PROBE_MS = 30_000
"""How long an answer is awaited."""
PROBE_BYTES_MAX, PROBE_BYTES_PER_HOUR = 32 * 1024, 32 * 1024
"""The burst and the sustained rate of unproved bytes for each peer: at most 64 KiB in any hour."""
PROBE_BYTES = 4 * 1024
"""The bytes that must be left for a probe. One takes 1,900 with the headers of its request, more for a long DID."""
AMPLIFICATION = 2
"""The bytes that a peer may have us send to addresses that have never proved themselves, for each byte from it."""
CLAIM_BYTES = 1_500
"""The bytes of the event or the invitation that names the first address of a peer, at the least."""
CREDIT_MAX, CREDIT_PER_DAY = PROBE_BYTES, 2_000
"""The limit of that credit, and what comes without any message of the peer: about one probe a day."""
HEADER_BYTES = 300
"""The headers of a request, which count as well."""
RETRY = Backoff(10_000, 3_600_000)
"""Exponential backoff of the probes for a peer whose addresses have never proved themselves."""
RETRY_KNOWN = Backoff(2_000, 60_000)
"""And for one with an address that had: its mediator may have restarted."""
MAIL_BYTES_PER_S, MAIL_BYTES_MAX = 256 * 1024, 8 << 20
"""Sustained rate and burst of mail for one peer, to proved addresses."""
HOST_BYTES_PER_S, HOST_BYTES_MAX = 2 << 20, 32 << 20
"""And of all mail to one host, except to our own mediator."""
RECORDS_MAX, PROOFS_MAX = 512, 512
HELD_MAX, HELD_BYTES_MAX = 4, 64 * 1024
"""Envelopes that wait with a probe, of peers that are not retransmitted to."""


def _way(route: Route) -> str:
    """The name of an address together with the mediator that should be there."""
    return f"{route.uri} {short_form(mediator_of(route))}"


def mediator_of(route: Route) -> str:
    """The DID of the first mediator on a route."""
    return route.routing_keys[0].partition("#")[0]


def is_proved(tx: Transaction, route: Route) -> bool:
    """Whether the mediator of this route has proved that the address is its own."""
    proof = tx.agent.mediator_proofs.get(_way(route))
    return proof is not None and tx.now < proof.until <= tx.now + PROOF_MS and proof.bytes > 0


def spend(tx: Transaction, payer: str, route: Route, size: int) -> bool:
    """Count bytes for a peer that go to a proved address; False when either has got its share for now."""
    name, record = _way(route), _record(tx, payer)
    mailed = record.mailed.decayed(tx.now, MAIL_BYTES_PER_S)
    if mailed.bytes + size > MAIL_BYTES_MAX:
        return False
    proof = tx.agent.mediator_proofs.get(name)
    if proof is not None:  # else it is our own mediator
        host = authority(route.uri)
        proofs = tx.agent.mediator_proofs.items()
        there = [one for key, one in proofs if authority(key.partition(" ")[0]) == host]
        if sum(one.mailed.decayed(tx.now, HOST_BYTES_PER_S).bytes for one in there) + size > HOST_BYTES_MAX:
            return False
        at_host = proof.mailed.decayed(tx.now, HOST_BYTES_PER_S)
        proof = replace(proof, bytes=proof.bytes - size, mailed=replace(at_host, bytes=at_host.bytes + size))
        tx.update_agent(mediator_proofs={**tx.agent.mediator_proofs, name: proof})
    _put(tx, payer, replace(record, mailed=replace(mailed, bytes=mailed.bytes + size)))
    return True


def is_due(tx: Transaction, route: Route) -> bool:
    """Whether it is time to renew the proof of a route."""
    proof = tx.agent.mediator_proofs.get(_way(route))
    return proof is not None and (proof.bytes < PROOF_BYTES // 2 or proof.until < tx.now + PROOF_MS // 2)


# --- probing --------------------------------------------------------------------------------------------------------


def begin(
    tx: Transaction,
    payer: str,
    routes: Sequence[tuple[Route, AddressKind]],
    held: HeldEnvelope | None = None,
    *,
    earned: bool = False,
    by_user: bool = False,
) -> None:
    """Probe one of these routes, each with the nearest kind of address that it may have, for the peer `payer`: a group
    and a member, or the link of joiners or of an inviter.

    Nothing happens while another probe for this peer or to this address is open, during the backoff, or without bytes
    left. `held`: an envelope that is posted once the address has proved itself. `earned`: an authentic message of the
    peer has just arrived, so the backoff is over. `by_user`: our user wants it, so no credit of the peer is needed.
    """
    record = _record(tx, payer)
    if record.open is not None:
        _hold(tx, payer, record, routes, held)
        return
    if not routes or (tx.now < record.until and not earned) or record.room < PROBE_BYTES:
        return
    route, nearest = routes[record.tries % len(routes)]
    way = _way(route)
    if held is None and any(one.open is not None and one.open.way == way for one in tx.agent.probes.values()):
        return  # its proof will serve this peer, too
    needs_credit = not by_user and way not in tx.agent.mediator_proofs
    mine, message = new_peer2(tx.context.random, []), replace(ping.ping(tx.context.random), return_route="all")
    packer = tx.packer(ENVELOPE)
    try:
        envelope = _sealed(packer, mine, mediator_of(route), message, tx.context.random)
    except RemoteError:
        tx.emit(Measure("dropped", "CannotProbe"))
        return
    cost = 0 if is_proved(tx, route) else len(envelope) + HEADER_BYTES
    if needs_credit and record.credit < cost:  # until there is more, or the peer sends something
        _put(tx, payer, replace(record, until=tx.now + RETRY.ceiling_ms))
        tx.set_timer(TimerKind.MEDIATOR_PROOF, payer, RETRY.ceiling_ms)
        return
    credit = record.credit - cost if needs_credit else record.credit
    probe = MediatorProbe(way, route, mine, message.id, tx.now, nearest)
    record = replace(record, room=record.room - cost, credit=credit, open=probe)
    _put(tx, payer, record)
    _hold(tx, payer, record, routes, held)
    tx.emit(WebPost(route.uri, envelope, packer.media_type, return_route=True, nearest=nearest))
    tx.set_timer(TimerKind.MEDIATOR_PROOF, payer, PROBE_MS)


def credit(tx: Transaction, payer: str, size: int) -> None:
    """A peer has sent an envelope of this many bytes."""
    known = tx.agent.probes.get(payer)
    if known is not None and known.credit < CREDIT_MAX:
        record = _record(tx, payer)
        _put(tx, payer, replace(record, credit=min(CREDIT_MAX, record.credit + AMPLIFICATION * size)))


def _sealed(packer: Packer, mine: Identity, mediator: str, message: Message, random: Callable[[int], bytes]) -> bytes:
    """A message to a mediator, without padding: all probes are alike. Raises RemoteError."""
    to = short_form(mediator)
    return packer.authcrypt(
        packer.dump(replace(message, from_=mine.did, to=(to,))),
        sender=packer.own_key(mine, mine.did),
        recipient=packer.their_key(resolve(mediator), to),
        random=random,
    )


def _record(tx: Transaction, payer: str) -> ProbeRecord:
    """The peer's record as of now; a clock that was set back ends its backoff."""
    record = tx.agent.probes.get(payer)
    if record is None:
        return ProbeRecord(PROBE_BYTES_MAX, tx.now, credit=AMPLIFICATION * CLAIM_BYTES)
    passed = max(0, tx.now - record.at)
    room = min(PROBE_BYTES_MAX, record.room + passed * PROBE_BYTES_PER_HOUR // 3_600_000)
    credit = min(CREDIT_MAX, record.credit + passed * CREDIT_PER_DAY // 86_400_000)
    until = record.until if record.until <= tx.now + RETRY.ceiling_ms else 0
    return replace(record, room=room, credit=credit, at=tx.now, until=until)


def _put(tx: Transaction, payer: str, record: ProbeRecord) -> None:
    others = {key: one for key, one in tx.agent.probes.items() if key != payer}
    while len(others) >= RECORDS_MAX:
        del others[min(others, key=lambda key: (others[key].open is not None, others[key].at))]
    tx.update_agent(probes={**others, payer: record})


def _hold(
    tx: Transaction,
    payer: str,
    record: ProbeRecord,
    routes: Sequence[tuple[Route, AddressKind]],
    held: HeldEnvelope | None,
) -> None:
    """Keep an envelope for an open probe of one of its routes."""
    if held is None or record.open is None or record.open.route not in [route for route, _ in routes]:
        return
    waiting = (*record.open.held, held)
    if len(waiting) <= HELD_MAX and sum(len(one.envelope) for one in waiting) <= HELD_BYTES_MAX:
        _put(tx, payer, replace(record, open=replace(record.open, held=waiting)))


def receive_answer(tx: Transaction, payer: str, envelope: bytes) -> tuple[HeldEnvelope, ...]:
    """An envelope to the DID of an open probe: the envelopes that waited for it. Raises RemoteError unless the mediator
    itself has answered."""
    record = tx.agent.probes[payer]
    probe = record.open
    assert probe is not None
    packer = tx.packer(ENVELOPE)
    keys = own_keys(packer, probe.mine)
    known = partial(_resolve, mediator_of(probe.route))
    its_keys = [method.key for method in known(mediator_of(probe.route)).agreement]

    def public_of(kid: str) -> PublicKey:
        key = known(kid.partition("#")[0]).agreement_key(kid)
        if key not in its_keys:  # which a route may name by a DID of its own, a did:key
            raise Unauthentic()
        return key

    unpacked = packer.unpack(envelope, secret_of=keys.get, public_of=public_of)
    if unpacked.kind != "authcrypt":
        raise Unauthentic()
    message = packer.parse(unpacked.plain)
    packer.check_sender(message, unpacked, known)
    if message.thread != probe.thread:
        raise Refused(why="an answer to another probe")
    proofs = {name: one for name, one in tx.agent.mediator_proofs.items() if name != probe.way}
    while len(proofs) >= PROOFS_MAX:
        del proofs[min(proofs, key=lambda name: proofs[name].until)]
    before = tx.agent.mediator_proofs.get(probe.way)
    proof = MediatorProof(tx.now + PROOF_MS, PROOF_BYTES, before.mailed if before is not None else MailedBytes())
    tx.update_agent(mediator_proofs={**proofs, probe.way: proof})
    _put(tx, payer, replace(_record(tx, payer), open=None, tries=0, until=0))
    tx.set_timer(TimerKind.WEB_RETRY, probe.route.uri, 1)
    return probe.held


def _resolve(mediator: str, did: str) -> Document:
    """The document of a DID, of the mediator's also by its short form. Raises Malformed."""
    return resolve(mediator if same_did(did, mediator) else did)


# --- failures -------------------------------------------------------------------------------------------------------


def handle_failure(tx: Transaction, uri: str) -> bool:
    """A post to a URI failed: its open probes fail, and it has to prove itself again. Whether only probes failed."""
    failed = [payer for payer, one in tx.agent.probes.items() if one.open is not None and one.open.route.uri == uri]
    for payer in failed:
        _fail(tx, payer)
    withdrawn = [
        name for name, one in tx.agent.mediator_proofs.items() if name.partition(" ")[0] == uri and one.until > tx.now
    ]
    if withdrawn:
        ended = {name: replace(tx.agent.mediator_proofs[name], until=tx.now, bytes=0) for name in withdrawn}
        tx.update_agent(mediator_proofs={**tx.agent.mediator_proofs, **ended})
    return bool(failed) and not withdrawn


def handle_timer(tx: Transaction, payer: str) -> bool:
    """An answer is overdue, or a backoff is over: whether the peer may be probed again."""
    record = tx.agent.probes.get(payer)
    if record is None:
        return False
    if record.open is not None:
        if tx.now >= record.open.sent_at + PROBE_MS or tx.now < record.open.sent_at:
            _fail(tx, payer)
        return False
    return tx.now >= record.until


def _fail(tx: Transaction, payer: str) -> None:
    record = _record(tx, payer)
    assert record.open is not None
    backoff = RETRY_KNOWN if record.open.way in tx.agent.mediator_proofs else RETRY
    delay = backoff.delay_ms(record.tries)
    _put(tx, payer, replace(record, open=None, tries=record.tries + 1, until=tx.now + delay))
    short_of = max(0, PROBE_BYTES - record.room) * 3_600_000 // PROBE_BYTES_PER_HOUR
    tx.set_timer(TimerKind.MEDIATOR_PROOF, payer, max(delay, short_of))


def reset(tx: Transaction) -> None:
    """After a restart no answer can come."""
    tx.update_agent(probes={payer: replace(one, open=None) for payer, one in tx.agent.probes.items()})
