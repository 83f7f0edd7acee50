"""Keys that heal, on disk: a message or a key event writes what it changes."""

from msgspec.structs import replace

from zerochat.agent.storage.state_parts import assemble, changes
from zerochat.group.key_agreement.message_keys import receiving_key
from zerochat.group.key_agreement.state import Keys, ReceivingEpoch
from zerochat.group.state.dcgka import Dcgka

MEMBERS = 64
KEYS = Keys(
    "group",
    "me",
    ratchets={f"m{at}": bytes([at] * 32) for at in range(MEMBERS)},
    receiving={f"m{at}": (ReceivingEpoch(f"epoch {at}", bytes([at] * 32)),) for at in range(MEMBERS)},
)


def written(before, after):
    return sum(len(path) + len(value or b"") for path, value in changes(before, after))


def test_a_message_writes_the_epoch_of_its_author_alone():
    keys, _ = receiving_key(KEYS, "m7", "epoch 7", 0, 1)
    assert 0 < written(Dcgka(keys=KEYS), Dcgka(keys=keys)) < 200 < written(None, Dcgka(keys=KEYS)) / 30


def test_a_ratchet_writes_itself_alone():
    keys = replace(KEYS, ratchets={**KEYS.ratchets, "m7": bytes(32)})
    assert 0 < written(Dcgka(keys=KEYS), Dcgka(keys=keys)) < 100


def test_the_state_comes_back_and_used_keys_are_deleted():
    first = Dcgka(keys=KEYS)
    rows = dict(changes(None, first))
    keys, _ = receiving_key(KEYS, "m7", "epoch 7", 0, 1)
    gone = replace(keys, receiving={did: one for did, one in keys.receiving.items() if did != "m9"})
    for path, value in changes(first, Dcgka(keys=gone)):
        if value is None:
            rows.pop(path, None)
        else:
            rows[path] = value
    found = assemble(Dcgka, ((path, value) for path, value in rows.items() if value is not None))
    assert found == (Dcgka(keys=gone), False)
    assert not any(bytes([7] * 32) in value for path, value in rows.items() if value and path.startswith("keys/rec"))
