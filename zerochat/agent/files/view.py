"""Files as structs of the control protocol."""

from collections.abc import Mapping

from zerochat.group.event_log.event import POST, Event
from zerochat.group.files.descriptor import File, files_in
from zerochat.group.files.hash_tree import PART_BYTES
from zerochat.group.state import FileEntry, Group
from zerochat.rpc import Author
from zerochat.rpc.common import timestamp
from zerochat.rpc.files import Attachment, FileInfo, FileList

PAGE_FILES = 200
"""Files per answer: with the longest names, fully escaped in JSON, they fit one line."""

Names = Mapping[str, str]


def attachments(group: Group, record: Event, names: Names) -> list[Attachment]:
    """The files of an event."""
    files = files_in(record.body) if record.type == POST else ()
    return [attachment(group, file, group.files.get(file.id), names) for file in files]


def attachment(group: Group, file: File, one: FileEntry | None, names: Names) -> Attachment:
    if one is None:
        return Attachment(id=file.id, name=file.name, size=file.size, type=file.type, of=len(group.others))
    haul = one.download
    asked = haul.member if haul is not None and one.state == "getting" else ""
    lost = one.state == "getting" and group.state != "active"
    return Attachment(
        id=file.id,
        name=file.name,
        size=file.size,
        type=file.type,
        state="offered" if lost else one.state,
        have=file.size if one.state == "here" else min(file.size, one.stored_parts * PART_BYTES),
        from_=Author(asked, names.get(asked, "")) if asked else None,
        holders=sum(did in group.view.members for did in one.holders),
        of=len(group.others),
        fault=one.error,
    )


def file_info(group: Group, file: File, one: FileEntry, names: Names) -> FileInfo:
    return FileInfo(
        group=group.id,
        event=one.event,
        author=Author(one.author, names.get(one.author, "")),
        posted_at=timestamp(one.at),
        file=attachment(group, file, one, names),
    )


def page(group: Group, after: str, names: Names) -> FileList:
    """A page of a group's files, newest first."""
    keys = list(reversed(group.files))
    begin = keys.index(after) + 1 if after in group.files else 0
    chosen = keys[begin : begin + PAGE_FILES]
    found = [file_info(group, group.files[key].file, group.files[key], names) for key in chosen]
    return FileList(found, more=begin + PAGE_FILES < len(keys))
