"""Giving files: only to members of the group in which they were posted, and to each no faster than is good for all."""

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import ReadParts
from zerochat.group.files import catalogue, download
from zerochat.group.files.hash_tree import PART_BYTES
from zerochat.group.inputs import PartsRead
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import pack
from zerochat.group.state import Group
from zerochat.group.transaction import Turn
from zerochat.group.wire.files import FILE_LACK, FILE_PART, FileAskBody, FileHaveBody

GIVEN_PER_S, GIVEN_MAX = 8 << 20, 8 << 20
"""Bytes that one member gets for long, and at once. They are counted apart from what it sends: whoever fetches a large
file is heard in the chat all the same."""


def hear_ask(turn: Turn, name: str, member: str, body: FileAskBody) -> None:
    """A member wants parts of a file. Raises RemoteError."""
    group = turn.group(name)
    if body.group != name or member not in group.view.members or member in group.quarantine:
        raise Refused(why="a question for a file of another group, or by somebody who is not a member")
    one = group.files.get(body.file)
    if one is None or one.state != "here":
        _say_absent(turn, name, member, body.file)
        return
    if body.first + body.count > one.file.parts:
        raise Malformed(why="file-ask: more parts than there are")
    if not _spend(turn, name, member, body.count * PART_BYTES):
        _say_lack(turn, name, member, body.file, "busy")
        return
    if member in one.asked_by:  # it knows by now that it is here
        catalogue.edit(turn, name, body.file, asked_by=tuple(did for did in one.asked_by if did != member))
    turn.say(ReadParts(name, member, body.file, one.file.size, body.first, body.count))


def _spend(turn: Turn, name: str, member: str, size: int) -> bool:
    """Count what a member is given; False when that was so much that it has to wait."""
    one = turn.group(name).peers[member].conduct
    passed = turn.now - one.given_at if turn.now >= one.given_at else 1_000  # a clock may have been set back
    room = min(GIVEN_MAX, one.given + passed * GIVEN_PER_S // 1000)
    if room < size:
        return False
    turn.edit_peer(name, member, conduct=replace(one, given=room - size, given_at=turn.now))
    return True


def read(turn: Turn, found: PartsRead) -> None:
    """The parts have been read: send them to whoever has asked. None: they are not there as they should be."""
    group = turn.agent.groups.get(found.group)
    if group is None or not _can_hear(turn, group, found.member):
        return
    if not found.parts:
        download.failed(turn, group.id, found.file, "")
        _say_absent(turn, group.id, found.member, found.file)
        return
    for number, (data, path) in enumerate(found.parts, found.first):
        body = {"file": found.file, "part": number, "data": b64url(data), "path": [b64url(each) for each in path]}
        _say(turn, group.id, found.member, FILE_PART, body)


def _can_hear(turn: Turn, group: Group, member: str) -> bool:
    relationship = group.relationships.get(member)
    return (
        member in group.view.members
        and relationship is not None
        and relationship.established
        and mediator_mail.reachable(turn, group.id, member)
    )


def _say_absent(turn: Turn, name: str, member: str, key: str) -> None:
    """It is not here; where it may come yet, whoever has asked is told then (`getting.tell`)."""
    one = turn.group(name).files.get(key)
    if one is not None and member not in one.asked_by:
        members = turn.group(name).view.members
        still = tuple(did for did in one.asked_by if did in members)
        catalogue.edit(turn, name, key, asked_by=(*still, member))
    _say_lack(turn, name, member, key, "absent")


def _say_lack(turn: Turn, name: str, member: str, key: str, why: str) -> None:
    if _can_hear(turn, turn.group(name), member):
        _say(turn, name, member, FILE_LACK, {"file": key, "why": why})


def _say(turn: Turn, name: str, member: str, kind: str, body: dict[str, object]) -> None:
    message = Message(type=kind, id=new_id(turn.moment.random), body={"group": name, **body})
    relationship = turn.group(name).relationships[member]
    mediator_mail.send(turn, name, member, pack(relationship, message, turn.packer_of(name), turn.moment.random))


def hear_have(turn: Turn, name: str, member: str, body: FileHaveBody) -> None:
    """A member has some of the files that were posted."""
    group = turn.group(name)
    if body.group != name or member not in group.view.members:
        raise Refused(why="files of another group, or of somebody who is not a member")
    for key in body.files:
        if key in turn.group(name).files:
            download.has(turn, name, key, member)
