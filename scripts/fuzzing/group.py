"""Fuzz targets of a group: event records, runs, bodies, frames, reconciliation, and a member that receives all of it.

The group is a real one, with real envelopes, founded in the simulator; it is the same at every start.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from fuzzing.nodes import Array, Object, Part, as_text, dissect, utf8
from fuzzing.people import dice
from fuzzing.run import SLOW_NS, Form
from zerochat.agent.files.saving import safe_name
from zerochat.crypto.compression import compress
from zerochat.crypto.content_encryption import xc20p_seal
from zerochat.crypto.encoding import b64url, compact_json
from zerochat.crypto.primitives import sha256
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import resolve, short_form
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message, dump, parse
from zerochat.errors import Malformed, RemoteError
from zerochat.group.effects import (
    CommandDone,
    Effect,
    GroupCreated,
    InvitationCreated,
    Posted,
    Publish,
    SendEnvelope,
    SetTimer,
)
from zerochat.group.engine import step
from zerochat.group.event_log import tree_signature
from zerochat.group.event_log.event import (
    ADD,
    GENESIS,
    LABEL,
    LEAVE,
    POST,
    REMOVE,
    ROLE,
    UPGRADE,
    VOTE,
    Event,
    foreign_event,
)
from zerochat.group.files.descriptor import File, files_in
from zerochat.group.files.hash_tree import PART_BYTES, leaf, levels_over, path_in
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    CommandInput,
    CreateGroup,
    CreateInvitation,
    DownloadFile,
    Received,
    SendPost,
    StepContext,
    TimerFired,
)
from zerochat.group.links.relationship import Relationship
from zerochat.group.membership import (
    add_of,
    check_control,
    genesis_of,
    label_of,
    leave_of,
    remove_of,
    resolve_view,
    role_of,
    upgrade_of,
    vote_of,
)
from zerochat.group.membership.bot_announcement import Announcement, BotCommand
from zerochat.group.messages.bodies import Content, Delete, Edit, Pins, Post, React, Topic, content_of, target_of
from zerochat.group.messages.current import Annotation, CurrentMessage, current_message
from zerochat.group.settings import Indicators
from zerochat.group.state import Agent, Group
from zerochat.group.state.sync import PullRequest
from zerochat.group.sync.negentropy import Items, initial_message, process_response, respond
from zerochat.group.wire import files, frame, messages
from zerochat.group.wire.event_runs import Run, decompress_runs, read_runs, runs_of, write_runs
from zerochat.group.wire.padding import CONTENT_BYTES_MAX
from zerochat.group.wire.pair_keys import key_to
from zerochat.sim import Faults, Node, World

NOW = 1_750_000_400_000
_THREAD = "asked"
"""The ranges that were requested from the other member."""
_PACKER = PACKERS["didcomm/v2"]
_PARTS = tuple(bytes([number]) * PART_BYTES for number in range(5))
"""The content of a file that one member has posted and this one downloads."""
_LEVELS = levels_over([leaf(part) for part in _PARTS])
_FILE = File(b64url(_LEVELS[-1][0]), len(_PARTS) * PART_BYTES, "map.png", "image/png")


class _Listening(World):
    """A world that records all messages."""

    def __init__(self, keys: str) -> None:
        self.said: list[tuple[str, bytes]] = []
        super().__init__(1, 3, Faults(loss=0, duplication=0, delay_ms_max=5), "didcomm/v2")
        self.keys = keys

    def _perform(self, node: Node, effect: Effect) -> None:
        if isinstance(effect, SendEnvelope | Publish):
            self.said.append((node.name, effect.envelope))
        super()._perform(node, effect)


@dataclass(frozen=True)
class Place:
    """A group of three as one of them has it, with the messages of the other two."""

    agent: Agent
    group: Group
    sender: str
    """The sending member."""
    theirs: Relationship
    """Its end of the relationship with us."""
    mine: Relationship
    link: bytes
    bodies: tuple[Message, ...]
    """Messages of every kind."""
    seeds: Mapping[str, bytes]
    """The signing keys of the members."""
    records: tuple[bytes, ...]
    """The whole log of the group."""


@cache
def place(keys: str = "pairwise-multi") -> Place:
    """The same at every start."""
    world = _Listening(keys)
    founded = world.run_command("n0", CreateGroup("friends", "n0", "didcomm/v2", keys))
    assert isinstance(founded, CommandDone)
    assert isinstance(founded.result, GroupCreated)
    name = founded.result.group
    for newcomer in ("n1", "n2"):
        invited = world.run_command("n0", CreateInvitation(name, 3600, 1))
        assert isinstance(invited, CommandDone) and isinstance(invited.result, InvitationCreated)
        world.run_command(newcomer, AcceptInvitation(invited.result.invitation, newcomer))
        world.run(for_ms=70_000)
    for number in range(12):
        world.run_command(f"n{number % 3}", SendPost(name, f"message number {number} of some"))
        world.run(for_ms=3_000)
    posted = world.run_command("n1", SendPost(name, "look", files=(_FILE,)))
    assert isinstance(posted, CommandDone) and isinstance(posted.result, Posted)
    world.run(for_ms=3_000)
    world.run_command("n1", ChangeLabel(name, "one"))
    world.run(for_ms=120_000)
    groups = {node: world.group(node) for node in world.nodes}
    ours, other = groups["n0"], groups["n1"]
    mine, theirs = ours.links.relationships[other.me], other.links.relationships[ours.me]
    logs = sorted({row.record for row in world.nodes["n0"].log})
    agent = world.nodes["n0"].agent
    everything = tuple((author, 0, 2**53 - 1) for author in ours.view.members)
    errand = PullRequest(_THREAD, everything, NOW + 60_000, pages=8)
    ours = replace(ours, files={}, sync=replace(ours.sync, pull_requests={other.me: errand}))
    moment = StepContext(world.now, dice("files"))
    wanted = CommandInput(0, DownloadFile(name, _FILE, other.me, posted.result.id))
    agent, effects = step(replace(agent, groups={name: ours}, indicators=Indicators(True, True)), wanted, moment)
    for timer in [effect.key for effect in effects if isinstance(effect, SetTimer)]:
        agent, _ = step(agent, TimerFired(timer), moment)
    ours = agent.groups[name]
    return Place(
        agent,
        ours,
        other.me,
        theirs,
        mine,
        ours.links.peers[other.me].link,
        tuple(_messages(world, groups, name)),
        {group.me: group.seed for group in groups.values()},
        tuple(logs),
    )


def _messages(world: _Listening, groups: Mapping[str, Group], name: str) -> list[Message]:
    """One or two messages of every kind as they were sent, and some extra ones."""
    kinds: dict[str, list[Message]] = {}
    for speaker, envelope in world.said:
        for hearer, group in groups.items():
            relationship = group.links.relationships.get(groups[speaker].me)
            if hearer == speaker or relationship is None:
                continue
            try:
                _, message = group.mode.open(group.own_place, envelope, relationship, _PACKER)
            except RemoteError:
                continue
            alike = kinds.setdefault(message.type, [])
            if len(alike) < 3 or len(dump(message)) > max(len(dump(each)) for each in alike):
                alike.append(message)
    me, other = groups["n0"].me, groups["n1"].me
    events = sorted(groups["n1"].control.values(), key=lambda event: event.lamport)
    posts = [foreign_event(row.record) for row in world.nodes["n1"].log if b'"type":"post"' in row.record]
    runs = write_runs([event for event in posts if event.author == other])
    together = _signed_together([event for event in posts if event.author == other], groups["n1"].seed)
    made: list[tuple[str, dict[str, Any]]] = [
        (
            messages.HISTORY_REQUEST,
            {"group": name, "want": [[other, 0, 5], [me, 1, 9]], "limit": 64, "back": True, "pages": 2},
        ),
        (messages.HISTORY_RESPONSE, {"group": name, "more": True, "runs": runs}),
        (messages.HISTORY_RESPONSE, {"group": name, "more": True, "packed": _packed(runs), "page": 1}),
        (messages.RECONCILE, {"group": name, "since": 0, "message": b64url(initial_message(_items()))}),
        (messages.FORK_PROOF, {"group": name, "runs": write_runs(events)}),
        (
            messages.ACK_SETS,
            {"group": name, "view": groups["n0"].view.checksum, "have": [], "ack_sets": [[1, 5, "Bw"], [0, 7, ""]]},
        ),
        (messages.MEMBER_CONNECTIONS, {"group": name, "connected": 1, "members": 2}),
        (messages.JOIN_PENDING, {"group": name, "until": NOW}),
        (messages.WELCOME, {"group": name, "since": 0, "part": 0, "parts": 1, "runs": write_runs(events)}),
        (messages.PROBLEM, {"code": "e.p.req.time", "comment": "too late"}),
        (messages.EVENTS, {"view": "", "have": [1, 2, 3], "packed": _packed(runs)}),
        (messages.EVENTS, {"view": "", "have": [1, 2, 3], "runs": write_runs(together)}),
        (messages.HISTORY_RESPONSE, {"group": name, "more": True, "runs": write_runs([*together[:1], *together[2:]])}),
        (files.FILE_REQUEST, {"group": name, "file": _FILE.id, "first": 1, "count": 3}),
        (files.FILE_PART, _part(name, 0)),
        (files.FILE_PART, _part(name, 4)),
        (files.FILE_UNAVAILABLE, {"group": name, "file": _FILE.id, "why": "busy"}),
        (files.FILES_AVAILABLE, {"group": name, "files": [_FILE.id]}),
        (messages.TYPING, {"group": name}),
        (messages.READ, {"group": name, "upto": 9}),
    ]
    found = [message for alike in kinds.values() for message in alike[-2:]]
    return found + [
        Message(type=kind, id=f"made-{number}", body=body, thid=_THREAD) for number, (kind, body) in enumerate(made)
    ]


def _part(group: str, number: int) -> dict[str, Any]:
    path = [b64url(node) for node in path_in(_LEVELS, number)]
    return {"group": group, "file": _FILE.id, "part": number, "data": b64url(_PARTS[number]), "path": path}


def _packed(value: object) -> str:
    return b64url(compress(compact_json(value)))


def _items() -> Items:
    random = Random("items")
    return Items(sorted((random.randrange(1, 400), random.randbytes(32)) for _ in range(300)))


# --- events ---------------------------------------------------------------------------------------------------------


class Events:
    """Event records as in a log or a file, with bodies of membership events and posts."""

    name = "event"
    form: Form = "text"
    size_max = 96 * 1024

    _READERS: Mapping[str, Callable[[Event], object]] = {
        GENESIS: genesis_of,
        ADD: add_of,
        LEAVE: leave_of,
        REMOVE: remove_of,
        VOTE: vote_of,
        ROLE: role_of,
        LABEL: label_of,
        UPGRADE: upgrade_of,
    }

    def seeds(self) -> list[bytes]:
        here = place()
        control = [event for event in here.group.control.values() if event.author == here.sender]
        last = max(control, key=lambda event: event.seq)
        me, seed = here.group.me, here.seeds[here.sender]
        bodies: dict[str, dict[str, Any]] = {
            REMOVE: {"member": me, "after": 3},
            VOTE: {"member": me},
            ROLE: {"member": me, "role": "reader", "after": 5},
            LEAVE: {},
            UPGRADE: {"keys": "dcgka", "final": False},
        }
        deeds = [
            replace(
                _bare(last),
                type=kind,
                seq=last.seq + 1,
                lamport=last.lamport + 1,
                pre=last.id,
                deps=(last.id,),
                body=body,
            ).signed(seed)
            for kind, body in bodies.items()
        ]
        of = _POSTED.id
        said: list[Content] = [Edit(of, "other"), Delete(of), React(of, "👍🏽"), React(of, "❤️", False), Topic("hikes")]
        said += [Post("yes", of, True, (me, here.sender)), Post("look", files=(_FILE, replace(_FILE, size=7)))]
        said += [Pins((of,))]
        said += [Announcement(True, (BotCommand("deploy", "ENV [--dry]", "Brings it out.", "admin"), BotCommand("c2")))]
        sayings = [
            replace(_bare(last), type=one.kind, seq=last.seq + 1, pre=last.id, body=one.body, sig="") for one in said
        ]
        sayings += _signed_together(sayings[:5], seed)
        return [
            *(event.record for event in here.group.control.values()),
            *here.records[-3:],
            *(d.record for d in (*deeds, *sayings)),
        ]

    def seal(self, tree: Part, dice: Random) -> Part:
        """Mostly signed by its author again."""
        if dice.random() < 0.3 or not isinstance(tree, Object):
            return tree
        try:
            event = foreign_event(utf8(as_text(tree)))
            seed = place().seeds[event.author]
            if dice.random() < 0.3 and not event.is_control:
                return tree.put("sig", dice.choice(_signed_together([event] * dice.randint(2, 9), seed)).sig)
            return tree.put("sig", event.signed(seed).sig)
        except (RemoteError, KeyError):
            return tree

    def parse(self, data: bytes) -> object:
        """It is written again as in the log, and no other id fits its content."""
        event = foreign_event(data)
        again = foreign_event(event.record)
        assert (again, again.id, again.record) == (event, event.id, event.record)
        (heard,) = read_runs(event.group, _runs([event]))
        assert (heard.id, heard.record) == (event.id, event.record)
        if event.is_control:
            self._READERS[event.type](event)
            event.check_signature()
            control = place().group.control
            if event.id not in control:
                check_control(event, control)
                resolve_view({**control, event.id: event})
        else:
            said = content_of(event)
            assert content_of(replace(_bare(event), type=said.kind, body=said.body)) == said
            for file in files_in(event.body):
                assert files_in({"files": [file.body()]}) == (file,) and safe_name(file.name)
            about = target_of(event)
            found = current_message(place().group.view, _POSTED, [Annotation(event)])
            assert found == CurrentMessage() or about == _POSTED.id
        return event


_POSTED = Event("g" * 43, POST, "did:key:z6Mk" + "a" * 44, 1, "", (), (), 1, 1, {"text": "hello"})
"""The annotations among the events."""


def _signed_together(events: list[Event], seed: bytes) -> list[Event]:
    """These events under one signature."""
    leaves = tree_signature.sign(seed, [event.id for event in events])
    return [event.with_signature(*signed) for event, signed in zip(events, leaves, strict=True)]


def _bare(event: Event) -> Event:
    """The same without cached values."""
    return replace(event)


def _runs(events: list[Event]) -> list[Run]:
    return msgspec.convert(write_runs(events), list[Run])


# --- messages -------------------------------------------------------------------------------------------------------

_SHAPES: Mapping[str, type[msgspec.Struct]] = {
    messages.EVENTS: messages.EventsBody,
    messages.STATUS: messages.StatusBody,
    messages.SYNC: messages.SyncBody,
    messages.ACK_SETS: messages.AckSetsBody,
    messages.HISTORY_REQUEST: messages.HistoryRequestBody,
    messages.HISTORY_RESPONSE: messages.HistoryResponseBody,
    messages.RECONCILE: messages.ReconcileBody,
    messages.JOIN_REQUEST: messages.JoinRequestBody,
    messages.JOIN_PENDING: messages.PendingBody,
    messages.WELCOME: messages.WelcomeBody,
    messages.MEMBER_CONNECTIONS: messages.MemberConnectionsBody,
    messages.FORK_PROOF: messages.ForkProofBody,
    messages.PROBLEM: messages.ProblemBody,
    files.FILE_REQUEST: files.FileRequestBody,
    files.FILE_PART: files.FilePartBody,
    files.FILE_UNAVAILABLE: files.FileUnavailableBody,
    files.FILES_AVAILABLE: files.FilesAvailableBody,
    messages.TYPING: messages.TypingBody,
    messages.READ: messages.ReadBody,
    messages.PRIVATE_INVITATION: messages.PrivateInvitationBody,
}


class _Said:
    """Messages of a group's members, as plain texts: their runs are compressed where they were, and signed again."""

    size_max = MESSAGE_BYTES_MAX

    def seeds(self) -> list[bytes]:
        """All from the one sending member."""
        theirs = place().theirs
        mine, to = theirs.mine.short, (short_form(theirs.theirs),)
        return [dump(replace(_unpacked(message), from_=mine, to=to, from_prior=None)) for message in place().bodies]

    def again(self, tree: Part, dice: Random) -> Part:
        """The message with its membership events signed and, now and then, its runs compressed."""
        body = tree.get("body") if isinstance(tree, Object) else None
        if not isinstance(tree, Object) or not isinstance(body, Object):
            return tree
        if dice.random() < 0.6:
            body = _signed(body)
        if dice.random() < 0.4:
            plain = utf8(as_text(body.get("runs")))[:MESSAGE_BYTES_MAX]
            body = body.put("packed", b64url(compress(plain))).put("runs", Array([]))
        return tree.put("body", body)


def _unpacked(message: Message) -> Message:
    """The same message with its runs in the open, where they can be changed."""
    packed = message.body.get("packed")
    if not packed:
        return message
    found: Any = decompress_runs(packed, list[Any])
    runs = found[0] if found and isinstance(found[0], list) else found
    return replace(message, body={**message.body, "runs": runs, "packed": ""})


def _signed(body: Object) -> Object:
    runs = body.get("runs")
    try:
        events = list(read_runs(place().group.id, msgspec.json.decode(utf8(as_text(runs)), type=list[Run])))
        seeds = place().seeds
        again = [event.signed(seeds[event.author]) if event.is_control else event for event in events]
        return body.put("runs", dissect(json.dumps(write_runs(again), ensure_ascii=False, separators=(",", ":"))))
    except (RemoteError, KeyError, ValueError, msgspec.MsgspecError, RecursionError):
        return body


class Bodies(_Said):
    """The bodies of all the messages of a group, and the runs of events in them."""

    name = "bodies"
    form: Form = "sealed"

    def seal(self, tree: Part, dice: Random) -> Part:
        return self.again(tree, dice)

    def parse(self, data: bytes) -> object:
        """The events of runs are the same when written again."""
        message = parse(data)
        shape = _SHAPES.get(message.type)
        found = [self._tried(message, each) for each in ([shape] if shape else _SHAPES.values())]
        if not any(found):
            raise Malformed(why="nothing that a group says")
        return found

    def _tried(self, message: Message, shape: type[msgspec.Struct]) -> object:
        try:
            body: Any = messages.read_body(message, shape)
            if not hasattr(body, "runs"):
                return body
            runs = runs_of(body.runs, getattr(body, "packed", ""))
            events = list(read_runs(place().group.id, runs, place().sender))
        except RemoteError:
            return None
        again = list(read_runs(place().group.id, _runs(events)))
        assert [event.record for event in again] == [event.record for event in events]
        return body


class Hearing(_Said):
    """A member receives from another one: real envelopes and frames, opened, processed and answered."""

    name = "member"
    form: Form = "sealed"

    def seal(self, tree: Part, dice: Random) -> bytes:
        here, plain = place(), utf8(as_text(self.again(tree, dice)))[:MESSAGE_BYTES_MAX]
        if dice.random() < 0.4:
            return _framed(_content(plain, dice), here, dice)
        theirs = here.theirs
        return _PACKER.authcrypt(
            plain,
            sender=_PACKER.own_key(theirs.mine, theirs.mine.short),
            recipient=_PACKER.their_key(resolve(theirs.theirs), short_form(theirs.theirs)),
            random=dice.randbytes,
        )

    def parse(self, data: bytes) -> object:
        """It never raises; a refused message changes nothing but its rate limit; stored records can be read from disk
        again."""
        here = place()
        after, effects = step(here.agent, Received(here.link, data), StepContext(NOW, dice("moment")))
        if [type(effect).__name__ for effect in effects] == ["Measure"]:
            before, now = here.agent.groups[here.group.id], after.groups[here.group.id]
            assert (before.control, before.log.chains, before.view, before.links.relationships) == (
                now.control,
                now.log.chains,
                now.view,
                now.links.relationships,
            )
            raise Malformed(why="what a member may not say")
        heard = after.groups[here.group.id]
        assert all(0 <= peer.shown.read_upto <= heard.log.lamport for peer in heard.links.peers.values())
        if after.groups[here.group.id].control is not here.group.control:
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(after), type=Agent) == after
        return effects


# --- frames ---------------------------------------------------------------------------------------------------------


def _content(plain: bytes, dice: Random) -> bytes:
    """The body of a frame before encryption."""
    kind = dice.choice((b"\0", b"\1", b"\1", b"\1", b"\2"))
    said = kind + (compress(plain) if kind == b"\1" else plain)
    size = len(said) + (dice.choice((-1, 1, 2**16, -len(said))) if dice.random() < 0.1 else 0)
    said = max(size, 0).to_bytes(4, "big") + said
    return said + (b"\0" * dice.randrange(64) if dice.random() < 0.9 else b"x")


def _framed(content: bytes, here: Place, dice: Random) -> bytes:
    """A frame with this content, among some sections without a recipient."""
    theirs, group, me = here.theirs, here.group.id, here.sender
    nonce, key, others = dice.randbytes(24), dice.randbytes(32), dice.choice((0, 0, 1, 5, 127))
    head = frame.VERSION + nonce + bytes([others + 1])
    body = b"".join(xc20p_seal(key, nonce, content, head))
    bound = head + sha256(body)
    mine = b"".join(xc20p_seal(key_to(frame.PURPOSE, group, me, theirs), nonce, key, bound))
    sections = [dice.randbytes(frame.SECTION_BYTES) for _ in range(others)]
    sections.insert(dice.randrange(others + 1), mine)
    return head + b"".join(sections) + body


class Frames:
    """Frames for many, down to their compressed content."""

    name = "frame"
    form: Form = "sealed"
    size_max = CONTENT_BYTES_MAX

    def seeds(self) -> list[bytes]:
        return [dump(message) for message in place().bodies[:4]]

    def seal(self, tree: Part, dice: Random) -> bytes:
        return _framed(_content(utf8(as_text(tree)), dice), place(), dice)

    def parse(self, data: bytes) -> object:
        here = place()
        plain, after = frame.open_frame(data, here.group.id, here.group.me, here.mine)
        assert len(plain) <= max(CONTENT_BYTES_MAX, len(data))
        again = frame.seal_frame(plain[:CONTENT_BYTES_MAX], here.group.id, here.sender, [here.theirs], _MOMENT)
        assert frame.open_frame(again, here.group.id, here.group.me, here.mine)[0] == plain[:CONTENT_BYTES_MAX]
        return after


_MOMENT = StepContext(NOW, dice("frames"))


# --- comparisons ----------------------------------------------------------------------------------------------------


class Negentropy:
    """Comparisons of two logs, on both sides; the answer to anything is one that the other side can read."""

    name = "negentropy"
    form: Form = "raw"
    size_max = 48 * 1024
    slow_ns = 2 * SLOW_NS
    """Six comparisons, of which an agent makes one or two with one message."""

    def __init__(self) -> None:
        items = list(_items())
        self._ours, self._theirs = Items(items[:-7:2] + items[-7:]), Items(items)
        self._none = Items([])

    def seeds(self) -> list[bytes]:
        """All messages until both sides agree."""
        said = [
            initial_message(self._ours),
            initial_message(self._none),
            initial_message(self._theirs),
            b"\x61",
            b"\x62",
        ]
        for mine, theirs in ((self._ours, self._theirs), (self._theirs, self._ours), (self._none, self._ours)):
            question: bytes | None = initial_message(mine)
            while question is not None:
                said += [question, respond(theirs, question, 4096)]
                question = process_response(mine, said[-1], 4096).next_message
        return said

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        found = []
        for items in (self._ours, self._none):
            reply = respond(items, data, self.size_max)
            assert len(reply) <= self.size_max
            if reply != b"\x61" or data[0] == 0x61:
                process_response(self._theirs, reply, self.size_max)
            if data[:1] == b"\x61":
                learned = process_response(items, data, self.size_max)
                assert (
                    set(learned.only_ours) <= {name for _, name in items}
                    and len(learned.next_message or b"") <= self.size_max
                )
                found.append(learned)
        return found
