"""Simulated groups that share files; sample files."""

import heapq

from tests.support.cut_world import Cut
from zerochat.crypto.encoding import b64url
from zerochat.didcomm.message import Message, new_id
from zerochat.group.effects import DeleteFileData as Remove
from zerochat.group.effects import ReadParts, StoreParts, VerifyFile
from zerochat.group.files.descriptor import File
from zerochat.group.files.hash_tree import PART_BYTES, leaf, levels_over, path_in
from zerochat.group.inputs import CreateGroup, DownloadFile, FileFailed, FileVerified, PartsRead, PartsStored, SendPost
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import pack
from zerochat.sim import World


def content(size, seed=7):
    """So many bytes, no two parts of them the same."""
    return b"".join(bytes([seed]) + number.to_bytes(7) for number in range(-(-size // 8)))[:size]


def cut_up(data):
    return [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]


def file_of(data, name="photo.jpg", kind="image/jpeg"):
    return File(b64url(levels_over([leaf(part) for part in cut_up(data)])[-1][0]), len(data), name, kind)


class Disks(World):
    """A world whose members have disks for files."""

    id: str

    def __init__(self, *arguments, **more):
        self.disks = {}
        self.asked = []
        self.spoiled = {}
        """By member and part: what it sends instead."""
        super().__init__(*arguments, **more)

    def did(self, name):
        return self.nodes[name].agent.groups[self.id].me

    def attach(self, name, data, text="look", file=None):
        file = file or file_of(data)
        self.disks[name, self.id, file.id] = cut_up(data)
        return file, self.run_command(name, SendPost(self.id, text, files=(file,)))

    def get(self, name, file, author="n0"):
        return self.run_command(name, DownloadFile(self.id, file, self.did(author), "e" * 43))

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
            case VerifyFile(group, key, root, size):
                parts = self.disks[node.name, group, key]
                right = file_of(b"".join(parts)).root == root and sum(map(len, parts)) == size
                self._later(1, node.name, FileVerified(group, key) if right else FileFailed(group, key, ""))
            case Remove(group, key):
                self.disks.pop((node.name, group, key), None)
        super()._perform(node, effect)


class Filed(Disks, Cut):
    """Members of one group with disks for files."""

    def __init__(self, members=3, policy=None, keys=None):
        super().__init__(members, policy)
        if keys:
            self.id = self.run_command("n0", CreateGroup("others", "n0", self.envelope, keys)).result.group

    def forget_stored(self, name):
        """What its disk has not said yet, it does not say any more."""
        self._queue = [one for one in self._queue if not (one[2] == name and isinstance(one[3], PartsStored))]
        heapq.heapify(self._queue)

    def utter(self, name, to, kind, body):
        """Whatever a member's program sends to another."""
        group = self.nodes[name].agent.groups[self.id]
        tx = self.tx(name)
        message = Message(type=kind, id=new_id(self.rng.randbytes), body={"group": self.id, **body})
        relationship = group.links.relationships[self.did(to)]
        mediator_mail.send(
            tx, self.id, self.did(to), pack(relationship, message, tx.packer_of(self.id), self.rng.randbytes)
        )
        self.perform(name, tx)
