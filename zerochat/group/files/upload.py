"""Uploads: parts of files for members of the group in which they were posted, rate limited per member."""

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import ReadParts
from zerochat.group.files import catalogue, download
from zerochat.group.files.hash_tree import PART_BYTES
from zerochat.group.inputs import PartsRead
from zerochat.group.links import content_keys, mediator_mail, outbox
from zerochat.group.state import Group
from zerochat.group.transaction import Transaction
from zerochat.group.wire.files import FILE_PART, FILE_UNAVAILABLE, FileRequestBody, FilesAvailableBody

UPLOAD_BYTES_PER_S, UPLOAD_BYTES_MAX = 8 << 20, 8 << 20
"""Sustained rate and burst for one member, separate from the rate limit of what it sends: a member that downloads a
large file can still chat."""
STEP_PARTS_MAX = 4
"""Parts that are encrypted in one step, some two milliseconds, so that other members wait for no more."""

MAIL_BYTES_PER_S, MAIL_BYTES_MAX = 64 * 1024, 1 << 20
"""The same for a member that is reached over a mediator, whose storage is shared."""


def receive_request(tx: Transaction, name: str, member: str, body: FileRequestBody) -> None:
    """A member requests parts of a file. Raises RemoteError."""
    group = tx.group(name)
    if body.group != name or member not in group.view.members or member in group.trust.quarantine:
        raise Refused(why="a file request for another group, or by a non-member")
    content_keys.record(tx, name, member, body.content_key)
    one = group.files.get(body.file)
    if one is None or one.state != "here":
        _reply_absent(tx, name, member, body.file)
        return
    if body.first + body.count > one.file.parts:
        raise Malformed(why="file-request: more parts than the file has")
    if not _spend_upload(tx, name, member, body.count * PART_BYTES):
        _send_unavailable(tx, name, member, body.file, "busy")
        return
    if member in one.waiting_members:  # it knows that the file is available
        catalogue.update_file(
            tx, name, body.file, waiting_members=tuple(did for did in one.waiting_members if did != member)
        )
    end = body.first + body.count
    for first in range(body.first, end, STEP_PARTS_MAX):
        tx.emit(ReadParts(name, member, body.file, one.file.size, first, min(STEP_PARTS_MAX, end - first)))


def _spend_upload(tx: Transaction, name: str, member: str, size: int) -> bool:
    """Count bytes sent to a member; False when it exceeds its rate limit."""
    one = tx.peer(name, member).rate_limit
    by_mail = mediator_mail.goes_by_mail(tx, name, member)
    per_s, most = (MAIL_BYTES_PER_S, MAIL_BYTES_MAX) if by_mail else (UPLOAD_BYTES_PER_S, UPLOAD_BYTES_MAX)
    passed = tx.now - one.given_at if tx.now >= one.given_at else 1_000  # a clock may have been set back
    room = min(most, one.given + passed * per_s // 1000)
    if room < size:
        return False
    tx.update_peer(name, member, rate_limit=replace(one, given=room - size, given_at=tx.now))
    return True


def send_parts(tx: Transaction, found: PartsRead) -> None:
    """The parts were read from disk: send them to the requester. None: they are missing or corrupt."""
    group = tx.agent.groups.get(found.group)
    if group is None or not _can_send(tx, group, found.member):
        return
    if not found.parts:
        download.handle_failure(tx, group.id, found.file, "")
        _reply_absent(tx, group.id, found.member, found.file)
        return
    for number, (data, path) in enumerate(found.parts, found.first):
        body = {"file": found.file, "part": number, "data": b64url(data), "path": [b64url(each) for each in path]}
        _send(tx, group.id, found.member, FILE_PART, body)


def _can_send(tx: Transaction, group: Group, member: str) -> bool:
    relationship = group.links.relationships.get(member)
    return (
        member in group.view.members
        and relationship is not None
        and relationship.established
        and mediator_mail.reachable(tx, group.id, member)
    )


def _reply_absent(tx: Transaction, name: str, member: str, key: str) -> None:
    """The file is not here; the requester is informed if it becomes available (`download.announce_files`)."""
    one = tx.group(name).files.get(key)
    if one is not None and member not in one.waiting_members:
        members = tx.group(name).view.members
        still = tuple(did for did in one.waiting_members if did in members)
        catalogue.update_file(tx, name, key, waiting_members=(*still, member))
    _send_unavailable(tx, name, member, key, "absent")


def _send_unavailable(tx: Transaction, name: str, member: str, key: str, why: str) -> None:
    if _can_send(tx, tx.group(name), member):
        _send(tx, name, member, FILE_UNAVAILABLE, {"file": key, "reason": why})


def _send(tx: Transaction, name: str, member: str, kind: str, body: dict[str, object]) -> None:
    message = Message(type=kind, id=new_id(tx.context.random), body={"group": name, **body})
    outbox.send_content(tx, name, member, message)


def receive_available(tx: Transaction, name: str, member: str, body: FilesAvailableBody) -> None:
    """A member has some of the posted files."""
    group = tx.group(name)
    if body.group != name or member not in group.view.members:
        raise Refused(why="a file announcement for another group, or by a non-member")
    for key in body.files:
        if key in tx.group(name).files:
            download.add_holder(tx, name, key, member)
