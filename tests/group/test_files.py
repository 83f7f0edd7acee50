"""Files in the core: what a post names, who is asked for which part, and what is believed. Disks are dictionaries."""

import contextlib
import hashlib
import heapq

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.group.test_history import Cut
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import Dispatch, FinishFile, ReadParts, Refuse, SetTimer, StoreParts
from zerochat.group.effects import DropFile as Remove
from zerochat.group.event_log.event import POST
from zerochat.group.files import catalogue, download, upload
from zerochat.group.files.descriptor import FILES_MAX, File, files_in
from zerochat.group.files.hash_tree import (
    FILE_BYTES_MAX,
    PART_BYTES,
    PATH_MAX,
    leads_to,
    leaf,
    levels_over,
    part_size,
    parts_in,
    path_in,
)
from zerochat.group.files.quota import FileRules
from zerochat.group.inputs import (
    CreateGroup,
    DropFile,
    FileFailed,
    FilesFound,
    FileWhole,
    GetFile,
    LeaveGroup,
    Moment,
    PartsRead,
    PartsStored,
    RemoveMember,
    Say,
    SendPost,
)
from zerochat.group.links import mediator_mail, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.messages.bodies import Delete
from zerochat.group.state import Haul, Holding
from zerochat.group.wire.files import (
    ASK_PARTS_MAX,
    FILE_ASK,
    FILE_PART,
    FileAskBody,
    FileHaveBody,
    FileLackBody,
    FilePartBody,
)
from zerochat.group.wire.messages import read_body
from zerochat.group.wire.padding import bucket


def content(size, seed=7):
    """So many bytes, no two parts of them the same."""
    return b"".join(bytes([seed]) + number.to_bytes(7) for number in range(-(-size // 8)))[:size]


def cut_up(data):
    return [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]


def file_of(data, name="photo.jpg", kind="image/jpeg"):
    return File(b64url(levels_over([leaf(part) for part in cut_up(data)])[-1][0]), len(data), name, kind)


class Filed(Cut):
    """Members of one group with disks for files."""

    def __init__(self, members=3, policy=None, keys=None):
        self.disks = {}
        self.asked = []
        self.spoiled = {}
        """By member and part: what it sends instead."""
        super().__init__(members, policy)
        if keys:
            self.id = self.ask("n0", CreateGroup("others", "n0", self.envelope, keys)).result.group

    def attach(self, name, data, text="look", file=None):
        file = file or file_of(data)
        self.disks[name, self.id, file.id] = cut_up(data)
        return file, self.ask(name, SendPost(self.id, text, files=(file,)))

    def get(self, name, file, author="n0"):
        return self.ask(name, GetFile(self.id, file, self.did(author), "e" * 43))

    def holding(self, name, file):
        return self.nodes[name].agent.groups[self.id].files[file.id]

    def state(self, name, file):
        known = self.nodes[name].agent.groups[self.id].files.get(file.id)
        return known.state if known else ""

    def has(self, name, data, file):
        return self.state(name, file) == "here" and b"".join(self.disks[name, self.id, file.id]) == data

    def _perform(self, node, effect):
        match effect:
            case StoreParts(group, key, _, first, data):
                parts = self.disks.setdefault((node.name, group, key), [])
                parts[first:] = [data]
                self._later(1, node.name, PartsStored(group, key, first + 1))
            case ReadParts(group, member, key, _, first, count):
                self.asked.append((node.name, member, first, count))
                parts = self.disks[node.name, group, key]
                levels = levels_over([leaf(part) for part in parts])
                found = tuple(
                    (self.spoiled.get((node.name, number), parts[number]), path_in(levels, number))
                    for number in range(first, first + count)
                )
                self._later(1, node.name, PartsRead(group, member, key, first, found))
            case FinishFile(group, key, root, size):
                parts = self.disks[node.name, group, key]
                right = file_of(b"".join(parts)).root == root and sum(map(len, parts)) == size
                self._later(1, node.name, FileWhole(group, key) if right else FileFailed(group, key, ""))
            case Remove(group, key):
                self.disks.pop((node.name, group, key), None)
        super()._perform(node, effect)

    def forget_stored(self, name):
        """What its disk has not said yet, it does not say any more."""
        self._queue = [one for one in self._queue if not (one[2] == name and isinstance(one[3], PartsStored))]
        heapq.heapify(self._queue)

    def utter(self, name, to, kind, body):
        """Whatever a member's program sends to another."""
        group = self.nodes[name].agent.groups[self.id]
        turn = self.turn(name)
        message = Message(type=kind, id=new_id(self.dice.randbytes), body={"group": self.id, **body})
        relationship = group.relationships[self.did(to)]
        mediator_mail.send(
            turn, self.id, self.did(to), pack(relationship, message, turn.packer_of(self.id), self.dice.randbytes)
        )
        self.perform(name, turn)


# --- the tree -----------------------------------------------------------------------------------------------------


def largest_power_below(count):
    return 1 << ((count - 1).bit_length() - 1)


def root_by_the_book(leaves):
    """RFC 6962, section 2.1, word by word."""
    if len(leaves) == 1:
        return leaves[0]
    k = largest_power_below(len(leaves))
    left, right = root_by_the_book(leaves[:k]), root_by_the_book(leaves[k:])
    return hashlib.sha256(b"\x01" + left + right).digest()


@pytest.mark.parametrize("count", [*range(1, 34), 100, 255, 256, 257])
def test_the_tree_is_that_of_the_rfc_and_every_part_leads_to_its_root(count):
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


def test_a_pair_of_hashes_is_no_part():
    levels = levels_over([leaf(b"a"), leaf(b"b")])
    assert leaf(levels[0][0] + levels[0][1]) != levels[-1][0]


def test_parts_make_up_the_file():
    for size in (1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 5 * PART_BYTES, FILE_BYTES_MAX):
        count = parts_in(size)
        assert (count - 1) * PART_BYTES + part_size(size, count - 1) == size
        assert 1 <= part_size(size, count - 1) <= PART_BYTES
    assert (parts_in(FILE_BYTES_MAX) - 1).bit_length() <= PATH_MAX


def test_the_largest_part_with_the_longest_path_fits_32_kib():
    world = Filed(2)
    world.bring_in("n1")
    packer = world.turn("n0").packer_of(world.id)
    body = {
        "group": "g" * 43,
        "file": "f" * 43,
        "part": 47_000,
        "data": b64url(b"\xff" * PART_BYTES),
        "path": ["h" * 43] * PATH_MAX,
    }
    relationship = world.nodes["n0"].agent.groups[world.id].relationships[world.did("n1")]
    message = Message(
        type=FILE_PART,
        id=new_id(world.dice.randbytes),
        body=body,
        from_=relationship.mine.did,
        to=(relationship.theirs,),
    )
    assert bucket(len(packer.dump(replace(message, from_=relationship.mine.short)))) == 32 * 1024


# --- what a post names ----------------------------------------------------------------------------------------------


def test_what_a_post_names_is_read_as_it_was_written():
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
def test_what_cannot_be_a_file_is_passed_over_and_the_others_stay(wrong):
    file, other = file_of(b"hello"), file_of(b"world", "b")
    assert files_in({"files": [{**file.body(), **wrong}, other.body()]}) == (other,)


@pytest.mark.parametrize("listed", [None, 7, "files", {}, [[]], [None], [file_of(b"x").body()] * (FILES_MAX + 1)])
def test_what_is_no_list_of_files_names_none(listed):
    assert files_in({"files": listed}) == ()


def test_a_type_that_is_none_is_left_out():
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
def test_whatever_a_post_says_of_files_it_names_files_or_none(listed):
    for file in files_in({"files": listed}):
        assert 1 <= file.size <= FILE_BYTES_MAX and len(file.id) == 43 and file.name
        assert files_in({"files": [file.body()]}) == (file,)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [FileAskBody, FilePartBody, FileLackBody, FileHaveBody])
@given(st.data())
def test_whatever_a_message_about_files_says_it_is_read_or_refused(shape, data):
    names = st.sampled_from([*shape.__struct_fields__, "else"])
    body = data.draw(st.dictionaries(names, JUNK | st.text("AB", min_size=43, max_size=43), max_size=6))
    with contextlib.suppress(Malformed):
        assert isinstance(read_body(Message(type=FILE_ASK, id="1", body=body), shape), shape)


# --- getting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single"])
def test_a_small_file_comes_by_itself_and_its_author_hears_who_has_it(keys):
    world = Filed(keys=keys)
    world.bring_in("n1", "n2")
    data = content(3 * PART_BYTES + 5)
    file, _ = world.attach("n0", data)
    assert world.run(lambda: world.has("n1", data, file) and world.has("n2", data, file), for_ms=60_000)
    assert world.run(lambda: len(world.holding("n0", file).holders) == 2, for_ms=5_000)


def test_a_large_file_comes_when_somebody_asks_for_it():
    world = Filed(2)
    world.bring_in("n1")
    data = content((2 << 20) + 3)
    file, _ = world.attach("n0", data)
    world.run(for_ms=20_000)
    assert world.state("n1", file) == "offered" and not world.asked
    world.get("n1", file)
    assert world.run(lambda: world.has("n1", data, file), for_ms=120_000)
    assert max(count for *_, count in world.asked) <= ASK_PARTS_MAX
    assert max(count for *_, count in world.asked) > 2, "what comes fast is asked for in larger pieces"


def test_somebody_else_gives_it_when_its_author_is_gone():
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


def test_a_deletion_that_others_hand_over_drops_the_file_once_its_author_confirms_it():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(2 * PART_BYTES)
    file, post = world.attach("n0", data)
    assert world.run(lambda: world.has("n1", data, file) and world.has("n2", data, file), for_ms=60_000)
    world.deaf.add(frozenset({"n0", "n2"}))
    world.ask("n0", Say(world.id, Delete(post.result.id)))
    assert world.run(lambda: world.holding("n2", file).taken_back, for_ms=400_000)
    assert world.state("n1", file) == "", "its author has told it so"
    assert world.has("n2", data, file), "what is dropped is gone, so a third member's word is not enough"
    world.deaf.clear()
    world.post("n0", "I have taken it back")
    assert world.run(lambda: world.state("n2", file) == "", for_ms=60_000)
    assert ("n2", world.id, file.id) not in world.disks


def test_a_deletion_that_the_author_has_never_said_drops_nothing():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(PART_BYTES)
    file, _ = world.attach("n0", data)
    assert world.run(lambda: world.has("n2", data, file), for_ms=60_000)
    turn, author = world.turn("n2"), world.did("n0")
    catalogue.said_deleted(turn, world.id, author, world.holding("n2", file).event, 9)
    for after, upto in ((0, 8), (9, 12)):
        catalogue.confirmed(turn, world.id, author, after, upto)
        catalogue.refuted(turn, world.id, author, after, upto)
    assert turn.group(world.id).files[file.id].taken_back == 9, "other places of the chain"
    catalogue.refuted(turn, world.id, author, 5, 9)
    catalogue.confirmed(turn, world.id, author, 5, 9)
    assert turn.group(world.id).files[file.id].state == "here"


def test_a_member_who_sends_something_else_spoils_nothing():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(6 * PART_BYTES)
    file, _ = world.attach("n0", data)
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000)
    world.ask("n2", DropFile(world.id, file.id))
    part = cut_up(data)[2]
    world.spoiled["n0", 2] = bytes([part[0] ^ 1]) + part[1:]
    world.get("n2", file)
    assert world.run(lambda: world.has("n2", data, file), for_ms=200_000)
    assert world.holding("n2", file).liars == () or world.did("n0") in world.holding("n2", file).liars
    assert any("FalsePart" in told for told in world.nodes["n2"].dropped)


@pytest.mark.parametrize("number", range(4))
def test_one_flipped_bit_in_any_part_is_refused(number):
    world = Filed(2)
    world.bring_in("n1")
    data = content(4 * PART_BYTES - 9)
    file = file_of(data)
    part = cut_up(data)[number]
    world.spoiled["n0", number] = part[:-1] + bytes([part[-1] ^ 0x80])
    world.attach("n0", data)
    world.run(for_ms=60_000)
    assert world.state("n1", file) == "gone", "there is nobody else"
    assert world.holding("n1", file).have < 4, "all that came before it, in whatever order"
    assert world.holding("n1", file).liars == (world.did("n0"),)


@pytest.mark.slow
def test_what_was_on_disk_before_a_restart_is_not_asked_for_again():
    world = Filed(2)
    world.bring_in("n1")
    data = content(3 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.get("n1", file)
    assert world.run(lambda: world.holding("n1", file).have > 40, for_ms=60_000)
    key = ("n1", world.id, file.id)
    world.disks[key] = world.disks[key][:30]  # what was not synced is lost
    world.asked.clear()
    world.forget_stored("n1")
    world.hear("n1", FilesFound(((world.id, file.id, 30, False),)))
    assert world.holding("n1", file).have == 30
    assert world.run(lambda: world.has("n1", data, file), for_ms=120_000)
    fresh = [first for _, _, first, _ in world.asked]
    assert 30 in fresh and min(first for first in fresh) >= 30


def test_what_is_not_on_disk_any_more_is_offered_again():
    world = Filed(2)
    world.bring_in("n1")
    file, _ = world.attach("n0", data := content(100))
    assert world.run(lambda: world.has("n1", data, file), for_ms=20_000)
    world.hear("n1", FilesFound(()))
    assert world.state("n1", file) == "offered" and world.holding("n1", file).have == 0
    world.get("n1", file)
    assert world.run(lambda: world.has("n1", data, file), for_ms=20_000)


def test_a_file_that_is_not_what_it_must_be_on_disk_never_looks_whole():
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


def test_a_disk_that_spoils_everything_is_not_written_to_for_ever():
    world = Filed(2)
    world.bring_in("n1")
    data = content(2 * PART_BYTES)
    key = ("n1", world.id, file_of(data).id)
    finished = []

    def spoil():
        if world.disks.get(key):
            world.disks[key][0] = b"x" * PART_BYTES
        finished.extend(one for one in [world.holding("n1", file).spoilt] if one not in finished)
        return world.holding("n1", file).fault

    file, _ = world.attach("n0", data)
    assert world.run(lambda: world.state("n1", file), for_ms=5_000)
    assert world.run(spoil, for_ms=400_000) and finished == [0, 1, 2, 3]
    asked = len(world.asked)
    world.run(for_ms=200_000)
    assert len(world.asked) == asked and "disk" in world.holding("n1", file).fault
    world.get("n1", file)
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000), "a person can try again"


def nobody_has_it():
    """Three members, n1 of whom knows that nobody has this file any more, and the file's content."""
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(2 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.ask("n0", DropFile(world.id, file.id))
    world.get("n1", file)
    assert world.run(lambda: world.state("n1", file) == "gone", for_ms=60_000)
    return world, data, file


def test_nobody_has_it_is_said_when_all_have_said_so():
    world, _, file = nobody_has_it()
    world.get("n1", file)
    assert world.state("n1", file) == "getting", "it can be tried again"


def test_who_had_not_got_it_is_asked_again_as_soon_as_it_has():
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


def test_who_has_given_up_is_told_once_more_that_somebody_has_it():
    world, _, file = nobody_has_it()
    turn, n1 = world.turn("n2"), world.did("n1")
    catalogue.edit(turn, world.id, file.id, state="getting", have=file.parts, asked_by=(n1,))
    download.whole(turn, world.id, file.id)
    world.deaf.add(frozenset({"n1", "n2"}))
    world.perform("n2", turn)
    world.run(for_ms=1_000)
    world.deaf.clear()
    assert world.state("n1", file) == "gone", "the word that it is there got lost"
    assert world.run(lambda: world.state("n1", file) == "getting", for_ms=download.TOLD_AGAIN_MS)


def test_nobody_is_told_for_ever_that_somebody_has_it():
    world, _, file = nobody_has_it()
    turn, n1 = world.turn("n2"), world.did("n1")
    catalogue.edit(turn, world.id, file.id, state="here", asked_by=(n1,))
    for attempt in range(1, download.TOLD_AGAIN_MAX + 1):
        turn.effects.clear()
        download.tell_again(turn, world.id, file.id, attempt)
        kinds = [type(effect) for effect in turn.effects]
        assert kinds.count(Dispatch) == 1 and kinds.count(SetTimer) == (attempt < download.TOLD_AGAIN_MAX)


def test_a_question_that_got_lost_is_asked_once_more_of_the_only_one_who_has_it():
    world = Filed(2)
    world.bring_in("n1")
    data = content(2 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    world.get("n1", file)
    world.run(for_ms=2_000)
    world.deaf.clear()
    assert world.run(lambda: bool(world.asked), for_ms=download.PATIENCE_MS // 2)
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000)


def test_who_goes_while_it_is_asked_is_passed_over():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(2 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.get("n2", file)
    assert world.run(lambda: world.has("n2", data, file), for_ms=60_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    world.get("n1", file)
    assert world.run(lambda: world.holding("n1", file).haul is not None, for_ms=1_000)
    assert world.holding("n1", file).haul.member == world.did("n0")
    world.ask("n0", LeaveGroup(world.id))
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000)


def test_what_nobody_had_any_more_comes_when_somebody_has_it_again():
    world, data, file = nobody_has_it()
    world.attach("n2", data, "here it is", file)
    assert world.run(lambda: world.has("n1", data, file), for_ms=60_000)


def test_where_there_is_no_room_any_more_it_is_only_offered_again():
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
def test_chat_comes_through_while_a_file_does():
    world = Filed(2)
    world.bring_in("n1")
    data = content(8 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.get("n1", file)
    assert world.run(lambda: world.holding("n1", file).have > 20, for_ms=60_000)
    world.post("n0", "hello")
    assert world.run(lambda: "hello" in world.texts("n1"), for_ms=2_000)
    assert world.state("n1", file) == "getting"


# --- who may ask ------------------------------------------------------------------------------------------------------


def test_only_members_of_the_group_get_it_and_only_of_the_group_in_which_it_was_posted():
    world = Filed()
    world.bring_in("n1", "n2")
    data = content(2 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    first = world.id
    world.id = world.ask("n0", CreateGroup("others", "n0", world.envelope)).result.group
    world.bring_in("n1")
    ask = {"file": file.id, "first": 0, "count": 1}
    world.utter("n1", "n0", FILE_ASK, ask)
    world.run(for_ms=2_000)
    assert world.asked == [], "in the second group nobody has posted it"
    world.utter("n1", "n0", FILE_ASK, {**ask, "group": first})
    world.run(for_ms=2_000)
    assert world.asked == [] and any("Refused" in told for told in world.nodes["n0"].dropped)


def test_who_was_removed_gets_nothing():
    world = Filed()
    world.bring_in("n1", "n2")
    file, _ = world.attach("n0", content(2 << 20))
    world.run(for_ms=2_000)
    world.ask("n0", RemoveMember(world.id, world.did("n2")))
    world.ask("n1", RemoveMember(world.id, world.did("n2")))
    assert world.run(lambda: world.did("n2") not in world.nodes["n0"].agent.groups[world.id].view.members)
    turn = world.turn("n0")
    with pytest.raises(Refused):
        upload.hear_ask(turn, world.id, world.did("n2"), FileAskBody(world.id, file.id, 0, 1))
    assert turn.effects == []


def test_parts_that_nobody_has_asked_for_are_not_kept():
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
def test_who_asks_for_too_much_has_to_wait_and_is_heard_all_the_same():
    world = Filed(2)
    world.bring_in("n1")
    file, _ = world.attach("n0", content(20 << 20), file=None)
    world.run(for_ms=2_000)
    for _ in range(60):
        world.utter("n1", "n0", FILE_ASK, {"file": file.id, "first": 0, "count": ASK_PARTS_MAX})
    world.run(for_ms=100)
    given = sum(count for *_, count in world.asked) * PART_BYTES
    assert 6 << 20 < given < 10 << 20
    world.post("n1", "still here")
    assert world.run(lambda: "still here" in world.texts("n0"), for_ms=2_000)


def hauled(world, *others, parts=4):
    """A file that n1 wants, and asks n0 for."""
    data = content(parts * PART_BYTES)
    file, turn = file_of(data), world.turn("n1")
    haul = Haul(world.did("n0"), 0, 2, 2, turn.now + download.PATIENCE_MS, turn.now, since=turn.now)
    wanted = Holding(file, world.did("n0"), "e" * 43, 0, state="getting", haul=haul)
    turn.edit(world.id, files={**{one.file.id: one for one in others}, file.id: wanted})
    return data, file, turn


def test_who_is_too_busy_for_ever_is_passed_over():
    world = Filed(3)
    world.bring_in("n1", "n2")
    _, file, turn = hauled(world)
    for _ in range(download.BUSY_MAX + 1):
        download.hear_lack(turn, world.id, world.did("n0"), FileLackBody(world.id, file.id, "busy"))
        download.again(turn, world.id, file.id)
    one = turn.group(world.id).files[file.id]
    assert one.haul is None and one.tried == (world.did("n0"),) and one.absent == ()
    download.seek(turn, world.id)
    asked = turn.group(world.id).files[file.id].haul
    assert asked is not None and asked.member == world.did("n2")


def dripped(world, turn, file, data, gap_ms):
    """n0 brings one part every so often until it is asked for no more: how many, and until when; None: it always is."""
    parts, author, begun = cut_up(data), world.did("n0"), turn.now
    levels = levels_over([leaf(part) for part in parts])
    for number in range(len(parts) - 1):
        turn.moment = Moment(turn.now + gap_ms, world.dice.randbytes)
        path = [b64url(each) for each in path_in(levels, number)]
        body = FilePartBody(world.id, file.id, number, b64url(parts[number]), path)
        download.hear_part(turn, world.id, author, body, bucket(PART_BYTES))
        download.stored(turn, world.id, file.id, number + 1)
        haul = turn.group(world.id).files[file.id].haul
        if haul is None or haul.member != author:
            return number + 1, turn.now - begun
    return None


def test_who_brings_a_little_every_now_and_then_does_not_keep_a_file_from_us():
    world = Filed(3)
    world.bring_in("n1", "n2")
    data, file, turn = hauled(world, parts=60)
    assert dripped(world, turn, file, data, 14_000) == (3, 42_000)
    assert turn.group(world.id).files[file.id].slow == (world.did("n0"),)
    download.seek(turn, world.id)
    one = turn.group(world.id).files[file.id]
    assert one.haul.member == world.did("n2") and one.have == 3, "what has come stays"
    download.hear_lack(turn, world.id, world.did("n2"), FileLackBody(world.id, file.id, "absent"))
    download.seek(turn, world.id)
    assert turn.group(world.id).files[file.id].haul.member == world.did("n0"), "a little is more than nothing"


def test_who_is_quick_enough_or_has_it_alone_is_asked_on():
    world = Filed(3)
    world.bring_in("n1", "n2")
    data, file, turn = hauled(world, parts=60)
    assert dripped(world, turn, file, data, download.SPELL_MS // download.SPELL_PARTS) is None
    alone = Filed(2)
    alone.bring_in("n1")
    data, file, turn = hauled(alone, parts=60)
    assert dripped(alone, turn, file, data, 14_000) is None


def test_a_part_that_comes_again_and_again_is_charged():
    world = Filed(2)
    world.bring_in("n1")
    data, file, turn = hauled(world)
    parts = cut_up(data)
    path = [b64url(each) for each in path_in(levels_over([leaf(part) for part in parts]), 0)]
    body = FilePartBody(world.id, file.id, 0, b64url(parts[0]), path)
    heard = 0
    for _ in range(2 * rate_limits.ENVELOPES_MAX):
        if rate_limits.spend(turn, world.id, world.did("n0"), bucket(PART_BYTES)):
            heard += 1
            download.hear_part(turn, world.id, world.did("n0"), body, bucket(PART_BYTES))
    assert heard <= rate_limits.ENVELOPES_MAX + 1


def test_what_a_person_wants_comes_before_what_comes_by_itself():
    world = Filed(2)
    world.bring_in("n1")
    files = [File(b64url(bytes([number]) * 32), 1, "x") for number in range(40)]
    auto = [Holding(one, world.did("n0"), "e" * 43, 0, state="getting", auto=True) for one in files]
    turn = world.turn("n1")
    wanted = Holding(file_of(content(9)), world.did("n0"), "e" * 43, 0, state="getting")
    turn.edit(world.id, files={one.file.id: one for one in (*auto, wanted)})
    download.seek(turn, world.id)
    kept = turn.group(world.id).files
    assert kept[wanted.file.id].haul is not None
    assert sum(one.haul is not None for one in kept.values()) == download.HAULS_MAX


def test_a_clock_that_was_set_back_keeps_nobody_from_giving():
    world = Filed(2)
    world.bring_in("n1")
    turn, member = world.turn("n0"), world.did("n1")
    spent = msgspec.structs.replace(turn.group(world.id).peers[member].conduct, given=0, given_at=turn.now + 86_400_000)
    turn.edit_peer(world.id, member, conduct=spent)
    assert upload._spend(turn, world.id, member, PART_BYTES)


# --- how much ---------------------------------------------------------------------------------------------------------


def rules(world, name, **wanted):
    agent = world.nodes[name].agent
    world.nodes[name].agent = replace(agent, file_rules=replace(agent.file_rules, **wanted))


def refused(answer):
    assert isinstance(answer, Refuse), answer
    return answer.error.code


def test_limits_are_said_in_words():
    world = Filed(2)
    world.bring_in("n1")
    file, _ = world.attach("n0", content(2 << 20))
    world.run(for_ms=2_000)
    rules(world, "n1", size_max=1 << 20)
    assert refused(world.get("n1", file)) == "FileTooLarge"
    rules(world, "n1", size_max=64 << 20, total_max=1 << 20)
    answer = world.get("n1", file)
    assert refused(answer) == "NoRoomForFile" and "zerochat files drop" in answer.error.sentence()
    rules(world, "n0", size_max=1000)
    posts = len(world.texts("n0"))
    assert refused(world.attach("n0", content(2000))[1]) == "FileTooLarge"
    assert len(world.texts("n0")) == posts, "nothing was said"
    rules(world, "n1", total_max=2 << 30)
    world.get("n1", file)
    assert world.run(lambda: world.state("n1", file) == "here", for_ms=100_000)


@pytest.mark.slow
def test_thousands_of_offers_fill_nothing():
    world = Filed(2)
    world.bring_in("n1")
    turn = world.turn("n1")
    rules(world, "n1", total_max=40 << 20)
    turn = world.turn("n1")
    template = world.turn("n1").group(world.id).control[world.id]
    for number in range(400):
        files = [
            File(b64url(bytes([number // 256, number % 256, place]) + bytes(29)), 1 << 20, "x").body()
            for place in range(8)
        ]
        event = replace(
            template, group=world.id, type=POST, author=world.did("n0"), seq=number + 2, body={"files": files}
        )
        catalogue.posted(turn, world.id, event)
    kept = turn.group(world.id).files
    assert len([one for one in kept.values() if one.state == "offered"]) <= catalogue.OFFERED_MAX
    wanted = sum(one.file.size for one in kept.values() if one.state == "getting")
    assert 0 < wanted <= 10 << 20, "a quarter of what there is room for"
    world.perform("n1", turn)
    world.post("n1", "still here")


def test_what_comes_by_itself_leaves_room_for_what_somebody_wants(monkeypatch):
    """However small it is."""
    monkeypatch.setattr(catalogue, "KEPT_MAX", 16)
    world = Filed(2)
    world.bring_in("n1")
    turn = world.turn("n1")
    post = turn.group(world.id).control[world.id]
    for number in range(20):
        body = {"files": [File(b64url(bytes([number]) * 32), 1, "x").body()]}
        event = replace(post, group=world.id, type=POST, author=world.did("n0"), seq=number + 2, body=body)
        catalogue.posted(turn, world.id, event)
    kept = turn.group(world.id).files.values()
    assert sum(one.state == "getting" for one in kept) == 16 // catalogue.AUTO_SHARE
    catalogue.check_room(turn.agent, turn.group(world.id), [file_of(content(9))])


def test_nothing_comes_by_itself_where_nobody_wants_that():
    world = Filed(2)
    world.bring_in("n1")
    rules(world, "n1", auto_max=0)
    file, _ = world.attach("n0", content(10))
    world.run(for_ms=20_000)
    assert world.state("n1", file) == "offered" and FileRules().auto_max > 0


@pytest.mark.slow
def test_a_full_disk_stops_it_until_somebody_asks_again():
    world = Filed(2)
    world.bring_in("n1")
    data = content(4 << 20)
    file, _ = world.attach("n0", data)
    world.run(for_ms=2_000)
    world.get("n1", file)
    assert world.run(lambda: world.holding("n1", file).have > 3, for_ms=60_000)
    world.hear("n1", FileFailed(world.id, file.id, "The disk is full."))
    have = world.holding("n1", file).have
    world.run(for_ms=100_000)
    assert world.holding("n1", file).fault == "The disk is full." and world.holding("n1", file).haul is None
    world.get("n1", file)
    assert world.run(lambda: world.has("n1", data, file), for_ms=100_000)
    assert have > 0


def test_a_part_of_the_wrong_length_or_with_junk_for_a_path_is_a_lie():
    world = Filed(2)
    world.bring_in("n1")
    file, _ = world.attach("n0", content(2 << 20))
    world.run(for_ms=2_000)
    world.get("n1", file)
    assert world.run(lambda: world.holding("n1", file).haul, for_ms=2_000)
    did = world.did("n0")
    for body in (
        FilePartBody(world.id, file.id, 0, b64url(b"x")),
        FilePartBody(world.id, file.id, 0, b64url(b"x" * PART_BYTES), [b64url(bytes(32))] * PATH_MAX),
        FilePartBody(world.id, file.id, 40_000, b64url(b"x" * PART_BYTES)),
    ):
        turn = world.turn("n1")
        download.hear_part(turn, world.id, did, body, 40_000)
        one = turn.group(world.id).files[file.id]
        assert one.liars == (did,) and one.have == 0 and b64url_bytes(one.file.root)


# --- readers' findings ------------------------------------------------------------------------------------------------


def named(number):
    """A file of which only the name is known."""
    return File(b64url(number.to_bytes(2) + bytes(30)), 100, f"{number}")


@pytest.mark.parametrize("where", [0, 1])
def test_the_oldest_file_is_posted_once_more_beside_a_new_one(monkeypatch, where):
    """There is no room for one more that is only known; the one that is named again is not the one that goes."""
    monkeypatch.setattr(catalogue, "OFFERED_MAX", 8)
    world = Filed(3)
    world.bring_in("n1", "n2")
    for name in world.nodes:
        rules(world, name, auto_max=0)
    for number in range(8):
        world.ask("n0", SendPost(world.id, "one", files=(named(number),)))
    world.run(for_ms=3_000)
    assert list(world.nodes["n1"].agent.groups[world.id].files) == [named(number).id for number in range(8)]
    again = (named(where), named(99))
    world.ask("n2", SendPost(world.id, "both", files=again))
    assert world.run(lambda: "both" in world.texts("n1"), for_ms=3_000)
    there = world.nodes["n1"].agent.groups[world.id].files
    assert {file.id for file in again} <= there.keys() and len(there) == 8
    assert there[named(where).id].holders == (world.did("n2"),)


class Line(Filed):
    """All that n0 says to n1 goes over a line that takes so many bytes a second, one after the other."""

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
def test_over_a_slow_line_hardly_anything_comes_twice(rate, files):
    """What is asked for once more while it is on its way stands before everything else."""
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


def test_what_is_given_up_and_offered_again_takes_no_more_than_a_quarter_either():
    """A member has had us fetch small ones that nobody had, and then says that it has all of them."""
    world = Filed(2)
    world.bring_in("n1")
    rules(world, "n1", total_max=8 << 20)
    files = [File(b64url(bytes([number]) * 32), 1 << 20, "x") for number in range(6)]
    n0, turn = world.did("n0"), world.turn("n1")
    gone = {file.id: Holding(file, n0, "e" * 43, 0, state="gone", auto=True) for file in files}
    turn.edit(world.id, files=gone)
    upload.hear_have(turn, world.id, n0, FileHaveBody(world.id, [file.id for file in files]))
    states = [one.state for one in turn.group(world.id).files.values()]
    assert sorted(states) == ["getting"] * 2 + ["offered"] * 4


def test_who_says_again_and_again_that_it_has_what_it_has_not_is_not_asked_for_ever():
    world, _, file = nobody_has_it()
    for _ in range(download.REVIVED_MAX):
        turn = world.turn("n1")
        upload.hear_have(turn, world.id, world.did("n0"), FileHaveBody(world.id, [file.id]))
        world.perform("n1", turn)
        assert world.state("n1", file) == "getting"
        assert world.run(lambda: world.state("n1", file) == "gone", for_ms=120_000)
    turn = world.turn("n1")
    upload.hear_have(turn, world.id, world.did("n0"), FileHaveBody(world.id, [file.id]))
    assert turn.group(world.id).files[file.id].state == "gone"
    upload.hear_have(turn, world.id, world.did("n2"), FileHaveBody(world.id, [file.id]))
    assert turn.group(world.id).files[file.id].state == "getting", "another one may have it"


def test_whoever_has_sent_something_else_is_not_believed_that_it_has_it():
    world, _, file = nobody_has_it()
    turn, n0 = world.turn("n1"), world.did("n0")
    catalogue.edit(turn, world.id, file.id, liars=(n0,))
    upload.hear_have(turn, world.id, n0, FileHaveBody(world.id, [file.id]))
    one = turn.group(world.id).files[file.id]
    assert one.state == "gone" and n0 not in one.holders


def test_whoever_has_missed_many_files_is_told_of_each_until_it_asks(monkeypatch):
    monkeypatch.setattr(download, "HAVE_FILES_MAX", 4)
    told = []
    monkeypatch.setattr(download, "_say", lambda turn, name, member, kind, body: told.append((member, body["files"])))
    world = Filed(3)
    world.bring_in("n1", "n2")
    turn, n0, n1 = world.turn("n2"), world.did("n0"), world.did("n1")
    data = content(9)
    missed = {named(number).id: (n0, (n1,)) for number in range(6)} | {file_of(data).id: (n0, (n1,))}
    own = {named(number).id: (n1, ()) for number in range(50, 60)}
    turn.edit(
        world.id,
        files={
            key: Holding(
                file_of(data) if key == file_of(data).id else File(key, 100, "x"),
                author,
                "e" * 43,
                0,
                state="here",
                have=1,
                asked_by=asked_by,
            )
            for key, (author, asked_by) in {**missed, **own}.items()
        },
    )
    download.tell(turn, world.id, n1)
    assert [key for _, keys in told for key in keys] == [*missed, *list(own)[-4:]]
    assert {member for member, _ in told} == {n1} and all(len(keys) <= 4 for _, keys in told)
    upload.hear_ask(turn, world.id, n1, FileAskBody(world.id, file_of(data).id, 0, 1))
    told.clear()
    download.tell(turn, world.id, n1)
    assert file_of(data).id not in [key for _, keys in told for key in keys]
