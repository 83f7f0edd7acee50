"""Which files there are, which are kept here, and how much room they may take.

Whatever others offer costs a line in a list of bounded length; room on the disk is given by a person's settings alone.
What comes by itself takes no more than a part of that.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from zerochat.errors import LocalError
from zerochat.group.effects import DropFile, Notify
from zerochat.group.event_log.event import Event
from zerochat.group.files.descriptor import File, files_in
from zerochat.group.notifications import FileMoved
from zerochat.group.state import Agent, Group, Holding
from zerochat.group.transaction import Turn

OFFERED_MAX = 1024
"""Files of one group that are known and not here; then the oldest are not listed any more. Their posts stay."""
KEPT_MAX = 4096
"""Files of one group that are here or fetched, however small."""
AUTO_SHARE = 4
"""What comes by itself never takes more than this part of what may be here, in bytes and in number, so that nobody can
fill it up."""
FRESH: Mapping[str, Any] = {
    "haul": None,
    "tried": (),
    "absent": (),
    "slow": (),
    "revived": (),
    "fault": "",
    "spoilt": 0,
}
"""What is known of the fetching of a file of which nobody was asked for anything."""
_CHARGE_BYTES = 64 * 1024
"""What the smallest file counts for."""


class FileTooLarge(LocalError):
    """{name} has {size} bytes, and at most {limit} are taken here (`[files] size_max` in the settings)."""


class NoRoomForFile(LocalError):
    """{name} does not fit: the files that are here have {used} bytes of {limit} (`[files] total_max` in the settings).
    Remove one first: `zerochat files drop GROUP FILE`."""


class TooManyFiles(LocalError):
    """There are {limit} files of this group here already. Remove one first: `zerochat files drop GROUP FILE`."""


class MayNotSend(LocalError):
    """You only read in {group}, so you cannot send files there. `zerochat role {group} writer` changes that, where it
    is yours to decide."""


class NoSuchFile(LocalError):
    """There is no file {file} in this group. `zerochat files list GROUP` shows those that there are."""


# --- what there is --------------------------------------------------------------------------------------------------


def used(agent: Agent, *, auto: bool = False) -> int:
    """The bytes of all files that are here or fetched; `auto`: of those that come by themselves."""
    kept = (one for group in agent.groups.values() for one in group.files.values() if _kept(one))
    return sum(max(one.file.size, _CHARGE_BYTES) for one in kept if one.auto or not auto)


def _kept(one: Holding) -> bool:
    return one.state in ("getting", "here") or one.have > 0


def check_room(agent: Agent, group: Group, files: Sequence[File]) -> None:
    """Raise FileTooLarge, NoRoomForFile or TooManyFiles unless these can be here as well."""
    rules = agent.file_rules
    more = [file for file in files if (known := group.files.get(file.id)) is None or not _kept(known)]
    for file in more:
        if file.size > rules.size_max:
            raise FileTooLarge(name=ascii(file.name), size=file.size, limit=rules.size_max)
    here = used(agent)
    if more and here + sum(max(file.size, _CHARGE_BYTES) for file in more) > rules.total_max:
        raise NoRoomForFile(name=ascii(more[0].name), used=here, limit=rules.total_max)
    if more and sum(map(_kept, group.files.values())) + len(more) > KEPT_MAX:
        raise TooManyFiles(limit=KEPT_MAX)


def posted(turn: Turn, name: str, event: Event) -> None:
    """A post has come that may name files: know them, and get those that are small."""
    group, named = turn.group(name), files_in(event.body)
    fresh = {file.id: Holding(file, event.author, event.id, turn.now) for file in named if file.id not in group.files}
    if not fresh:
        return
    # What is named once more does not go to make room for what is named with it.
    again = {file.id: group.files[file.id] for file in named if file.id not in fresh}
    rest = {key: one for key, one in group.files.items() if key not in again}
    turn.edit(name, files=_pruned({**rest, **again, **fresh}))
    if event.author == group.me:
        return
    for key in fresh:
        if (one := turn.group(name).files.get(key)) is not None and _comes_by_itself(turn, name, one):
            edit(turn, name, key, state="getting", auto=True)
            turn.timer("file", name, 1, keep=True)


def _pruned(files: dict[str, Holding]) -> dict[str, Holding]:
    """Without the oldest of those that are only offered, where there are too many."""
    offered = [key for key, one in files.items() if not _kept(one)]
    if len(offered) <= OFFERED_MAX:
        return files
    gone = set(offered[: len(offered) - OFFERED_MAX])
    return {key: one for key, one in files.items() if key not in gone}


def _comes_by_itself(turn: Turn, name: str, one: Holding) -> bool:
    """Whether what nobody here has asked for is fetched."""
    group, rules = turn.group(name), turn.agent.file_rules
    if one.file.size > min(rules.auto_max, rules.size_max):
        return False
    if sum(other.auto and _kept(other) for other in group.files.values()) >= KEPT_MAX // AUTO_SHARE:
        return False
    if not _has_room(turn, name, one):
        return False
    return used(turn.agent, auto=True) + max(one.file.size, _CHARGE_BYTES) <= rules.total_max // AUTO_SHARE


def edit(turn: Turn, name: str, key: str, **fields: Any) -> Holding:
    """Change what is known of one file, and say so."""
    group = turn.group(name)
    one = replace(group.files[key], **fields)
    turn.edit(name, files={**group.files, key: one})
    turn.say(Notify(FileMoved(name, key)))
    return one


# --- what a person wants --------------------------------------------------------------------------------------------


def get(turn: Turn, group: Group, file: File, author: str, event: str) -> None:
    """Somebody here wants this file. Raises FileTooLarge, NoRoomForFile or TooManyFiles."""
    known = group.files.get(file.id)
    if known is None:
        known = Holding(file, author, event, turn.now)
        turn.edit(group.id, files=_pruned({**group.files, file.id: known}))
    if known.state in ("here", "getting") and not known.fault:
        edit(turn, group.id, file.id, auto=False)
        return
    check_room(turn.agent, turn.group(group.id), [file])
    edit(turn, group.id, file.id, state="getting", liars=(), auto=False, **FRESH)
    turn.timer("file", group.id, 1)


def want_again(turn: Turn, name: str, key: str) -> Holding:
    """What nobody had any more somebody has now. Whoever has wanted it here still does, where there is room."""
    one = turn.group(name).files[key]
    comes = _comes_by_itself(turn, name, one) if one.auto else _has_room(turn, name, one)
    return edit(turn, name, key, state="getting" if comes else "offered")


def _has_room(turn: Turn, name: str, one: Holding) -> bool:
    try:
        check_room(turn.agent, turn.group(name), [one.file])
    except LocalError:
        return False
    return True


def drop(turn: Turn, group: Group, key: str) -> None:
    """Have this file here no more; it can be asked for again. Raises NoSuchFile."""
    if key not in group.files:
        raise NoSuchFile(file=ascii(key[:64]))
    edit(turn, group.id, key, state="offered", have=0, haul=None, tried=(), absent=(), fault="", auto=False)
    turn.say(DropFile(group.id, key))


def deleted(turn: Turn, name: str, author: str, post: str) -> None:
    """Somebody has taken a post back: what came with it is not kept, nor given to anybody."""
    for key, one in list(turn.group(name).files.items()):
        if (one.event, one.author) == (post, author):
            drop(turn, turn.group(name), key)
            files = turn.group(name).files
            turn.edit(name, files={each: other for each, other in files.items() if each != key})


def said_deleted(turn: Turn, name: str, author: str, post: str, seq: int) -> None:
    """Somebody else hands over that the author has taken a post back, in place `seq` of its chain. What is dropped is
    gone, so that waits for the author's own word (`confirmed`)."""
    for key, one in turn.group(name).files.items():
        if (one.event, one.author, one.taken_back) == (post, author, 0):
            edit(turn, name, key, taken_back=seq)


def confirmed(turn: Turn, name: str, author: str, after: int, upto: int) -> None:
    """What others have handed over of this chain, after place `after` up to `upto`, is its author's own word."""
    for post in _said_deleted(turn.group(name), author, after, upto).values():
        deleted(turn, name, author, post)


def refuted(turn: Turn, name: str, author: str, after: int, upto: int) -> None:
    """It is not, or that cannot be told."""
    for key in _said_deleted(turn.group(name), author, after, upto):
        edit(turn, name, key, taken_back=0)


def _said_deleted(group: Group, author: str, after: int, upto: int) -> dict[str, str]:
    """The files whose posts are taken back in this stretch of a chain, with the ids of the posts."""
    files = group.files.items()
    return {key: one.event for key, one in files if one.author == author and after < one.taken_back <= upto}


def attached(turn: Turn, group: Group, event: str, files: Sequence[File]) -> None:
    """A post of ours names these files, which are on disk."""
    now = {
        file.id: Holding(file, group.me, event, turn.now, state="here", have=file.parts)
        if (known := group.files.get(file.id)) is None or known.author == group.me
        else replace(known, state="here", have=file.parts, haul=None, fault="")
        for file in files
    }
    turn.edit(group.id, files={**turn.group(group.id).files, **now})
