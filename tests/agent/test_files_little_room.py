"""File transfer under low limits: members post, request, drop and lie; no failure, no loss.

State about files is then pruned, abandoned and resumed all the time, in arbitrary order.
"""

import random

import pytest

from tests.support.file_world import Filed, content, cut_up, file_of
from zerochat.crypto.encoding import b64url
from zerochat.group.effects import ReadParts, VerifyFile
from zerochat.group.files import catalogue, download
from zerochat.group.files.hash_tree import leaf, levels_over, path_in
from zerochat.group.inputs import DeleteFile, FileFailed, FilesFound, PartsRead, RemoveMember, SendPost
from zerochat.group.wire.files import FILE_PART, FILE_REQUEST, FILE_UNAVAILABLE, FILES_AVAILABLE

SLICE = 60
"""Lives in CI's slice."""
SIZES = (100, 30_000, 100_000)
POOL = [content(SIZES[number % 3], seed=number + 1) for number in range(12)]
FILES = [file_of(data) for data in POOL]


class Torn(Filed):
    """Disks that have not always what they are asked for."""

    def _perform(self, node, effect):
        match effect:
            case ReadParts(group, member, key, _, first, count):
                if len(self.disks.get((node.name, group, key), ())) < first + count:
                    self._later(1, node.name, PartsRead(group, member, key, first, ()))
                    return
            case VerifyFile(group, key, _, _):
                if not self.disks.get((node.name, group, key)):
                    self._later(1, node.name, FileFailed(group, key, ""))
                    return
        super()._perform(node, effect)


@pytest.fixture(autouse=True)
def little_room(monkeypatch):
    monkeypatch.setattr(catalogue, "OFFERED_MAX", 5)
    monkeypatch.setattr(catalogue, "KEPT_MAX", 16)
    monkeypatch.setattr(download, "AVAILABLE_FILES_MAX", 5)


def live(seed):
    """Some minutes among four members, any of whom lies; what one of them says in the end."""
    dice = random.Random(seed)
    world = Torn(4, keys=dice.choice([None, None, "pairwise-single", "sender-key"]))
    world.bring_in("n1", "n2", "n3")
    for _ in range(80):
        deed(world, dice, dice.choice(["n0", "n1", "n2", "n3"]))
        world.run(for_ms=dice.choice([5, 50, 1_000, 20_000]))
    world.run(for_ms=60_000)
    near = [name for name in world.nodes if world.nodes[name].agent.groups[world.id].state == "active"]
    world.post(near[0], "in the end")
    assert world.run(lambda: all("in the end" in world.texts(name) for name in near), for_ms=120_000), seed


def deed(world, dice, name):
    """Something that a person or a program of one of them does."""
    number = dice.randrange(len(FILES))
    file, data = FILES[number], POOL[number]
    others = [other for other in world.nodes if other != name]
    known = world.nodes[name].agent.groups[world.id].links.relationships
    to = dice.choice(others)

    def say(kind, **body):
        if world.did(to) in known:
            world.utter(name, to, kind, body)

    match dice.choice(["post"] * 3 + ["get", "drop", "have", "lack", "ask", "part", "remove", "found", "failed"]):
        case "post":
            numbers = dice.sample(range(len(FILES)), dice.randint(1, 4))
            has_them = dice.random() < 0.5
            for one in numbers if has_them else ():
                world.disks[name, world.id, FILES[one].id] = cut_up(POOL[one])
            world.run_command(name, SendPost(world.id, "x", files=tuple(FILES[one] for one in numbers)))
            for one in () if has_them else numbers:
                world.run_command(name, DeleteFile(world.id, FILES[one].id))
        case "get":
            world.get(name, file)
        case "drop":
            world.run_command(name, DeleteFile(world.id, file.id))
        case "have":
            some = dice.sample(FILES, dice.randint(1, 5))
            say(FILES_AVAILABLE, files=[one.id for one in some])
        case "lack":
            say(FILE_UNAVAILABLE, file=file.id, why=dice.choice(["absent", "busy"]))
        case "ask":
            say(FILE_REQUEST, file=file.id, first=dice.randrange(6), count=dice.randint(1, 16))
        case "part":
            parts = cut_up(data)
            part, levels = dice.randrange(len(parts)), levels_over([leaf(each) for each in parts])
            path = [b64url(each) for each in path_in(levels, part)]
            say(FILE_PART, file=file.id, part=part, data=b64url(parts[part]), path=path)
        case "remove" if dice.random() < 0.1:
            world.run_command(name, RemoveMember(world.id, world.did(to)))
        case "found":
            some = dice.sample(FILES, 3)
            there = tuple((world.id, one.id, dice.randrange(3), dice.random() < 0.3) for one in some)
            world.process(name, FilesFound(there))
        case "failed" if dice.random() < 0.2:
            world.process(name, FileFailed(world.id, file.id, dice.choice(["", "full"])))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_operation_fails_with_little_room(seed):
    live(seed)


@pytest.mark.sim
def test_no_operation_fails_with_many_seeds(budget):
    for seed in range(100, 100 + budget(SLICE)):
        live(seed)
