"""All parsers that can be fuzzed, by name."""

from fuzzing.envelopes import Jwe, Jws, Layers, Rfc0019
from fuzzing.messages import Forward, PlainV1, PlainV2, Protocols
from fuzzing.run import Target
from fuzzing.texts import Code, Did, Link, OutOfBand
from fuzzing.wire import Zmtp

_ALL: tuple[Target, ...] = (
    *(Link(), Code(), OutOfBand(), Did()),
    *(PlainV2(), PlainV1(), Protocols(), Forward()),
    *(Jws(), Jwe(), Rfc0019(), Layers(), Zmtp()),
)
TARGETS = {target.name: target for target in _ALL}
