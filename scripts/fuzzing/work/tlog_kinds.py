"""Messages about signed streams and a transparency log, of which the machine is operator and witness."""

from random import Random

from fuzzing.work.kinds import kind
from fuzzing.work.speaker import PACKER, Speaker
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import ed25519_public
from zerochat.evidence.handshake import Confirm, Request
from zerochat.evidence.messages import ALIAS_BYTES, SIGNATURE_BYTES, data_header, sign_data
from zerochat.evidence.note import cosignature, parse_note
from zerochat.evidence.witness import checkpoint, entry_of
from zerochat.group.effects import Publish
from zerochat.group.event_log.event import Event
from zerochat.group.inputs import Received, StepContext
from zerochat.group.signed_streams import publisher
from zerochat.group.state import TransparencyLog
from zerochat.group.tlog.adoption import current_tlog
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import SIGNED, SYNC
from zerochat.group.wire.tlog import (
    REQUEST_ENTRIES_MAX,
    SUBMIT_ENTRIES_MAX,
    TLOG_BLOBS,
    TLOG_COSIGNATURE,
    TLOG_EXTENSION,
    TLOG_REQUEST,
    TLOG_SUBMIT,
    pack_blob,
)

_GROUP = "signed"


def _log(speaker: Speaker) -> TransparencyLog:
    log = current_tlog(speaker.ours(_GROUP))
    assert log is not None
    return log


def _stream(speaker: Speaker, events: list[Event]) -> list[bytes]:
    """Messages of the rogue's signed stream with these events."""
    tx = Transaction(speaker.agent, StepContext(speaker.now, speaker.random), {PACKER.name: PACKER})
    publisher.publish_signed(tx, speaker.ours(_GROUP).id, events)
    speaker.agent = tx.agent
    return [effect.envelope for effect in tx.effects if isinstance(effect, Publish)]


@kind(SIGNED)
def signed_posts(speaker: Speaker, dice: Random) -> Received:
    """The next message of the stream, as it is or in an envelope."""
    count = dice.choice((1, 1, 20))
    text = b64url(speaker.random(dice.choice((20, 1_000))))
    events = [speaker.event(body={"text": text}, where=_GROUP) for _ in range(count)]
    written = _stream(speaker, events)[0]
    if dice.random() < 0.5:
        return speaker.raw(written, _GROUP)
    return speaker.say(SIGNED, {"message": b64url(written)}, _GROUP)


@kind(SIGNED)
def early_signed(speaker: Speaker, dice: Random) -> Received:
    """Messages whose predecessor never comes; and, now and then, two with the same one."""
    mine = speaker.mine(_GROUP)
    followed = speaker.ours(_GROUP).streams.followed.get(mine.me)
    alias = followed.alias if followed is not None and dice.random() < 0.8 else speaker.random(ALIAS_BYTES)
    before = speaker.kept.get("before", b"")
    if not before or speaker.dice.random() < 0.7:
        before = speaker.kept["before"] = speaker.random(SIGNATURE_BYTES)
    head = data_header(speaker.now + speaker.dice.randrange(1_000), ed25519_public(mine.seed), alias)
    sealed = b"\x01" + speaker.random(dice.choice((100, 16_000)))
    return speaker.raw(sign_data(mine.seed, head, sealed, before), _GROUP)


@kind(SYNC)
def statements(speaker: Speaker, dice: Random) -> Received:
    """Subscription requests and confirmations that are valid, and always new."""
    ours, mine = speaker.ours(_GROUP), speaker.mine(_GROUP)
    made = [
        Request(
            time=speaker.now, topic=ours.id, subscriber=mine.me, publisher=ours.me, nonce=b64url(speaker.random(16))
        ).signed(mine.seed),
        *(
            Confirm(time=speaker.now + number, accept=b64url(speaker.random(32)), subscriber=mine.me).signed(mine.seed)
            for number in range(2)
        ),
    ]
    body = {
        "group": ours.id,
        "view": ours.view.checksum,
        "have": [],
        "start_seq": 0,
        "acked": 0,
        "heads": [],
        "reach": {"pair": "", "queue": "", "at": speaker.now},
        "subscription": b64url(speaker.random(32)),
        "statements": [one.serialize().decode() for one in made],
        "tlog_size": speaker.dice.randrange(1 << 40),
    }
    return speaker.say(SYNC, body, _GROUP)


@kind(TLOG_SUBMIT)
def tlog_submit(speaker: Speaker, dice: Random) -> Received:
    """Entries with their bytes: many small ones, or few that unpack to a lot."""
    me, log, entries = speaker.mine(_GROUP).me, _log(speaker), []
    count, size = dice.choice(((1, 1_500), (SUBMIT_ENTRIES_MAX, 10), (8, 1_900)))
    for _ in range(count):
        blob = speaker.random(8) + bytes(size)
        record = entry_of("close", me, blob).record().decode()
        entries.append({"record": record, "blob": pack_blob(blob) if dice.random() < 0.9 else ""})
    body = {"group": speaker.ours(_GROUP).id, "origin": log.rules.origin, "entries": entries}
    return speaker.say(TLOG_SUBMIT, body, _GROUP)


@kind(TLOG_BLOBS)
def tlog_blobs(speaker: Speaker, dice: Random) -> Received:
    """Bytes that were not requested."""
    me, log, entries = speaker.mine(_GROUP).me, _log(speaker), []
    for _ in range(SUBMIT_ENTRIES_MAX):
        blob = speaker.random(12)
        entries.append({"record": entry_of("close", me, blob).record().decode(), "blob": pack_blob(blob)})
    body = {"group": speaker.ours(_GROUP).id, "origin": log.rules.origin, "entries": entries}
    return speaker.say(TLOG_BLOBS, body, _GROUP)


@kind(TLOG_EXTENSION)
def tlog_extension(speaker: Speaker, dice: Random) -> Received:
    """A checkpoint with as many signatures as fit, by the operator or by others."""
    me, log = speaker.mine(_GROUP), _log(speaker)
    seed = me.seed
    note = log.followed.note or checkpoint(log.rules.origin, log.followed.frontier, seed)
    if dice.random() < 0.5:
        note = parse_note(note.serialize().encode())
        for number in range(dice.choice((1, 60))):
            note = note.with_line(cosignature(note.text, seed, speaker.now // 1000 + number))
    records = [entry_of("close", me.me, speaker.random(9)).record().decode() for _ in range(dice.choice((0, 1, 200)))]
    old = dice.choice((0, log.followed.frontier.size, 2**40))
    body = {
        "group": speaker.ours(_GROUP).id,
        "origin": log.rules.origin,
        "old": old,
        "records": records,
        "note": note.serialize(),
    }
    return speaker.say(TLOG_EXTENSION, body, _GROUP)


@kind(TLOG_COSIGNATURE)
def tlog_cosignature(speaker: Speaker, dice: Random) -> Received:
    """A cosignature of the last checkpoint; or a size, so that the operator sends all that is after it."""
    log, seed = _log(speaker), speaker.mine(_GROUP).seed
    text = ""
    if dice.random() < 0.5 and log.followed.note is not None:
        text = cosignature(log.followed.note.text, seed, speaker.now // 1000)
    body = {
        "group": speaker.ours(_GROUP).id,
        "origin": log.rules.origin,
        "size": dice.choice((0, 1, 5)),
        "cosignature": text,
        "full": dice.random() < 0.1,
    }
    return speaker.say(TLOG_COSIGNATURE, body, _GROUP)


@kind(TLOG_REQUEST)
def tlog_request(speaker: Speaker, dice: Random) -> Received:
    """Extensions, and the bytes behind entries."""
    log, me = _log(speaker), speaker.mine(_GROUP).me
    numbers = [speaker.dice.randrange(24) for _ in range(dice.choice((0, REQUEST_ENTRIES_MAX)))]
    records = [entry_of("close", me, b"entry %d" % number).record().decode() for number in numbers]
    body = {
        "group": speaker.ours(_GROUP).id,
        "origin": log.rules.origin,
        "after": dice.choice((-1, 0, 0, log.followed.frontier.size)),
        "records": records,
    }
    return speaker.say(TLOG_REQUEST, body, _GROUP)
