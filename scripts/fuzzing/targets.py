"""All parsers that can be fuzzed, by name."""

from fuzzing.ack_sets import AckSets
from fuzzing.basics import Compressed, Encodings, Json, Screen
from fuzzing.envelopes import Jwe, Jws, Layers, Rfc0019
from fuzzing.evidence import Case, Entries, Note, Signed, Statements
from fuzzing.files import Archive, Backup, Secrets, Settings, State
from fuzzing.group import Bodies, Events, Frames, Hearing, Negentropy
from fuzzing.local import Control, Pasted
from fuzzing.logs import Logs
from fuzzing.mediators import Held, Post
from fuzzing.messages import Forward, PlainV1, PlainV2, Protocols
from fuzzing.proofs import Proof
from fuzzing.ring import Forwarded
from fuzzing.run import Target
from fuzzing.streams import Streams
from fuzzing.texts import Code, Did, Link, OutOfBand
from fuzzing.wire import Line, Ride, Zmtp

_ALL: tuple[Target, ...] = (
    *(Link(), Code(), OutOfBand(), Did()),
    *(PlainV2(), PlainV1(), Protocols(), Forward()),
    *(Jws(), Jwe(), Rfc0019(), Layers()),
    *(Events(), Bodies(), Frames(), Forwarded(), Negentropy(), AckSets(), Hearing(), Streams(), Logs(), Post(), Held()),
    *(Signed(), Statements(), Note(), Entries(), Case(), Proof()),
    *(Json(), Encodings(), Compressed(), Screen()),
    *(Zmtp(), Line(), Ride()),
    *(Control(), Pasted(), Settings(), Secrets(), State(), Archive(), Backup()),
)
TARGETS = {target.name: target for target in _ALL}

SLICE = {
    "zstd": 700_000,
    "zmtp": 650_000,
    "json": 300_000,
    "ride": 400_000,
    "encodings": 150_000,
    "rfc0019": 100_000,
    "link": 60_000,
    "jwe": 60_000,
    "forward": 60_000,
    "settings": 60_000,
    "secrets": 60_000,
    "state": 60_000,
    "code": 50_000,
    "jws": 50_000,
    "event": 40_000,
    "oob": 25_000,
    "did": 25_000,
    "plain": 25_000,
    "plain-v1": 20_000,
    "protocols": 20_000,
    "layers": 20_000,
    "screen": 20_000,
    "control": 20_000,
    "bodies": 12_000,
    "frame": 12_000,
    "forwarded": 20_000,
    "negentropy": 12_000,
    "ack-sets": 12_000,
    "line": 12_000,
    "pasted": 8_000,
    "member": 6_000,
    "stream": 6_000,
    "log": 30_000,
    "backup": 5_000,
    "archive": 4_000,
    "mediator": 6_000,
    "held": 20_000,
    "signed": 20_000,
    "statement": 20_000,
    "note": 40_000,
    "receipt": 40_000,
    "case": 6_000,
    "proof": 6_000,
}
"""How often each is executed in one slice, three million times together: the cheaper the oftener, so that most take
some five to ten seconds of one core."""
