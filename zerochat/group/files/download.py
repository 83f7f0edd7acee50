"""Getting files: which member is asked for which parts, and what is done with them.

Parts are asked for in their order, a few at a time, of one member for each file: whoever has posted it, then those who
have said that they have it, then everybody else who is there. Each part is checked when it comes; what is on disk
counts, so after a restart it goes on from there. Whoever does not answer, does not have it or sends something else is
passed over for another one. How many parts are asked for at once follows how fast they come, so that on a slow line a
chat message never waits long behind them.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url_bytes
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Refused
from zerochat.group.effects import DropFile, FinishFile, Measure, StoreParts
from zerochat.group.event_log.event import Event
from zerochat.group.files import catalogue
from zerochat.group.files.catalogue import FRESH, edit, want_again
from zerochat.group.files.descriptor import files_in
from zerochat.group.files.hash_tree import leads_to, part_size
from zerochat.group.links import mediator_mail, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.state import Haul, Holding
from zerochat.group.transaction import Turn
from zerochat.group.wire.files import (
    ASK_PARTS_MAX,
    FILE_ASK,
    FILE_HAVE,
    HAVE_FILES_MAX,
    FileLackBody,
    FilePartBody,
)

HAULS_MAX = 3
"""Files of one group that are fetched at the same time."""
SOUGHT_MAX = 32
"""Files for which somebody to ask is looked for at one time."""
WINDOW, WINDOW_MAIL_MAX = 2, 2
"""Parts that are asked for at once, to begin with, and at the most where a mediator has to keep them."""
FAST_MS, SLOW_MS = 400, 1_500
"""Parts that have come within the first are asked for twice as many at once, after the second half as many."""
PATIENCE_MS, PATIENCE_MAIL_MS = 15_000, 120_000
"""How long nothing may come from a member that was asked, before another one is. In the middle of that it is asked once
more, unless over a mediator: a frame may have got lost, and it may be the only one who has the file."""
GAPS, GAPS_MS_MAX = 2, 60_000
"""Nor is anything done about it before so many times the longest that a part was waited for, up to a minute: on a slow
line it is on its way, and asking again would put more before it."""
SPELL_MS, SPELL_PARTS = 30_000, 16
"""Whoever brings fewer parts in so long a time is asked for no more while there is somebody else to ask: a member that
says a little every now and then must not keep a file from us that others have. Where all are as slow, our own line is,
and it stays with the first of them."""
PAUSE_MS = 30_000
"""When all who are there were asked in vain, they are asked again after this."""
REVIVED_MAX = 3
"""So often a member is believed that it has a file of which everybody, it too, has said that it is not there."""
TOLD_AGAIN_MS, TOLD_AGAIN_MAX = 30_000, 4
"""Whoever was told that a file is not here, and later that it is, and has not asked since, is told so again after this,
then after twice as long each time, and so often at the most: the word may have got lost after it had given up."""
BUSY_MS, BUSY_MAX = 1_000, 20
"""Whoever is too busy is asked again after this, so often at the most; then somebody else is."""
UNSTORED_MAX = 4 * ASK_PARTS_MAX
"""Parts that have come and are not on disk yet; with that many no more are asked for."""
SPOILT_MAX = 3
SPOILT = "This disk does not give its parts back as they were written."
"""Why a file is fetched no more that was not right so often, although each part was when it came."""

# --- asking -----------------------------------------------------------------------------------------------------------


def seek(turn: Turn, name: str) -> None:
    """Ask for whatever is wanted and nobody brings now."""
    if turn.group(name).state != "active":
        return
    for key, one in list(turn.group(name).files.items()):
        if one.haul is not None and one.haul.until <= turn.now:
            _remind(turn, name, key, one.haul)
    files = turn.group(name).files
    room = HAULS_MAX - sum(one.haul is not None for one in files.values())
    wanted = [key for key, one in files.items() if one.state == "getting" and one.haul is None and not one.fault]
    # What a person wants comes first, and what several were asked for in vain does not keep the rest waiting.
    for key in sorted(wanted, key=lambda key: (files[key].auto, len(files[key].tried)))[:SOUGHT_MAX]:
        if room <= 0:
            break
        _begin(turn, name, key)
        room -= turn.group(name).files[key].haul is not None
    waits = [each.haul.until - turn.now for each in turn.group(name).files.values() if each.haul is not None]
    idle = any(one.state == "getting" and one.haul is None for one in turn.group(name).files.values())
    if waits or idle:
        turn.timer("file", name, max(1, min([*waits, PAUSE_MS])))


def _remind(turn: Turn, name: str, key: str, haul: Haul) -> None:
    """Nothing has come for so long: ask once more, or somebody else."""
    if haul.reminded or not _free(turn, name, haul.member) or mediator_mail.by_mail(turn, name, haul.member):
        _pass_over(turn, name, key)
        return
    ask_on(turn, name, key, replace(haul, upto=haul.next, window=1, until=due_at(turn, name, haul), reminded=True))


def due_at(turn: Turn, name: str, haul: Haul) -> int:
    """When something is done about it if nothing comes from now on, UTC ms."""
    if mediator_mail.by_mail(turn, name, haul.member):
        return turn.now + PATIENCE_MAIL_MS
    return turn.now + max(PATIENCE_MS // 2, min(GAPS * haul.gap, GAPS_MS_MAX))


def _begin(turn: Turn, name: str, key: str) -> None:
    """Ask somebody for a file, from the first part on that is not here."""
    group = turn.group(name)
    one = group.files[key]
    if one.have >= one.file.parts:
        turn.say(FinishFile(name, key, one.file.root, one.file.size))
        edit(turn, name, key, haul=Haul("", one.file.parts, one.file.parts, 0, turn.now + PATIENCE_MAIL_MS, turn.now))
        return
    whom = _whom(turn, name, one)
    if whom is None:
        everybody = {did for did in group.others if did not in one.liars}
        if everybody <= {*one.absent}:
            edit(turn, name, key, state="gone", tried=(), absent=())
        elif one.tried:
            edit(turn, name, key, tried=one.absent)  # whoever was silent is asked again, after the pause
        return
    haul = Haul(whom, one.have, one.have, WINDOW, 0, turn.now, since=turn.now, first=one.have, came=turn.now)
    ask_on(turn, name, key, haul)


def _whom(turn: Turn, name: str, one: Holding) -> str | None:
    """Whom to ask next: its author, those who have said that they have it, then anybody; the slow ones last, and over
    mediators."""
    group = turn.group(name)
    rest = sorted(set(group.others) - {one.author, *one.holders})
    able = [
        member
        for member in dict.fromkeys((one.author, *one.holders, *rest))
        if member not in one.tried and member not in one.liars and _free(turn, name, member)
    ]
    quick = [member for member in able if member not in one.slow] or able
    near = [member for member in quick if not mediator_mail.by_mail(turn, name, member)]
    return next(iter(near or quick), None)


def _free(turn: Turn, name: str, member: str) -> bool:
    group = turn.group(name)
    relationship = group.relationships.get(member)
    return (
        member in group.view.members
        and member != group.me
        and member not in group.quarantine
        and relationship is not None
        and relationship.established
        and mediator_mail.reachable(turn, name, member)
    )


def ask_on(turn: Turn, name: str, key: str, haul: Haul) -> None:
    """Ask for the next parts, if so few are on their way that it is time to."""
    one = turn.group(name).files[key]
    count = min(haul.window, one.file.parts - haul.upto)
    unstored = haul.upto - one.have
    if count > 0 and haul.upto - haul.next <= haul.window // 2 and unstored <= UNSTORED_MAX:
        _say(turn, name, haul.member, FILE_ASK, {"file": key, "first": haul.upto, "count": count})
        haul = replace(haul, upto=haul.upto + count, until=due_at(turn, name, haul), asked=turn.now)
    edit(turn, name, key, haul=haul)
    turn.timer("file", name, max(1, haul.until - turn.now), keep=True)


def _say(turn: Turn, name: str, member: str, kind: str, body: dict[str, Any]) -> None:
    message = Message(type=kind, id=new_id(turn.moment.random), body={"group": name, **body})
    relationship = turn.group(name).relationships[member]
    mediator_mail.send(turn, name, member, pack(relationship, message, turn.packer_of(name), turn.moment.random))


def _pass_over(turn: Turn, name: str, key: str, **fields: Any) -> None:
    """Ask somebody else instead of the one that was asked."""
    one = turn.group(name).files[key]
    tried = one.tried
    if one.haul is not None and one.haul.member and one.haul.member not in tried:
        tried = (*tried, one.haul.member)
    edit(turn, name, key, haul=None, tried=tried, **fields)
    turn.timer("file", name, 1)


# --- hearing ----------------------------------------------------------------------------------------------------------


def hear_part(turn: Turn, name: str, member: str, body: FilePartBody, size: int) -> None:
    """A part has come, in an envelope of `size` bytes. Raises RemoteError for what cannot be one of any file that was
    offered here."""
    group = turn.group(name)
    one = group.files.get(body.file)
    if body.group != name or one is None or member not in group.view.members:
        raise Refused(why="a part of a file that nobody has offered")
    haul = one.haul
    if one.state != "getting" or haul is None or haul.member != member:
        return  # we wait for it no more, or for another one to bring it
    data, path = b64url_bytes(body.data), [b64url_bytes(each) for each in body.path]
    root, parts = b64url_bytes(one.file.root), one.file.parts
    fits = body.part < parts and len(data) == part_size(one.file.size, body.part)
    if not fits or not leads_to(root, data, body.part, parts, path):
        turn.say(Measure("dropped", "FalsePart"))
        _pass_over(turn, name, body.file, liars=(*one.liars, member))
        return
    if body.part > haul.next and haul.missed != haul.next:  # one was lost: what follows it has to come again too
        ask_on(turn, name, body.file, replace(haul, upto=haul.next, window=1, missed=haul.next))
    if body.part != haul.next:
        return
    rate_limits.give_back(turn, name, member, size)
    turn.say(StoreParts(name, body.file, one.file.size, body.part, data))
    by_mail, gap = mediator_mail.by_mail(turn, name, member), max(haul.gap, turn.now - haul.came)
    window = _window(haul, turn.now, by_mail) if haul.next + 1 >= haul.upto - haul.window // 2 else haul.window
    haul = replace(haul, next=haul.next + 1, window=window, busy=0, reminded=False, came=turn.now, gap=gap)
    haul = replace(haul, until=due_at(turn, name, haul))
    if haul.next < parts and turn.now - haul.since >= SPELL_MS:
        if _too_slow(turn, name, one, haul):
            edit(turn, name, body.file, haul=None, slow=(*one.slow, member))
            turn.timer("file", name, 1)
            return
        haul = replace(haul, since=turn.now, first=haul.next)
    ask_on(turn, name, body.file, haul)


def _too_slow(turn: Turn, name: str, one: Holding, haul: Haul) -> bool:
    """Whether so little has come in this spell that somebody else is to be asked, where there is somebody."""
    if haul.next - haul.first >= SPELL_PARTS or haul.member in one.slow:
        return False
    other = _whom(turn, name, replace(one, slow=(*one.slow, haul.member)))
    return other is not None and other not in (haul.member, *one.slow)


def _window(haul: Haul, now: int, by_mail: bool) -> int:
    """How many parts to ask for next, as fast as the last ones have come."""
    most = WINDOW_MAIL_MAX if by_mail else ASK_PARTS_MAX
    if now - haul.asked < FAST_MS:
        return min(most, haul.window * 2)
    return max(1, haul.window // 2) if now - haul.asked > SLOW_MS else min(most, haul.window)


def hear_lack(turn: Turn, name: str, member: str, body: FileLackBody) -> None:
    """A member that we have asked cannot give it."""
    one = turn.group(name).files.get(body.file)
    if body.group != name or one is None:
        raise Refused(why="an answer about a file that nobody has offered")
    if one.haul is None or one.haul.member != member:
        return
    if body.why == "busy" and one.haul.busy < BUSY_MAX:
        until, busy = turn.now + PATIENCE_MS, one.haul.busy + 1
        haul = replace(one.haul, upto=one.haul.next, window=1, until=until, busy=busy, came=turn.now)
        edit(turn, name, body.file, haul=haul)
        turn.timer("busy", f"{name} {body.file}", BUSY_MS)
        return
    absent = one.absent if member in one.absent or body.why == "busy" else (*one.absent, member)
    _pass_over(turn, name, body.file, absent=absent, holders=tuple(did for did in one.holders if did != member))


def again(turn: Turn, name: str, key: str) -> None:
    """Whoever was too busy is asked once more."""
    one = turn.group(name).files.get(key)
    if one is not None and one.state == "getting" and one.haul is not None and one.haul.upto == one.haul.next:
        ask_on(turn, name, key, one.haul)


def came(turn: Turn, name: str, member: str) -> None:
    """A member is there again: it may have what is wanted, and may not know what we have of its files."""
    group = turn.group(name)
    changed = {
        key: replace(one, tried=tuple(did for did in one.tried if did != member))
        for key, one in group.files.items()
        if one.state == "getting" and member in one.tried
    }
    if changed:
        turn.edit(name, files={**group.files, **changed})
    if any(one.state == "getting" and one.haul is None for one in group.files.values()):
        turn.timer("file", name, 1)
    tell(turn, name, member)


def posted(turn: Turn, name: str, event: Event) -> None:
    """A post has come that may name files; of those that were known already, its author is one more who has them."""
    known = turn.group(name).files
    catalogue.posted(turn, name, event)
    for file in files_in(event.body):
        if file.id in known and event.author not in (turn.group(name).me, known[file.id].author):
            has(turn, name, file.id, event.author)


def has(turn: Turn, name: str, key: str, member: str) -> None:
    """A member has this file. Where it has said before that it has not, or has not answered, it is asked again."""
    one = turn.group(name).files[key]
    gone = one.state == "gone"
    if member in one.liars or (gone and one.revived.count(member) >= REVIVED_MAX):
        return
    if member not in one.holders:
        one = edit(turn, name, key, holders=(*one.holders, member))
    if member in one.tried or gone:
        tried, absent = (tuple(did for did in known if did != member) for known in (one.tried, one.absent))
        revived = (*one.revived, member) if gone else one.revived
        one = edit(turn, name, key, tried=tried, absent=absent, revived=revived)
        if gone:
            one = want_again(turn, name, key)
        if one.state == "getting" and one.haul is None:
            turn.timer("file", name, 1)


def went(turn: Turn, name: str, member: str) -> None:
    """A member is not there any more: ask others for what it was to bring."""
    for key, one in list(turn.group(name).files.items()):
        if one.haul is not None and one.haul.member == member:
            _pass_over(turn, name, key)


def tell(turn: Turn, name: str, member: str | None = None) -> None:
    """Tell whoever has asked for files when they were not here which of them are (or this one member, if it has); and
    whoever has posted some, of the last ones."""
    missed: dict[str, list[str]] = {}
    own: dict[str, list[str]] = {}
    for key, one in turn.group(name).files.items():
        for did in _told_of(one) if one.state == "here" else ():
            if member in (None, did):
                (missed if did in one.asked_by else own).setdefault(did, []).append(key)
    for did in dict.fromkeys((*missed, *own)):
        keys = [*missed.get(did, ()), *own.get(did, ())[-HAVE_FILES_MAX:]]
        for start in range(0, len(keys), HAVE_FILES_MAX):
            _say_have(turn, name, did, keys[start : start + HAVE_FILES_MAX])


def _told_of(one: Holding) -> tuple[str, ...]:
    """Who is to know that it is here."""
    return tuple(dict.fromkeys((one.author, *one.asked_by)))


def _say_have(turn: Turn, name: str, member: str, keys: list[str]) -> None:
    if _free(turn, name, member):
        _say(turn, name, member, FILE_HAVE, {"files": keys})


# --- from our own disk ------------------------------------------------------------------------------------------------


def found_all(turn: Turn, found: Iterable[tuple[str, str, int, bool]]) -> None:
    """We have just started, and this is on disk (`FilesFound`)."""
    here: dict[str, dict[str, tuple[int, bool]]] = {}
    for name, key, have, is_whole in found:
        known = here.setdefault(name, {})
        if is_whole or key not in known:
            known[key] = have, is_whole
    for name in turn.agent.groups:
        _found(turn, name, here.pop(name, {}))
    for name, keys in here.items():
        turn.say(*(DropFile(name, key) for key in keys))


def _found(turn: Turn, name: str, here: dict[str, tuple[int, bool]]) -> None:
    """How many parts of each file are on disk, and whether it is whole. What is not there any more, because the profile
    was restored from a backup, say, can be asked for again."""
    group = turn.group(name)
    files = {}
    for key, one in group.files.items():
        have, is_whole = here.get(key, (0, False))
        state = "here" if is_whole else one.state if one.state != "here" else "offered"
        have = one.file.parts if is_whole else min(have, one.file.parts) if state == "getting" else 0
        files[key] = replace(one, state=state, have=have, haul=None, tried=(), absent=(), fault="")
    if files != group.files:
        turn.edit(name, files=files)
    for key, (_, is_whole) in here.items():
        if key not in files or (not is_whole and files[key].state != "getting"):
            turn.say(DropFile(name, key))
    if any(one.state == "getting" for one in files.values()):
        turn.timer("file", name, 1)
    tell(turn, name)


def stored(turn: Turn, name: str, key: str, upto: int) -> None:
    """The parts before this one are on disk."""
    group = turn.group(name)
    one = group.files.get(key)
    if one is None or one.state != "getting":
        return
    one = edit(turn, name, key, have=max(one.have, min(upto, one.file.parts)))
    if one.have >= one.file.parts:
        _begin(turn, name, key)
    elif one.haul is not None:
        ask_on(turn, name, key, one.haul)


def whole(turn: Turn, name: str, key: str) -> None:
    """All of it is here, and has the hash that it must have."""
    group = turn.group(name)
    one = group.files.get(key)
    if one is None or one.state != "getting" or one.have < one.file.parts:  # it was dropped meanwhile
        return
    edit(turn, name, key, state="here", **FRESH)
    for member in _told_of(one):
        _say_have(turn, name, member, [key])
    if one.asked_by:
        turn.timer("told", f"{name} {key} 1", TOLD_AGAIN_MS)
    turn.timer("file", name, 1)


def tell_again(turn: Turn, name: str, key: str, attempt: int) -> None:
    """Whoever has asked for a file when it was not here, and not since, is told again that it is. `attempt`: from 1."""
    one = turn.group(name).files.get(key)
    if one is None or one.state != "here" or not one.asked_by:
        return
    for member in one.asked_by:
        _say_have(turn, name, member, [key])
    if attempt < TOLD_AGAIN_MAX:
        turn.timer("told", f"{name} {key} {attempt + 1}", TOLD_AGAIN_MS << attempt)


def failed(turn: Turn, name: str, key: str, why: str) -> None:
    """Our own disk does not take it, or does not give it back as it was: nothing more is asked for until somebody here
    wants it again. `why` is empty where what was on disk is not what it must be: then it is fetched anew."""
    group = turn.group(name)
    one = group.files.get(key)
    if one is None or one.state == "gone":
        return
    if why:
        if one.state == "getting":
            edit(turn, name, key, haul=None, fault=why)
        return
    turn.say(DropFile(name, key))
    wanted, spoilt = one.state == "getting", one.spoilt + 1
    fault = SPOILT if wanted and spoilt >= SPOILT_MAX else ""
    state = "getting" if wanted else "offered"
    edit(turn, name, key, have=0, haul=None, tried=(), state=state, spoilt=spoilt, fault=fault)
    if wanted:
        turn.timer("file", name, PAUSE_MS)
