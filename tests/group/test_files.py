"""Files in the core: descriptors, sources, verification. Disks are dictionaries."""

import contextlib
import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.file_world import Filed, content, cut_up, file_of
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import CommandFailed, SendEnvelope, SetTimer
from zerochat.group.event_log.event import POST
from zerochat.group.files import catalogue, download, upload
from zerochat.group.files.descriptor import FILES_MAX, File, files_in
from zerochat.group.files.hash_tree import (
    PART_BYTES,
    PATH_MAX,
    leads_to,
    leaf,
    levels_over,
    part_size,
    parts_in,
    path_in,
)
from zerochat.group.inputs import (
    CreateGroup,
    DeleteFile,
    FileFailed,
    FilesFound,
    LeaveGroup,
    RemoveMember,
    SendContent,
    SendPost,
    StepContext,
)
from zerochat.group.links import rate_limits
from zerochat.group.messages.bodies import Delete
from zerochat.group.settings import FileRules
from zerochat.group.state import Download, FileEntry
from zerochat.group.wire.files import (
    FILE_PART,
    FILE_REQUEST,
    REQUEST_PARTS_MAX,
    FilePartBody,
    FileRequestBody,
    FilesAvailableBody,
    FileUnavailableBody,
)
from zerochat.group.wire.messages import read_body
from zerochat.group.wire.padding import padded_size
from zerochat.limits import FILE_BYTES_MAX

# --- the tree -----------------------------------------------------------------------------------------------------


def largest_power_below(count):
    return 1 << ((count - 1).bit_length() - 1)


def root_by_the_book(leaves):
    """RFC 6962, section 2.1, literally."""
    if len(leaves) == 1:
        return leaves[0]
    k = largest_power_below(len(leaves))
    left, right = root_by_the_book(leaves[:k]), root_by_the_book(leaves[k:])
    return hashlib.sha256(b"\x01" + left + right).digest()


@pytest.mark.parametrize("count", [*range(1, 34), 100, 255, 256, 257])
def test_merkle_tree_matches_rfc_6962(count):
    parts = [number.to_bytes(4) for number in range(count)]
    levels = levels_over([leaf(part) for part in parts])
    root = levels[-1][0]
    assert root == root_by_the_book(levels[0])
    for number, part in enumerate(parts):
        path = path_in(levels, number)
        assert len(path) <= PATH_MAX and leads_to(root, part, number, count, path)
        assert not leads_to(root, part + b"x", number, count, path)
        assert not leads_to(root, part, number ^ 1, count, path)
        assert not leads_to(root, part, number, count, [*path, root])
        for place in range(len(path)):
            wrong = [*path[:place], bytes([path[place][0] ^ 1]) + path[place][1:], *path[place + 1 :]]
            assert not leads_to(root, part, number, count, wrong)
            assert not leads_to(root, part, number, count, path[:place])
    assert not leads_to(root, parts[0], count, count, ()) and not leads_to(root, parts[0], -1, count, ())


def test_inner_node_is_no_part():
    levels = levels_over([leaf(b"a"), leaf(b"b")])
    assert leaf(levels[0][0] + levels[0][1]) != levels[-1][0]


def test_parts_make_up_the_file():
    for size in (1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 5 * PART_BYTES, FILE_BYTES_MAX):
        count = parts_in(size)
        assert (count - 1) * PART_BYTES + part_size(size, count - 1) == size
        assert 1 <= part_size(size, count - 1) <= PART_BYTES
    assert (parts_in(FILE_BYTES_MAX) - 1).bit_length() <= PATH_MAX


def test_largest_part_fits_32_kib():
    world = Filed(2)
    world.bring_in("n1")
    packer = world.tx("n0").packer_of(world.id)
    body = {
        "group": "g" * 43,
        "file": "f" * 43,
        "part": 47_000,
        "data": b64url(b"\xff" * PART_BYTES),
        "path": ["h" * 43] * PATH_MAX,
    }
    relationship = world.nodes["n0"].agent.groups[world.id].links.relationships[world.did("n1")]
    message = Message(
        type=FILE_PART,
        id=new_id(world.rng.randbytes),
        body=body,
        from_=relationship.mine.did,
        to=(relationship.theirs,),
    )
    assert padded_size(len(packer.dump(replace(message, from_=relationship.mine.short)))) == 32 * 1024


# --- what a post names ----------------------------------------------------------------------------------------------


def test_descriptor_round_trip():
    file = file_of(b"hello")
    assert files_in({"text": "", "files": [file.body()]}) == (file,)
    assert len(file.id) == 43 and file.id != replace(file, size=6).id, "a size is part of the name"
    assert replace(file, name="other", type="").id == file.id


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0},
        {"size": -1},
        {"size": 2**60},
        {"size": FILE_BYTES_MAX + 1},
        {"size": 1.5},
        {"size": True},
        {"size": "5"},
        {"root": "short"},
        {"root": "!" * 43},
        {"root": 7},
        {"name": ""},
        {"name": "ä" * 128},
        {"name": "x\ud800"},
        {"name": None},
        {"type": 7},
        {"type": "x" * 200},
    ],
    ids=str,
)
def test_invalid_descriptors_are_ignored(wrong):
    file, other = file_of(b"hello"), file_of(b"world", "b")
    assert files_in({"files": [{**file.body(), **wrong}, other.body()]}) == (other,)


@pytest.mark.parametrize("listed", [None, 7, "files", {}, [[]], [None], [file_of(b"x").body()] * (FILES_MAX + 1)])
def test_non_list_names_no_files(listed):
    assert files_in({"files": listed}) == ()


def test_invalid_type_is_dropped():
    for kind in ("text/html; x=\x1b[31m", "TEXT", "a b/c", "../../x"):
        assert files_in({"files": [{**file_of(b"x").body(), "type": kind}]})[0].type == ""


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)
FIELDS = st.fixed_dictionaries(
    {}, optional={name: JUNK | st.text("AB_-", min_size=43, max_size=43) for name in ("root", "size", "name", "type")}
)


@pytest.mark.slow
@given(st.lists(FIELDS | JUNK, max_size=FILES_MAX + 1) | JUNK)
def test_any_post_body_is_readable(listed):
    for file in files_in({"files": listed}):
        assert 1 <= file.size <= FILE_BYTES_MAX and len(file.id) == 43 and file.name
        assert files_in({"files": [file.body()]}) == (file,)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [FileRequestBody, FilePartBody, FileUnavailableBody, FilesAvailableBody])
@given(st.data())
def test_any_file_message_is_read_or_rejected(shape, data):
    names = st.sampled_from([*shape.__struct_fields__, "else"])
    body = data.draw(st.dictionaries(names, JUNK | st.text("AB", min_size=43, max_size=43), max_size=6))
    with contextlib.suppress(Malformed):
        assert isinstance(read_body(Message(type=FILE_REQUEST, id="1", body=body), shape), shape)


# --- getting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single"])
def test_small_file_is_fetched_automatically(keys):
    world = Filed(keys=keys)
    world.bring_in("n1", "n2")
    data = content(3 * PART_BYTES + 5)
    file, _ = world.attach("n0", data)
    assert world.run(lambda: world.has("n1", data, file) and world.has("n2", data, file), for_ms=60_000)
    assert world.run(lambda: len(world.holding("n0", file).holders) == 2, for_ms=5_000)


def test_large_file_is_fetched_on_request():
    world = Filed(2)
    world.bring_in("n1")
    data = content((2 << 20) + 3)
    file, _ = world.attach("n0", data)
    world.run(for_ms=20_000)
    assert world.state("n1", file) == "offered" and not world.asked
    world.get("n1", file)
    assert world.run(lambda: world.has("n1", data, file), for_ms=120_000)
    assert max(count for *_, count in world.asked) <= REQUEST_PARTS_MAX
    assert max(count for *_, count in world.asked) > 2, "what comes fast is asked for in larger pieces"


def test_other_members_serve_the_file():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(5 * PART_BYTES)
    world.deaf.add(frozenset({"n0", "n2"}))
    file, _ = world.attach("n0", data)
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000)
    world.kill("n0")
    world.asked.clear()
    assert world.run(lambda: file.id in world.nodes["n2"].agent.groups[world.id].files, for_ms=120_000)
    assert world.run(lambda: world.has("n2", data, file), for_ms=200_000)
    assert {name for name, *_ in world.asked} == {"n1"}


def test_confirmed_relayed_deletion_drops_file():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(2 * PART_BYTES)
    file, post = world.attach("n0", data)
    assert world.run(lambda: world.has("n1", data, file) and world.has("n2", data, file), for_ms=60_000)
    world.deaf.add(frozenset({"n0", "n2"}))
    world.run_command("n0", SendContent(world.id, Delete(post.result.id)))
    assert world.run(lambda: world.holding("n2", file).deleted_at, for_ms=400_000)
    assert world.state("n1", file) == "", "its author has told it so"
    assert world.has("n2", data, file), "what is dropped is gone, so a third member's word is not enough"
    world.deaf.clear()
    world.post("n0", "I have taken it back")
    assert world.run(lambda: world.state("n2", file) == "", for_ms=60_000)
    assert ("n2", world.id, file.id) not in world.disks


def test_unconfirmed_deletion_drops_nothing():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(PART_BYTES)
    file, _ = world.attach("n0", data)
    assert world.run(lambda: world.has("n2", data, file), for_ms=60_000)
    tx, author = world.tx("n2"), world.did("n0")
    catalogue.mark_deletion_relayed(tx, world.id, author, world.holding("n2", file).event, 9)
    for after, upto in ((0, 8), (9, 12)):
        catalogue.confirm_deletions(tx, world.id, author, after, upto)
        catalogue.refute_deletions(tx, world.id, author, after, upto)
    assert tx.group(world.id).files[file.id].deleted_at == 9, "other places of the chain"
    catalogue.refute_deletions(tx, world.id, author, 5, 9)
    catalogue.confirm_deletions(tx, world.id, author, 5, 9)
    assert tx.group(world.id).files[file.id].state == "here"


def test_wrong_part_spoils_nothing():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(6 * PART_BYTES)
    file, _ = world.attach("n0", data)
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000)
    world.run_command("n2", DeleteFile(world.id, file.id))
    part = cut_up(data)[2]
    world.spoiled["n0", 2] = bytes([part[0] ^ 1]) + part[1:]
    world.get("n2", file)
    assert world.run(lambda: world.has("n2", data, file), for_ms=200_000)
    assert (
        world.holding("n2", file).corrupt_sources == () or world.did("n0") in world.holding("n2", file).corrupt_sources
    )
    assert any("FalsePart" in told for told in world.nodes["n2"].dropped)


@pytest.mark.parametrize("number", range(4))
def test_any_flipped_bit_is_rejected(number):
    world = Filed(2)
    world.bring_in("n1")
    data = content(4 * PART_BYTES - 9)
    file = file_of(data)
    part = cut_up(data)[number]
    world.spoiled["n0", number] = part[:-1] + bytes([part[-1] ^ 0x80])
    world.attach("n0", data)
    world.run(for_ms=60_000)
    assert world.state("n1", file) == "gone", "there is nobody else"
    assert world.holding("n1", file).stored_parts < 4, "all that came before it, in whatever order"
    assert world.holding("n1", file).corrupt_sources == (world.did("n0"),)


@pytest.mark.slow
def test_stored_parts_survive_restart():
    world = Filed(2)
    world.bring_in("n1")
    data = content(3 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.get("n1", file)
    assert world.run(lambda: world.holding("n1", file).stored_parts > 40, for_ms=60_000)
    key = ("n1", world.id, file.id)
    world.disks[key] = world.disks[key][:30]  # what was not synced is lost
    world.asked.clear()
    world.forget_stored("n1")
    world.process("n1", FilesFound(((world.id, file.id, 30, False),)))
    assert world.holding("n1", file).stored_parts == 30
    assert world.run(lambda: world.has("n1", data, file), for_ms=120_000)
    fresh = [first for _, _, first, _ in world.asked]
    assert 30 in fresh and min(first for first in fresh) >= 30


def test_missing_local_file_is_offered_again():
    world = Filed(2)
    world.bring_in("n1")
    file, _ = world.attach("n0", data := content(100))
    assert world.run(lambda: world.has("n1", data, file), for_ms=20_000)
    world.process("n1", FilesFound(()))
    assert world.state("n1", file) == "offered" and world.holding("n1", file).stored_parts == 0
    world.get("n1", file)
    assert world.run(lambda: world.has("n1", data, file), for_ms=20_000)


def test_corrupt_file_never_looks_whole():
    world = Filed(2)
    world.bring_in("n1")
    data = content(3 * PART_BYTES)
    file, _ = world.attach("n0", data)
    key = ("n1", world.id, file.id)
    broken = []

    def spoil():
        if not broken and len(world.disks.get(key, ())) == 2:
            broken.append(1)
            world.disks[key][0] = b"x" * PART_BYTES
        return world.state("n1", file) == "here"

    assert world.run(spoil, for_ms=200_000) and broken
    assert world.has("n1", data, file), "it was fetched anew"


def test_corrupting_disk_ends_download():
    world = Filed(2)
    world.bring_in("n1")
    data = content(2 * PART_BYTES)
    key = ("n1", world.id, file_of(data).id)
    finished = []

    def spoil():
        if world.disks.get(key):
            world.disks[key][0] = b"x" * PART_BYTES
        finished.extend(one for one in [world.holding("n1", file).corrupt_count] if one not in finished)
        return world.holding("n1", file).error

    file, _ = world.attach("n0", data)
    assert world.run(lambda: world.state("n1", file), for_ms=5_000)
    assert world.run(spoil, for_ms=400_000) and finished == [0, 1, 2, 3]
    asked = len(world.asked)
    world.run(for_ms=200_000)
    assert len(world.asked) == asked and "disk" in world.holding("n1", file).error
    world.get("n1", file)
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000), "a person can try again"


def nobody_has_it():
    """Three members; n1 knows that the file has no holder; and the file's content."""
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(2 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.run_command("n0", DeleteFile(world.id, file.id))
    world.get("n1", file)
    assert world.run(lambda: world.state("n1", file) == "gone", for_ms=60_000)
    return world, data, file


def test_file_is_gone_when_all_report_it_missing():
    world, _, file = nobody_has_it()
    world.get("n1", file)
    assert world.state("n1", file) == "getting", "it can be tried again"


@pytest.mark.slow
def test_late_holder_is_asked_again():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(2 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    world.get("n1", file)
    assert world.run(lambda: world.did("n2") in world.holding("n1", file).absent, for_ms=60_000)
    world.get("n2", file)
    assert world.run(lambda: world.has("n2", data, file), for_ms=60_000)
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000)
    assert world.asked[-1][:2] == ("n2", world.did("n1"))


def test_announcement_is_repeated():
    world, _, file = nobody_has_it()
    tx, n1 = world.tx("n2"), world.did("n1")
    catalogue.update_file(tx, world.id, file.id, state="getting", stored_parts=file.parts, waiting_members=(n1,))
    download.handle_verified(tx, world.id, file.id)
    world.deaf.add(frozenset({"n1", "n2"}))
    world.perform("n2", tx)
    world.run(for_ms=1_000)
    world.deaf.clear()
    assert world.state("n1", file) == "gone", "the word that it is there got lost"
    assert world.run(lambda: world.state("n1", file) == "getting", for_ms=download.ANNOUNCE_RETRY_MS)


def test_announcement_repeats_are_limited():
    world, _, file = nobody_has_it()
    tx, n1 = world.tx("n2"), world.did("n1")
    catalogue.update_file(tx, world.id, file.id, state="here", waiting_members=(n1,))
    for attempt in range(1, download.ANNOUNCE_RETRIES_MAX + 1):
        tx.effects.clear()
        download.retry_announcement(tx, world.id, file.id, attempt)
        kinds = [type(effect) for effect in tx.effects]
        assert kinds.count(SendEnvelope) == 1 and kinds.count(SetTimer) == (attempt < download.ANNOUNCE_RETRIES_MAX)


@pytest.mark.slow
def test_lost_request_is_repeated():
    world = Filed(2)
    world.bring_in("n1")
    data = content(2 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    world.get("n1", file)
    world.run(for_ms=2_000)
    world.deaf.clear()
    assert world.run(lambda: bool(world.asked), for_ms=download.TIMEOUT_MS // 2)
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000)


@pytest.mark.slow
def test_disconnected_source_is_replaced():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(2 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.get("n2", file)
    assert world.run(lambda: world.has("n2", data, file), for_ms=60_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    world.get("n1", file)
    assert world.run(lambda: world.holding("n1", file).download is not None, for_ms=1_000)
    assert world.holding("n1", file).download.member == world.did("n0")
    world.run_command("n0", LeaveGroup(world.id))
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000)


@pytest.mark.slow
def test_gone_file_returns_with_a_holder():
    world, data, file = nobody_has_it()
    world.attach("n2", data, "here it is", file)
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000)


@pytest.mark.slow
def test_without_room_file_is_only_offered():
    world, data, file = nobody_has_it()
    rules(world, "n1", total_max=3 << 20)
    other = content(2 << 20, seed=8)
    more, _ = world.attach("n0", other)
    world.run(for_ms=2_000)
    world.get("n1", more)
    assert world.run(lambda: world.has("n1", other, more), for_ms=60_000)
    world.attach("n2", data, "here it is", file)
    world.run(for_ms=60_000)
    assert world.state("n1", file) == "offered"


@pytest.mark.slow
def test_chat_passes_during_download():
    world = Filed(2)
    world.bring_in("n1")
    data = content(8 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.get("n1", file)
    assert world.run(lambda: world.holding("n1", file).stored_parts > 20, for_ms=60_000)
    world.post("n0", "hello")
    assert world.run(lambda: "hello" in world.texts("n1"), for_ms=2_000)
    assert world.state("n1", file) == "getting"


# --- who may ask ------------------------------------------------------------------------------------------------------


def test_only_group_members_get_files():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(2 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    first = world.id
    world.id = world.run_command("n0", CreateGroup("others", "n0", world.envelope)).result.group
    world.bring_in("n1")
    ask = {"file": file.id, "first": 0, "count": 1}
    world.utter("n1", "n0", FILE_REQUEST, ask)
    world.run(for_ms=2_000)
    assert world.asked == [], "in the second group nobody has posted it"
    world.utter("n1", "n0", FILE_REQUEST, {**ask, "group": first})
    world.run(for_ms=2_000)
    assert world.asked == [] and any("Refused" in told for told in world.nodes["n0"].dropped)


def test_removed_member_gets_no_files():
    world = Filed()
    world.bring_in("n1", "n2")
    file, _ = world.attach("n0", content(2 << 20))
    world.run(for_ms=2_000)
    world.run_command("n0", RemoveMember(world.id, world.did("n2")))
    world.run_command("n1", RemoveMember(world.id, world.did("n2")))
    assert world.run(lambda: world.did("n2") not in world.nodes["n0"].agent.groups[world.id].view.members)
    tx = world.tx("n0")
    with pytest.raises(Refused):
        upload.receive_request(tx, world.id, world.did("n2"), FileRequestBody(world.id, file.id, 0, 1))
    assert tx.effects == []


def test_unrequested_parts_are_dropped():
    world = Filed(2)
    world.bring_in("n1")
    data = content(2 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    levels = levels_over([leaf(part) for part in cut_up(data)])
    body = {
        "file": file.id,
        "part": 0,
        "data": b64url(cut_up(data)[0]),
        "path": [b64url(each) for each in path_in(levels, 0)],
    }
    world.utter("n0", "n1", FILE_PART, body)
    world.utter("n0", "n1", FILE_PART, {**body, "file": "x" * 43})
    world.run(for_ms=2_000)
    assert ("n1", world.id, file.id) not in world.disks
    assert [told for told in world.nodes["n1"].dropped if "Refused" in told]


@pytest.mark.slow
def test_greedy_requester_is_throttled():
    world = Filed(2)
    world.bring_in("n1")
    file, _ = world.attach("n0", content(20 << 20), file=None)
    world.run(for_ms=2_000)
    for _ in range(60):
        world.utter("n1", "n0", FILE_REQUEST, {"file": file.id, "first": 0, "count": REQUEST_PARTS_MAX})
    world.run(for_ms=100)
    given = sum(count for *_, count in world.asked) * PART_BYTES
    assert 6 << 20 < given < 10 << 20
    world.post("n1", "still here")
    assert world.run(lambda: "still here" in world.texts("n0"), for_ms=2_000)


def hauled(world, *others, parts=4):
    """A file that n1 wants and requests from n0."""
    data = content(parts * PART_BYTES)
    file, tx = file_of(data), world.tx("n1")
    haul = Download(world.did("n0"), 0, 2, 2, tx.now + download.TIMEOUT_MS, tx.now, since=tx.now)
    wanted = FileEntry(file, world.did("n0"), "e" * 43, 0, state="getting", download=haul)
    tx.update_group(world.id, files={**{one.file.id: one for one in others}, file.id: wanted})
    return data, file, tx


def test_busy_source_is_replaced():
    world = Filed(3)
    world.bring_in("n1", "n2")
    _, file, tx = hauled(world)
    for _ in range(download.BUSY_MAX + 1):
        download.receive_unavailable(tx, world.id, world.did("n0"), FileUnavailableBody(world.id, file.id, "busy"))
        download.retry_busy(tx, world.id, file.id)
    one = tx.group(world.id).files[file.id]
    assert one.download is None and one.tried == (world.did("n0"),) and one.absent == ()
    download.start_downloads(tx, world.id)
    asked = tx.group(world.id).files[file.id].download
    assert asked is not None and asked.member == world.did("n2")


def dripped(world, tx, file, data, gap_ms):
    """n0 sends one part at an interval until it is replaced: how many parts, and until when; None: it never is."""
    parts, author, begun = cut_up(data), world.did("n0"), tx.now
    levels = levels_over([leaf(part) for part in parts])
    for number in range(len(parts) - 1):
        tx.context = StepContext(tx.now + gap_ms, world.rng.randbytes)
        path = [b64url(each) for each in path_in(levels, number)]
        body = FilePartBody(world.id, file.id, number, b64url(parts[number]), path)
        download.receive_part(tx, world.id, author, body, padded_size(PART_BYTES))
        download.handle_stored(tx, world.id, file.id, number + 1)
        haul = tx.group(world.id).files[file.id].download
        if haul is None or haul.member != author:
            return number + 1, tx.now - begun
    return None


def test_slow_source_is_replaced():
    world = Filed(3)
    world.bring_in("n1", "n2")
    data, file, tx = hauled(world, parts=60)
    assert dripped(world, tx, file, data, 14_000) == (3, 42_000)
    assert tx.group(world.id).files[file.id].slow_sources == (world.did("n0"),)
    download.start_downloads(tx, world.id)
    one = tx.group(world.id).files[file.id]
    assert one.download.member == world.did("n2") and one.stored_parts == 3, "what has come stays"
    download.receive_unavailable(tx, world.id, world.did("n2"), FileUnavailableBody(world.id, file.id, "absent"))
    download.start_downloads(tx, world.id)
    assert tx.group(world.id).files[file.id].download.member == world.did("n0"), "a little is more than nothing"


def test_fast_or_only_source_is_kept():
    world = Filed(3)
    world.bring_in("n1", "n2")
    data, file, tx = hauled(world, parts=60)
    assert dripped(world, tx, file, data, download.RATE_WINDOW_MS // download.RATE_PARTS_MIN) is None
    alone = Filed(2)
    alone.bring_in("n1")
    data, file, tx = hauled(alone, parts=60)
    assert dripped(alone, tx, file, data, 14_000) is None


def test_repeated_part_is_charged():
    world = Filed(2)
    world.bring_in("n1")
    data, file, tx = hauled(world)
    parts = cut_up(data)
    path = [b64url(each) for each in path_in(levels_over([leaf(part) for part in parts]), 0)]
    body = FilePartBody(world.id, file.id, 0, b64url(parts[0]), path)
    heard = 0
    for _ in range(2 * rate_limits.ENVELOPES_MAX):
        if rate_limits.spend_envelope(tx, world.id, world.did("n0"), padded_size(PART_BYTES)):
            heard += 1
            download.receive_part(tx, world.id, world.did("n0"), body, padded_size(PART_BYTES))
    assert heard <= rate_limits.ENVELOPES_MAX + 1


def test_user_requests_come_first():
    world = Filed(2)
    world.bring_in("n1")
    files = [File(b64url(bytes([number]) * 32), 1, "x") for number in range(40)]
    auto = [FileEntry(one, world.did("n0"), "e" * 43, 0, state="getting", automatic=True) for one in files]
    tx = world.tx("n1")
    wanted = FileEntry(file_of(content(9)), world.did("n0"), "e" * 43, 0, state="getting")
    tx.update_group(world.id, files={one.file.id: one for one in (*auto, wanted)})
    download.start_downloads(tx, world.id)
    kept = tx.group(world.id).files
    assert kept[wanted.file.id].download is not None
    assert sum(one.download is not None for one in kept.values()) == download.DOWNLOADS_MAX


def test_clock_set_back_does_not_block_uploads():
    world = Filed(2)
    world.bring_in("n1")
    tx, member = world.tx("n0"), world.did("n1")
    spent = msgspec.structs.replace(
        tx.group(world.id).links.peers[member].rate_limit, given=0, given_at=tx.now + 86_400_000
    )
    tx.update_peer(world.id, member, rate_limit=spent)
    assert upload._spend_upload(tx, world.id, member, PART_BYTES)


# --- how much ---------------------------------------------------------------------------------------------------------


def rules(world, name, **wanted):
    agent = world.nodes[name].agent
    world.nodes[name].agent = replace(agent, file_rules=replace(agent.file_rules, **wanted))


def refused(answer):
    assert isinstance(answer, CommandFailed), answer
    return answer.error.code


def test_limits_are_explained():
    world = Filed(2)
    world.bring_in("n1")
    file, _ = world.attach("n0", content(2 << 20))
    world.run(for_ms=2_000)
    rules(world, "n1", size_max=1 << 20)
    assert refused(world.get("n1", file)) == "FileTooLarge"
    rules(world, "n1", size_max=64 << 20, total_max=1 << 20)
    answer = world.get("n1", file)
    assert refused(answer) == "NoRoomForFile" and "zerochat files remove" in answer.error.sentence()
    rules(world, "n0", size_max=1000)
    posts = len(world.texts("n0"))
    assert refused(world.attach("n0", content(2000))[1]) == "FileTooLarge"
    assert len(world.texts("n0")) == posts, "nothing was said"
    rules(world, "n1", total_max=2 << 30)
    world.get("n1", file)
    assert world.run(lambda: world.state("n1", file) == "here", for_ms=100_000)


@pytest.mark.slow
def test_thousands_of_offers_are_bounded():
    world = Filed(2)
    world.bring_in("n1")
    tx = world.tx("n1")
    rules(world, "n1", total_max=40 << 20)
    tx = world.tx("n1")
    template = world.tx("n1").group(world.id).control[world.id]
    for number in range(400):
        files = [
            File(b64url(bytes([number // 256, number % 256, place]) + bytes(29)), 1 << 20, "x").body()
            for place in range(8)
        ]
        event = replace(
            template, group=world.id, type=POST, author=world.did("n0"), seq=number + 2, body={"files": files}
        )
        catalogue.add_posted(tx, world.id, event)
    kept = tx.group(world.id).files
    assert len([one for one in kept.values() if one.state == "offered"]) <= catalogue.OFFERED_MAX
    wanted = sum(one.file.size for one in kept.values() if one.state == "getting")
    assert 0 < wanted <= 10 << 20, "a quarter of what there is room for"
    world.perform("n1", tx)
    world.post("n1", "still here")


def test_automatic_files_leave_room(monkeypatch):
    """However small they are."""
    monkeypatch.setattr(catalogue, "KEPT_MAX", 16)
    world = Filed(2)
    world.bring_in("n1")
    tx = world.tx("n1")
    post = tx.group(world.id).control[world.id]
    for number in range(20):
        body = {"files": [File(b64url(bytes([number]) * 32), 1, "x").body()]}
        event = replace(post, group=world.id, type=POST, author=world.did("n0"), seq=number + 2, body=body)
        catalogue.add_posted(tx, world.id, event)
    kept = tx.group(world.id).files.values()
    assert sum(one.state == "getting" for one in kept) == 16 // catalogue.AUTO_SHARE
    catalogue.check_room(tx.agent, tx.group(world.id), [file_of(content(9))])


def test_automatic_fetching_can_be_disabled():
    world = Filed(2)
    world.bring_in("n1")
    rules(world, "n1", auto_max=0)
    file, _ = world.attach("n0", content(10))
    world.run(for_ms=20_000)
    assert world.state("n1", file) == "offered" and FileRules().auto_max > 0


@pytest.mark.slow
def test_full_disk_pauses_download():
    world = Filed(2)
    world.bring_in("n1")
    data = content(4 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.get("n1", file)
    assert world.run(lambda: world.holding("n1", file).stored_parts > 3, for_ms=60_000)
    world.process("n1", FileFailed(world.id, file.id, "The disk is full."))
    have = world.holding("n1", file).stored_parts
    world.run(for_ms=100_000)
    assert world.holding("n1", file).error == "The disk is full." and world.holding("n1", file).download is None
    world.get("n1", file)
    assert world.run(lambda: world.has("n1", data, file), for_ms=100_000)
    assert have > 0


def test_malformed_part_is_detected():
    world = Filed(2)
    world.bring_in("n1")
    file, _ = world.attach("n0", content(2 << 20))
    world.run(for_ms=2_000)
    world.get("n1", file)
    assert world.run(lambda: world.holding("n1", file).download, for_ms=2_000)
    did = world.did("n0")
    for body in (
        FilePartBody(world.id, file.id, 0, b64url(b"x")),
        FilePartBody(world.id, file.id, 0, b64url(b"x" * PART_BYTES), [b64url(bytes(32))] * PATH_MAX),
        FilePartBody(world.id, file.id, 40_000, b64url(b"x" * PART_BYTES)),
    ):
        tx = world.tx("n1")
        download.receive_part(tx, world.id, did, body, 40_000)
        one = tx.group(world.id).files[file.id]
        assert one.corrupt_sources == (did,) and one.stored_parts == 0 and b64url_bytes(one.file.root)


# --- readers' findings ------------------------------------------------------------------------------------------------


def named(number):
    """A file of which only the descriptor is known."""
    return File(b64url(number.to_bytes(2) + bytes(30)), 100, f"{number}")


@pytest.mark.parametrize("where", [0, 1])
def test_oldest_file_can_be_posted_again(monkeypatch, where):
    """The list of offered files is full; the file that is named again is not dropped."""
    monkeypatch.setattr(catalogue, "OFFERED_MAX", 8)
    world = Filed(3)
    world.bring_in("n1", "n2")
    for name in world.nodes:
        rules(world, name, auto_max=0)
    for number in range(8):
        world.run_command("n0", SendPost(world.id, "one", files=(named(number),)))
    world.run(for_ms=3_000)
    assert list(world.nodes["n1"].agent.groups[world.id].files) == [named(number).id for number in range(8)]
    again = (named(where), named(99))
    world.run_command("n2", SendPost(world.id, "both", files=again))
    assert world.run(lambda: "both" in world.texts("n1"), for_ms=3_000)
    there = world.nodes["n1"].agent.groups[world.id].files
    assert {file.id for file in again} <= there.keys() and len(there) == 8
    assert there[named(where).id].holders == (world.did("n2"),)


class Line(Filed):
    """Everything from n0 to n1 goes over a line with limited bytes per second, in order."""

    rate = 0
    free_at = sent = 0

    def _frame(self, name, stimulus):
        delay = 40
        if self.rate and name == "n1" and self.nodes["n1"].connected.get(stimulus.link) == "n0":
            self.sent += len(stimulus.envelope)
            self.free_at = max(self.now, self.free_at) + len(stimulus.envelope) * 1000 // self.rate
            delay += self.free_at - self.now
        self._later(delay, name, stimulus)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "files"), [(12_000, 3), (8_000, 3), (4_000, 1)])
def test_slow_line_repeats_little(rate, files):
    """A repeated request would queue its parts in front of everything else."""
    world = Line(2)
    world.bring_in("n1")
    data = [content(1_200_000, seed=number + 1) for number in range(files)]
    wanted = [world.attach("n0", one)[0] for one in data]
    world.run(for_ms=2_000)
    world.rate = rate
    for file in wanted:
        world.get("n1", file)
    assert world.run(lambda: all(map(world.has, ["n1"] * files, data, wanted)), for_ms=1_000_000)
    parts = sum(len(cut_up(one)) for one in data)
    assert world.sent < 1.4 * parts * 32 * 1024  # what one part is padded to


def test_reoffered_file_respects_quota_share():
    """A member makes us want small files without holders, and then announces all of them."""
    world = Filed(2)
    world.bring_in("n1")
    rules(world, "n1", total_max=8 << 20)
    files = [File(b64url(bytes([number]) * 32), 1 << 20, "x") for number in range(6)]
    n0, tx = world.did("n0"), world.tx("n1")
    gone = {file.id: FileEntry(file, n0, "e" * 43, 0, state="gone", automatic=True) for file in files}
    tx.update_group(world.id, files=gone)
    upload.receive_available(tx, world.id, n0, FilesAvailableBody(world.id, [file.id for file in files]))
    states = [one.state for one in tx.group(world.id).files.values()]
    assert sorted(states) == ["getting"] * 2 + ["offered"] * 4


def test_false_announcements_are_limited():
    world, _, file = nobody_has_it()
    for _ in range(download.REVIVED_MAX):
        tx = world.tx("n1")
        upload.receive_available(tx, world.id, world.did("n0"), FilesAvailableBody(world.id, [file.id]))
        world.perform("n1", tx)
        assert world.state("n1", file) == "getting"
        assert world.run(lambda: world.state("n1", file) == "gone", for_ms=120_000)
    tx = world.tx("n1")
    upload.receive_available(tx, world.id, world.did("n0"), FilesAvailableBody(world.id, [file.id]))
    assert tx.group(world.id).files[file.id].state == "gone"
    upload.receive_available(tx, world.id, world.did("n2"), FilesAvailableBody(world.id, [file.id]))
    assert tx.group(world.id).files[file.id].state == "getting", "another one may have it"


def test_corrupt_source_is_not_believed():
    world, _, file = nobody_has_it()
    tx, n0 = world.tx("n1"), world.did("n0")
    catalogue.update_file(tx, world.id, file.id, corrupt_sources=(n0,))
    upload.receive_available(tx, world.id, n0, FilesAvailableBody(world.id, [file.id]))
    one = tx.group(world.id).files[file.id]
    assert one.state == "gone" and n0 not in one.holders


def test_all_missed_files_are_announced(monkeypatch):
    monkeypatch.setattr(download, "AVAILABLE_FILES_MAX", 4)
    told = []
    monkeypatch.setattr(download, "_send", lambda tx, name, member, kind, body: told.append((member, body["files"])))
    world = Filed(3)
    world.bring_in("n1", "n2")
    tx, n0, n1 = world.tx("n2"), world.did("n0"), world.did("n1")
    data = content(9)
    missed = {named(number).id: (n0, (n1,)) for number in range(6)} | {file_of(data).id: (n0, (n1,))}
    own = {named(number).id: (n1, ()) for number in range(50, 60)}
    tx.update_group(
        world.id,
        files={
            key: FileEntry(
                file_of(data) if key == file_of(data).id else File(key, 100, "x"),
                author,
                "e" * 43,
                0,
                state="here",
                stored_parts=1,
                waiting_members=asked_by,
            )
            for key, (author, asked_by) in {**missed, **own}.items()
        },
    )
    download.announce_files(tx, world.id, n1)
    assert [key for _, keys in told for key in keys] == [*missed, *list(own)[-4:]]
    assert {member for member, _ in told} == {n1} and all(len(keys) <= 4 for _, keys in told)
    upload.receive_request(tx, world.id, n1, FileRequestBody(world.id, file_of(data).id, 0, 1))
    told.clear()
    download.announce_files(tx, world.id, n1)
    assert file_of(data).id not in [key for _, keys in told for key in keys]
