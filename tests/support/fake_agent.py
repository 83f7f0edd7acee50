"""A fake agent for tests of the terminal application: the control protocol without an implementation.

It serves requests from plain lists in the test's event loop, so a test controls every notification and its time.
"""

import asyncio
import contextlib
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from zerochat import rpc
from zerochat.limits import KEYS_DEFAULT
from zerochat.rpc import (
    Author,
    ConnectionInfo,
    ConnectionOffer,
    Delivery,
    DeliveryReport,
    Event,
    GroupInfo,
    Hello,
    History,
    InvitationInfo,
    InvitationNotification,
    JoinRequestInfo,
    JoinRequestNotification,
    JoinStatus,
    MemberDelivery,
    MemberInfo,
    NoParams,
    PeerNotification,
    PendingReply,
    PolicyInfo,
    PrivateInvitationInfo,
    ReceiptNotification,
    SafetyWords,
    Sent,
    SentConnectionMessage,
    Status,
    TrustNotification,
    ViewNotification,
    VoteInfo,
)

STAMP = "2025-11-20T12:{minute:02}:00.000Z"
ME = "did:key:z6MkAlice"
URL = "https://zerochat.org/?_oob=" + "eyJ0eXBlIjoiaHR0cHM6Ly9kaWRjb21tLm9yZy9vdXQtb2YtYmFuZC8yLjAvaW52aXRhdGlvbiIs" * 7
WORDS = ["apple", "river", "stone", "lamp", "cloud", "tiger", "window", "bread"]
CODE = "ZC:" + "6BF0ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" * 3 + "ABCDEFGHIJKLMNOPQRSTUVWXYZ01"


class Refusal(Exception):
    """Raise it from a hook to have the request refused with this sentence."""

    def __init__(self, sentence: str, code: str = "Refused") -> None:
        super().__init__(sentence)
        self.code = code


@dataclass
class FakeGroup:
    """One group: what `groups`, `members` and `history` answer."""

    info: GroupInfo
    members: list[MemberInfo] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    pins: list[str] = field(default_factory=list)
    lamport: int = 0


def place_of(event: Event) -> tuple[int, str, str]:
    return event.lamport, event.author.did, event.id


class FakeAgent:
    """Serves `path`. `asked` keeps every request; `refuse[method]` is a sentence to refuse it with."""

    def __init__(self, path: Path, nick: str = "alice") -> None:
        self.path = path
        self.nick = nick
        self.groups: dict[str, FakeGroup] = {}
        self.looked_for: set[str] = set()
        self.accused: list[rpc.CaseInfo] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.refuse: dict[str, Refusal] = {}
        self.log_rows: list[rpc.LogRow] = []
        self.page_rows = 100
        self.warning = ""
        self.closed = False
        self.url, self.code = URL, CODE
        self.short = self.short_missing = ""
        self.others_open = 0
        self.connections: list[ConnectionInfo] = []
        self.letters: list[rpc.ConnectionMessage] = []
        self.hidden = False
        self.cut_off = False
        """It connects to its own mediators only, and none sends for it."""
        self.joins: list[JoinStatus] = []
        self.open_invitations: list[rpc.OpenInvitation] = []
        self.drafts: dict[str, str] = {}
        self.shares: list[str] = []
        self.read: dict[str, int] = {}
        """The read markers: local numbers by group. What `post` puts into the log is read, what `say` does is not."""
        self.readers: set[str] = set()
        """The nicks of those who say that they have read everything."""
        self.early: list[tuple[str, msgspec.Struct]] = []
        """News that go out together with the answer to the next question of a peer, before it."""
        self._threads = 0
        self._seq = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    # --- its life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "FakeAgent":
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path), limit=rpc.LINE_BYTES_MAX)

    async def stop(self) -> None:
        """Go away as a killed agent does: every connection breaks."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        self.path.unlink(missing_ok=True)

    # --- what there is ---------------------------------------------------------------------------------------------

    def add_group(self, name: str, nicks: Sequence[str] = ("bob", "carol"), id: str | None = None) -> FakeGroup:
        """A group with me and some others, all connected, and its creation as the first event."""
        id = id or f"g{len(self.groups) + 1}"
        others = [f"did:key:z6Mk{id}{number}{nick[:4]}" for number, nick in enumerate(nicks)]
        members = [MemberInfo(did=ME, nick=self.nick, connection="self", joined_at=STAMP.format(minute=0))]
        members += [
            MemberInfo(did=did, nick=nick, connection="connected", joined_at=STAMP.format(minute=1), added_by=ME)
            for did, nick in zip(others, nicks, strict=True)
        ]
        info = GroupInfo(
            id=id,
            name=name,
            state="active",
            me=ME,
            nick=self.nick,
            members=len(members),
            connected=len(nicks),
            keys=KEYS_DEFAULT,
            path="mesh",
            accountability="acks",
            view="3f9a12c4b7e0",
            unacknowledged=0,
            created_at=STAMP.format(minute=0),
        )
        group = self.groups[id] = FakeGroup(info, members)
        self._log(group, 0, "group_created", {"name": name}, minute=0)
        return group

    def _log(
        self,
        group: FakeGroup,
        who: int,
        type: str,
        body: dict[str, Any],
        *,
        minute: int = 0,
        lamport: int | None = None,
        late: bool = False,
        of: int | None = None,
        delivered: int = 0,
    ) -> Event:
        author = group.members[who]
        self._seq += 1
        position = group.positions[author.did] = group.positions.get(author.did, 0) + 1
        lamport = lamport if lamport is not None else group.lamport + 1
        group.lamport = max(group.lamport, lamport)
        event = Event(
            seq=self._seq,
            type=type,
            group=group.info.id,
            id=f"e{self._seq:06}",
            author=Author(did=author.did, nick=author.nick),
            position=position,
            lamport=lamport,
            parents=[],
            sent_at=STAMP.format(minute=minute),
            received_at=STAMP.format(minute=minute),
            body=body,
            self=author.did == group.info.me,
            late=late,
            delivery=Delivery(delivered, len(group.members) - 1 if of is None else of),
            author_nick_then="" if type == "message" else str(body.get("was", author.nick)),
        )
        insort(group.events, event, key=place_of)
        return event

    def post(self, group: FakeGroup, who: int, text: str, **details: Any) -> Event:
        """A post that is in the log already; `who` is the author's place among the members (0: me)."""
        event = self._log(group, who, "message", {"text": text}, **details)
        self.read[group.info.id] = self._seq
        return event

    # --- telling ---------------------------------------------------------------------------------------------------

    def tell(self, method: str, value: msgspec.Struct) -> None:
        line = msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": value}) + b"\n"
        for writer in self._writers:
            writer.write(line)

    def say(self, group: FakeGroup, who: int, text: str, **details: Any) -> Event:
        """A post that arrives now."""
        return self.arrive(group, self._log(group, who, "message", {"text": text}, **details))

    def arrive(self, group: FakeGroup, event: Event, **fields: Any) -> Event:
        """An event of the log arrives now, with these changes."""
        event = self.change(group, event.id, **fields)
        self.tell("event", event)
        self.tell("read_changed", self.read_state(group))
        return event

    def read_state(self, group: FakeGroup) -> rpc.ReadState:
        marker = self.read.get(group.info.id, 0)
        others = [one for one in group.events if not one.self and not one.deleted]
        posts = [one for one in others if one.type == "message" and one.seq > marker]
        edits = [one for one in others if one.type == "message_edited" and one.seq > marker]
        read_upto = max((place_of(one) for one in group.events if one.seq <= marker), default=None)
        places = [place_of(one) for one in posts]
        fresh = [place for place in places if read_upto is None or place > read_upto]
        return rpc.ReadState(
            group=group.info.id,
            unread=len(posts),
            mentions=sum(ME in one.mentions for one in (*posts, *edits)),
            first_unread=min(fresh or places, default=None),
            read_upto=read_upto,
        )

    # --- what becomes of a message -----------------------------------------------------------------------------------

    def change(self, group: FakeGroup, id: str, **fields: Any) -> Event:
        """Have a message of the log be otherwise, without telling."""
        at = next(at for at, each in enumerate(group.events) if each.id == id)
        group.events[at] = replace(group.events[at], **fields)
        return group.events[at]

    def quote(self, group: FakeGroup, id: str) -> rpc.Quote:
        found = next((each for each in group.events if each.id == id), None)
        if found is None:
            return rpc.Quote(id=id)
        text = str(found.body.get("text", ""))
        return rpc.Quote(id=id, author=found.author, text=text[:200], deleted=found.deleted)

    def amend(self, group: FakeGroup, id: str, **fields: Any) -> Event:
        """Change a message and notify."""
        event = self.change(group, id, **fields)
        self.tell("message_changed", rpc.MessageChanged(event))
        self.tell("read_changed", self.read_state(group))
        return event

    def edit(self, group: FakeGroup, id: str, text: str) -> Event:
        return self.amend(group, id, body={"text": text}, edited_at=STAMP.format(minute=40))

    def delete(self, group: FakeGroup, id: str) -> Event:
        return self.amend(group, id, body={}, deleted=True, reactions=[], mentions=[])

    def react(self, group: FakeGroup, id: str, who: int, emoji: str, *, on: bool = True, tell: bool = True) -> Event:
        event = next(each for each in group.events if each.id == id)
        by = {one.emoji: list(one.by) for one in event.reactions}
        did = group.members[who].did
        by[emoji] = [each for each in by.get(emoji, []) if each != did] + ([did] if on else [])
        reactions = [rpc.Reaction(each, dids) for each, dids in by.items() if dids]
        return (self.amend if tell else self.change)(group, id, reactions=reactions)

    def receipt(self, group: FakeGroup, who: int, upto: int, after: int = 0) -> None:
        """Member `who` has my events with `after` < position <= `upto`."""
        for number, event in enumerate(group.events):
            if event.self and after < event.position <= upto:
                delivery = Delivery(event.delivery.delivered + 1, event.delivery.of)
                group.events[number] = replace(event, delivery=delivery)
        news = ReceiptNotification(
            group=group.info.id, member=group.members[who].did, author=ME, after=after, upto=upto
        )
        self.tell("receipt", news)

    def peer(self, group: FakeGroup, who: int, connected: bool) -> None:
        member = group.members[who]
        group.members[who] = replace(member, connection="connected" if connected else "unreachable")
        count = sum(each.connection == "connected" for each in group.members)
        group.info = replace(group.info, connected=count)
        self.tell("peer_changed", PeerNotification(group.info.id, member.did, member.nick, connected))

    def view(self, group: FakeGroup) -> None:
        self.tell("view_changed", ViewNotification(group.info.id))

    def typing(self, group: FakeGroup, *who: int) -> None:
        """These members are writing."""
        for number in who:
            member = group.members[number]
            self.tell("typing", rpc.TypingNotification(group.info.id, member.did, member.nick))

    def ask(self, group: FakeGroup, nick: str, role: rpc.Role = "writer") -> JoinRequestInfo:
        """Add a join request."""
        stamp = STAMP.format(minute=20 + len(group.info.requests))
        asked = JoinRequestInfo(
            group=group.info.id, did=f"did:key:z6MkAsks{nick}", nick=nick, role=role, words=WORDS, asked_at=stamp
        )
        group.info = replace(group.info, requests=[*group.info.requests, asked])
        self.tell(
            "join_request",
            JoinRequestNotification(group=asked.group, member=asked.did, nick=nick, role=role, state="asked"),
        )
        return asked

    def invite_privately(self, group: FakeGroup, who: int) -> PrivateInvitationInfo:
        """Member `who` invites me to a private conversation."""
        member = group.members[who]
        invited = PrivateInvitationInfo(
            group=group.info.id,
            did=member.did,
            nick=member.nick,
            asked_at=STAMP.format(minute=20),
            expires_at=STAMP.format(minute=50),
        )
        group.info = replace(group.info, private_invitations=[*group.info.private_invitations, invited])
        self._say_private(invited, "asked")
        return invited

    def _say_private(self, one: PrivateInvitationInfo, state: Literal["asked", "accepted", "declined"]) -> None:
        news = rpc.PrivateInvitationNotification(group=one.group, member=one.did, nick=one.nick, state=state)
        self.tell("private_invitation", news)

    def put_me_out(self, group: FakeGroup, who: int) -> None:
        """Member `who` has put me out."""
        by = group.members[who]
        group.info = replace(group.info, state="left", removed_by=Author(by.did, by.nick))
        self.tell("removed", rpc.RemovedNotification(group.info.id, by.did, by.nick))

    def seat(self, group: FakeGroup, nick: str, connected: int, members: int) -> None:
        """The progress of an admitted joiner."""
        did = f"did:key:z6MkAsks{nick}"
        self.tell("member_connections", rpc.MemberConnectionsNotification(group.info.id, did, nick, connected, members))

    def disagree(self, group: FakeGroup, who: int | None, text: str) -> None:
        member = None if who is None else group.members[who]
        did, nick = (member.did, member.nick) if member else ("", "")
        news = rpc.WarningNotification(group.info.id, did, nick, text)
        group.info = replace(group.info, warnings=[*group.info.warnings, news])
        self.tell("warning", news)

    def used(self, group: FakeGroup, nick: str, left: int = 0, invitation: str = "", name: str = "") -> None:
        self.tell("invitation_used", InvitationNotification(group.info.id, nick, left, invitation, name))

    def joining(self, phase: rpc.JoinPhase, text: str, **details: Any) -> None:
        status = JoinStatus(join="j1", phase=phase, text=text, **details)
        others = [one for one in self.joins if one.join != status.join]
        self.joins = others if phase in ("joined", "failed") else [*others, status]
        self.tell("join_changed", status)

    # --- answering -------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                request = msgspec.json.decode(line, type=rpc.Request)
                params = {} if request.params is msgspec.UNSET else request.params
                self.asked.append((request.method, params))
                answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id}
                try:
                    if request.method in self.refuse:
                        raise self.refuse[request.method]
                    shape = rpc.METHODS[request.method][0]
                    answer["result"] = getattr(self, f"_{request.method}")(msgspec.convert(params, shape))
                except Refusal as refusal:
                    data = {"code": refusal.code}
                    answer["error"] = {"code": rpc.REFUSED, "message": str(refusal), "data": data}
                writer.write(msgspec.json.encode(answer) + b"\n")
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def count(self, method: str) -> int:
        """How often `method` was asked."""
        return sum(each == method for each, _ in self.asked)

    def _hello(self, params: rpc.HelloParams) -> Hello:
        return Hello(protocol=rpc.PROTOCOL, version="0.1", profile="default", nick=self.nick)

    def _get_status(self, params: NoParams) -> Status:
        return Status(
            profile="default",
            nick=self.nick,
            version="0.1",
            pid=4711,
            uptime_s=3725,
            pair="zmq+tcp://192.0.2.7:40001",
            queue="zmq+tcp://192.0.2.7:40002",
            closed=self.closed,
            warning=self.warning,
            groups=self._list_groups(params),
            hidden=self.hidden,
            sends="nothing" if self.cut_off else "direct",
            web=["http://192.0.2.7:8080"] if self.hidden else [],
            mediators=[one for one in self.connections if one.mediator],
            joins=self.joins,
            shares=self.shares,
        )

    def _list_groups(self, params: NoParams) -> list[GroupInfo]:
        def info(group: FakeGroup) -> GroupInfo:
            state = self.read_state(group)
            return replace(group.info, **{name: getattr(state, name) for name in state.__struct_fields__[1:]})

        return [info(group) for group in self.groups.values()]

    def _list_members(self, params: rpc.ListMembersParams) -> list[MemberInfo]:
        found = self.groups[params.group].members
        if params.dids is not None:
            return [one for one in found if one.did in params.dids]
        start = next((at for at, one in enumerate(found, 1) if one.did == params.after), 0)
        matching = [one for one in found[start:] if params.query.casefold() in one.nick.casefold()]
        return matching[: params.limit]

    def _subscribe(self, params: rpc.SubscribeParams) -> rpc.Subscribed:
        if isinstance(params.since, int):
            every = [event for group in self.groups.values() for event in group.events]
            for event in sorted(every, key=lambda each: each.seq):
                if event.seq > params.since:
                    self.tell("event", replace(event, replayed=True))
        return rpc.Subscribed(self._seq)

    def _get_history(self, params: rpc.HistoryParams) -> History:
        events = self.groups[params.group].events
        ids = [event.id for event in events]
        end = ids.index(params.before) if params.before is not None else len(events)
        start = max(end - params.limit, 0)
        if params.after is not None:
            start = ids.index(params.after) + 1
            end = start + params.limit
        elif params.around is not None or (params.at is not None and events[-1].lamport >= params.at):
            here = next(n for n, one in enumerate(events) if one.id == params.around or one.lamport >= (params.at or 0))
            if params.around is not None:
                if params.around not in ids:
                    raise Refusal(f"There is no event {params.around} in this group.", "NoSuchEvent")
                here = ids.index(params.around)
            start, end = max(here - params.limit // 2, 0), here + params.limit - params.limit // 2
        sizes = [len(msgspec.json.encode(event)) for event in events[start:end]]
        while sum(sizes) > rpc.LINE_BYTES_MAX - 65_536 and params.after is None:  # a page is one line
            start += 1
            del sizes[0]
        page = [replace(event, replayed=True) for event in events[start:end]]
        return History(page, more=start > 0, newer=end < len(events))

    def _search_messages(self, params: rpc.SearchParams) -> rpc.Found:
        """Plain words, `to:me` and paging only; the full grammar has its own tests."""
        if "?" in params.query:
            raise Refusal("Invalid search: so the test wants it.", "BadSearch")
        words = [word for word in params.query.lower().split() if ":" not in word]
        groups = [one for one in self.groups.values() if params.group in (None, one.info.id)]
        events = [one for group in groups for one in group.events if one.type == "message"]
        if "to:me" in params.query:
            events = [one for one in events if ME in one.mentions]
        if params.older_than is not None:
            border = next(one for group in groups for one in group.events if one.id == params.older_than)
            events = [one for one in events if place_of(one) < place_of(border)]
        found = [one for one in events if all(word in one.body["text"].lower() for word in words)]
        found.sort(key=place_of, reverse=True)
        start = params.cursor or 0
        end = start + params.limit
        hits = []
        for event in found[start:end]:
            text = event.body["text"]
            at = text.lower().find(words[0]) if words else -1
            hits.append(
                rpc.Hit(
                    group=event.group,
                    id=event.id,
                    author=event.author,
                    lamport=event.lamport,
                    sent_at=event.sent_at,
                    received_at=event.received_at,
                    text=text,
                    spans=[(at, at + len(words[0]))] if at >= 0 else [],
                )
            )
        return rpc.Found(hits=hits, cursor=end if len(found) > end else None)

    def _create_group(self, params: rpc.CreateGroupParams) -> GroupInfo:
        group = self.add_group(params.group, nicks=())
        remove = params.remove or ("quorum" if params.roles == "flat" or params.quorum else "admins")
        policy = PolicyInfo(
            join=params.join,
            remove=remove,
            quorum=(params.quorum or 2) if remove == "quorum" else 0,
            roles=params.roles,
            agreement=params.agreement,
            history=params.history,
            keepers=params.keepers,
        )
        role: rpc.Role = "writer" if params.roles == "flat" else "owner"
        group.info = replace(
            group.info,
            keys=params.keys,
            accountability=params.accountability,
            envelope=params.envelope,
            policy=policy,
            role=role,
        )
        group.members[0] = replace(group.members[0], role=role)
        return group.info

    def _send_message(self, params: rpc.SendMessageParams) -> Sent:
        group = self.groups[params.group]
        event = self._log(group, 0, "message", {"text": params.text}, minute=30)
        if params.reply_to or params.action:
            quoted = self.quote(group, params.reply_to) if params.reply_to else None
            event = self.change(group, event.id, reply_to=params.reply_to, quoted=quoted, action=params.action)
        self.tell("event", event)
        return Sent(params.group, event.id, event.lamport, event.position, event.delivery.of)

    def _sent(self, event: Event) -> Sent:
        return Sent(event.group, event.id, event.lamport, event.position, event.delivery.of)

    def _edit_message(self, params: rpc.EditMessageParams) -> Sent:
        return self._sent(self.edit(self.groups[params.group], params.event, params.text))

    def _delete_message(self, params: rpc.DeleteMessageParams) -> Sent:
        return self._sent(self.delete(self.groups[params.group], params.event))

    def _react(self, params: rpc.ReactParams) -> Sent:
        return self._sent(self.react(self.groups[params.group], params.event, 0, params.emoji, on=params.on))

    def _set_topic(self, params: rpc.SetTopicParams) -> Sent:
        group = self.groups[params.group]
        group.info = replace(group.info, topic=params.text)
        event = self._log(group, 0, "topic_changed", {"text": params.text}, minute=30)
        self.tell("event", event)
        return self._sent(event)

    def _set_retention(self, params: rpc.SetRetentionParams) -> GroupInfo:
        group = self.groups[params.group]
        group.info = replace(group.info, keep=params.keep, keep_choice=params.keep)
        return group.info

    def _save_draft(self, params: rpc.Draft) -> NoParams:
        self.drafts = {**self.drafts, params.group: params.text}
        if not params.text:
            del self.drafts[params.group]
        return NoParams()

    def _list_drafts(self, params: rpc.DraftsParams) -> rpc.Drafts:
        """One draft a page."""
        left = [group for group in sorted(self.drafts) if group > params.after]
        return rpc.Drafts([rpc.Draft(group, self.drafts[group]) for group in left[:1]], more=len(left) > 1)

    def _create_invitation(self, params: rpc.CreateInvitationParams) -> InvitationInfo:
        return InvitationInfo(
            group=params.group,
            url=self.url,
            code=self.code,
            expires_at="2025-11-21T12:00:00.000Z",
            uses=params.uses or (0 if self.groups[params.group].info.policy.join == "open" else 1),
            endpoint="zmq+tcp://192.0.2.7:40001",
            role="reader" if params.role == "reader" else "writer",
            history=params.history or "all",
            id=f"{self.count('create_invitation'):04x}",
            name=params.name,
            short=self.short,
            short_missing=self.short_missing,
            role_binds=params.role != "reader" or self.groups[params.group].info.policy.roles != "flat",
            open_count=self.others_open + self.count("create_invitation") - self.count("revoke_invitation"),
        )

    def _list_invitations(self, params: rpc.GroupParams) -> list[rpc.OpenInvitation]:
        return [one for one in self.open_invitations if one.group == params.group]

    def _revoke_invitation(self, params: rpc.RevokeInvitationParams) -> GroupInfo:
        self.open_invitations = [one for one in self.open_invitations if one.id != params.invitation]
        return self.groups[params.group].info

    def _whom(self, group: FakeGroup, wanted: str) -> int:
        """A member's place among the members, by its DID or nick; empty: me."""
        for number, member in enumerate(group.members):
            if wanted in (member.did, member.nick) or (not wanted and not number):
                return number
        raise Refusal(f"Nobody in {group.info.name} is called {wanted}.", "UnknownMember")

    def _list_join_requests(self, params: rpc.GroupParams) -> list[JoinRequestInfo]:
        return self.groups[params.group].info.requests

    def _answer_join_request(self, params: rpc.AnswerJoinRequestParams) -> GroupInfo:
        group = self.groups[params.group]
        asked = next((one for one in group.info.requests if params.member in (one.did, one.nick)), None)
        if asked is None:
            raise Refusal(f"No join request of {params.member}.", "NobodyAsks")
        group.info = replace(group.info, requests=[one for one in group.info.requests if one is not asked])
        news = JoinRequestNotification(
            group=asked.group,
            member=asked.did,
            nick=asked.nick,
            role=asked.role,
            state="admitted" if params.admit else "refused",
        )
        self.tell("join_request", news)
        if params.admit:
            group.members.append(
                MemberInfo(
                    did=asked.did,
                    nick=asked.nick,
                    connection="connecting",
                    joined_at=STAMP.format(minute=40),
                    added_by=ME,
                    role=asked.role,
                )
            )
            group.info = replace(group.info, members=len(group.members))
            self.tell("event", self._log(group, 0, "member_joined", {"did": asked.did, "nick": asked.nick}, minute=40))
            self.view(group)
        return group.info

    def _open_conversation(self, params: rpc.OpenConversationParams) -> GroupInfo:
        shared = self.groups.get(params.group) or next(iter(self.groups.values()))
        known = [one.info for one in self.groups.values() if one.info.private is not None]
        for info in known:
            if info.private is not None and params.member in (info.private.did, info.name):
                return info
        member = shared.members[self._whom(shared, params.member)]
        return self._private_group(shared, member, "waiting").info

    def _private_group(
        self, shared: FakeGroup, member: MemberInfo, state: Literal["waiting", "joined", "left"]
    ) -> FakeGroup:
        group = self.add_group(member.nick, nicks=[member.nick] if state == "joined" else ())
        private = rpc.PrivateInfo(
            group=shared.info.id,
            did=member.did,
            nick=member.nick,
            state=state,
            expires_at=STAMP.format(minute=50),
            sent_at=STAMP.format(minute=20),
        )
        group.info = replace(group.info, private=private)
        return group

    def _answer_private_invitation(self, params: rpc.AnswerPrivateInvitationParams) -> GroupInfo:
        group = self.groups[params.group]
        answered = next(one for one in group.info.private_invitations if params.member in (one.did, one.nick))
        left = [one for one in group.info.private_invitations if one is not answered]
        group.info = replace(group.info, private_invitations=left)
        self._say_private(answered, "accepted" if params.accept else "declined")
        if params.accept:
            made = self._private_group(group, group.members[self._whom(group, answered.did)], "joined")
            text = f"You are in {answered.nick}."
            self.tell("join_changed", rpc.JoinStatus(join="j", phase="joined", text=text, group=made.info.id))
        return group.info

    def _remove_member(self, params: rpc.RemoveMemberParams) -> VoteInfo:
        """One vote is ours; another is there only where the test has put it into `info.votes`."""
        group = self.groups[params.group]
        member = group.members[self._whom(group, params.member)]
        needed = min(group.info.policy.quorum, len(group.members) - 1) if group.info.policy.remove == "quorum" else 1
        before = sum(one.votes - one.voted for one in group.info.votes if one.did == member.did)
        vote = VoteInfo(
            group=group.info.id,
            did=member.did,
            nick=member.nick,
            votes=before + 1,
            needed=needed,
            voted=True,
            removed=before + 1 >= needed,
        )
        rest = [one for one in group.info.votes if one.did != member.did]
        about = {"did": member.did, "nick": member.nick}
        if vote.removed:
            self.tell("event", self._log(group, 0, "member_removed", about, minute=41))
            group.members.remove(member)
        else:
            self.tell("event", self._log(group, 0, "removal_voted", about, minute=41))
            rest.append(vote)
        group.info = replace(group.info, votes=rest, members=len(group.members))
        self.view(group)
        return vote

    def _set_role(self, params: rpc.SetRoleParams) -> MemberInfo:
        group = self.groups[params.group]
        number = self._whom(group, params.member)
        group.members[number] = member = msgspec.convert(
            {**msgspec.to_builtins(group.members[number]), "role": params.role}, MemberInfo
        )
        if number == 0:
            group.info = replace(group.info, role=member.role)
        body = {"did": member.did, "nick": member.nick, "role": member.role}
        self.tell("event", self._log(group, 0, "role_changed", body, minute=42))
        self.view(group)
        return member

    def _set_display_name(self, params: rpc.SetDisplayNameParams) -> GroupInfo:
        group = self.groups[params.group]
        was, group.info = group.info.nick, replace(group.info, nick=params.name)
        group.members[0] = replace(group.members[0], nick=params.name)
        body = {"did": ME, "nick": params.name, "was": was}
        self.tell("event", self._log(group, 0, "member_renamed", body, minute=43))
        self.view(group)
        return group.info

    def _get_safety_words(self, params: rpc.SafetyWordsParams) -> SafetyWords:
        group = self.groups[params.group]
        member = group.members[self._whom(group, params.member)] if params.member else None
        return SafetyWords(
            group=group.info.id,
            did=member.did if member else "",
            nick=member.nick if member else "",
            words=WORDS,
            trust=member.trust if member else None,
            match=params.entered.split() == WORDS if params.entered else None,
        )

    def _verify_member(self, params: rpc.VerifyMemberParams) -> MemberInfo:
        group = self.groups[params.group]
        number = self._whom(group, params.member)
        trust: rpc.Trust = "verified" if params.verified else "unverified"
        group.members[number] = member = replace(group.members[number], trust=trust, verified=params.verified)
        self.tell("trust_changed", TrustNotification(group.info.id, member.did, member.nick, trust))
        return member

    def _pin_message(self, params: rpc.PinParams) -> rpc.Sent:
        group = self.groups[params.group]
        group.pins = [id for id in group.pins if id != params.event]
        if params.pinned:
            group.pins.insert(0, params.event)
        event = self._log(group, 0, "pins_changed", {"targets": list(group.pins)}, minute=44)
        self.tell("event", event)
        return rpc.Sent(group.info.id, event.id, event.lamport, event.position, 2)

    def _list_pins(self, params: rpc.GroupParams) -> list[rpc.Event]:
        group = self.groups[params.group]
        return [one for id in group.pins for one in group.events if one.id == id]

    def _list_ignored(self, params: rpc.GroupParams) -> list[rpc.IgnoredMember]:
        members = self.groups[params.group].members
        return [rpc.IgnoredMember(one.did, one.nick) for one in members if one.ignored]

    def _ignore_member(self, params: rpc.IgnoreMemberParams) -> rpc.IgnoredMember:
        group = self.groups[params.group]
        number = self._whom(group, params.member)
        group.members[number] = member = replace(group.members[number], ignored=params.ignored)
        group.events = [
            replace(one, ignored=params.ignored) if one.author.did == member.did else one for one in group.events
        ]
        news = rpc.IgnoredNotification(group.info.id, member.did, member.nick, params.ignored)
        self.tell("ignored_changed", news)
        return rpc.IgnoredMember(member.did, member.nick, params.ignored)

    def _join_group(self, params: rpc.JoinGroupParams) -> JoinStatus:
        status = JoinStatus(join="j1", phase="dialling", text="Reaching the person who invited you.")
        self.joins = [*(one for one in self.joins if one.join != status.join), status]
        return status

    def _cancel_join(self, params: rpc.CancelJoinParams) -> JoinStatus:
        ours = next((one for one in self.joins if params.join in ("", one.join, one.name)), None)
        if ours is None:
            raise Refusal("You are not joining any group.", "NoSuchJoin")
        text = f"You cancelled joining {ours.name or 'with this invitation'}."
        self.joining("failed", text, error="JoinCancelled")
        return replace(ours, phase="failed")

    def _ping_peer(self, params: rpc.PeerParams) -> PendingReply:
        """The thread is q1 for the first query, q2 for the second; send the response with `tell`."""
        self._threads += 1
        while self.early:
            self.tell(*self.early.pop(0))
        return PendingReply(f"q{self._threads}")

    def _query_features(self, params: rpc.QueryFeaturesParams) -> PendingReply:
        return self._ping_peer(rpc.PeerParams(params.peer))

    def _rotate_did(self, params: rpc.RotateParams) -> NoParams:
        return NoParams()

    def _open_connection(self, params: rpc.OpenConnectionParams) -> ConnectionInfo:
        self.connections.append(
            ConnectionInfo(
                id=f"c{len(self.connections) + 1}",
                label=params.name or "somebody",
                state="requested",
                envelope="didcomm/v2",
                did="",
                my_did="did:peer:4zQmMine",
                mediator="requested" if params.mediate else None,
                begun_at=STAMP.format(minute=5),
            )
        )
        return self.connections[-1]

    def _offer_connection(self, params: rpc.OfferConnectionParams) -> ConnectionOffer:
        return ConnectionOffer(url=self.url, expires_at="2025-11-21T12:00:00.000Z", connection="c1")

    def _list_connections(self, params: NoParams) -> list[ConnectionInfo]:
        return self.connections

    def _send_connection_message(self, params: rpc.SendConnectionMessageParams) -> SentConnectionMessage:
        return SentConnectionMessage("m1")

    def _list_connection_messages(self, params: rpc.PeerParams) -> list[rpc.ConnectionMessage]:
        return self.letters

    def _close_connection(self, params: rpc.PeerParams) -> NoParams:
        self.connections = [one for one in self.connections if params.peer not in (one.id, one.label)]
        return NoParams()

    def _leave_group(self, params: rpc.GroupParams) -> GroupInfo:
        group = self.groups[params.group]
        group.info = replace(group.info, state="left")
        return group.info

    def _forget_group(self, params: rpc.GroupParams) -> NoParams:
        del self.groups[params.group]
        return NoParams()

    def _upgrade_group(self, params: rpc.GroupParams) -> GroupInfo:
        group = self.groups[params.group]
        upgrade = group.info.upgrade
        assert upgrade is not None
        votes = upgrade.votes + (not upgrade.voted)
        if votes >= upgrade.needed:
            group.info = replace(group.info, keys=upgrade.keys, upgraded_from=group.info.keys, upgrade=None)
        else:
            group.info = replace(group.info, upgrade=replace(upgrade, votes=votes, voted=True))
        return group.info

    def _rekey_group(self, params: rpc.GroupParams) -> GroupInfo:
        return self.groups[params.group].info

    def _resume_group(self, params: rpc.GroupParams) -> GroupInfo:
        group = self.groups[params.group]
        group.info = replace(group.info, suspended=False)
        return group.info

    def _dismiss_warnings(self, params: rpc.DismissWarningsParams) -> GroupInfo:
        group = self.groups[params.group]
        left = [one for one in group.info.warnings if params.member not in ("", one.member)]
        group.info = replace(group.info, warnings=left)
        return group.info

    def _send_typing(self, params: rpc.GroupParams) -> rpc.EphemeralResult:
        return rpc.EphemeralResult(len(self.groups[params.group].members) - 1)

    def _send_read_receipt(self, params: rpc.ReadReceiptParams) -> rpc.EphemeralResult:
        return rpc.EphemeralResult(len(self.groups[params.group].members) - 1)

    def _mark_read(self, params: rpc.MarkReadParams) -> list[rpc.ReadState]:
        states = []
        for group in [self.groups[params.group]] if params.group else self.groups.values():
            upto = self._seq if params.upto is None else min(params.upto, self._seq)
            self.read[group.info.id] = max(self.read.get(group.info.id, 0), upto)
            states.append(self.read_state(group))
            self.tell("read_changed", states[-1])
        return states

    def _reload_settings(self, params: NoParams) -> NoParams:
        return params

    def _get_log_summary(self, params: rpc.GroupParams) -> rpc.LogSummary:
        info = self.groups[params.group].info
        count = len(self.log_rows)
        return rpc.LogSummary(
            group=params.group, name=info.name, me=ME, nick="alice", view="", chains=[], events=count, latest=count
        )

    def _get_event_page(self, params: rpc.EventPageParams) -> rpc.EventPage:
        start = params.after[0] if params.after else 0
        rows = self.log_rows[start : start + self.page_rows]
        more = start + len(rows) < len(self.log_rows)
        return rpc.EventPage(rows, (start + len(rows), "", "") if more else None)

    def _get_evidence(self, params: rpc.EvidenceParams) -> rpc.Evidence:
        """In a group whose keys sign, the first of the others has signed for everything of mine, and the next for
        nothing; `last` is my newest message."""
        group = self.groups[params.group]
        signs = group.info.keys == "sender-key"
        streams = [
            rpc.SignedStream(
                did=each.did,
                nick=each.nick,
                messages=number + 1,
                last=STAMP.format(minute=number),
                signed_at=STAMP.format(minute=9) if number == 1 else None,
            )
            for number, each in enumerate(group.members)
        ]
        found = rpc.Evidence(
            group=params.group,
            keys=group.info.keys,
            signs=signs,
            streams=streams if signs else [],
            log=self._log_info(group) if group.info.accountability == "tlog" else None,
        )
        if not params.id:
            return found
        event = self._event_meant(group, params.id)
        others = [
            rpc.SignedBy(
                did=each.did,
                nick=each.nick,
                grade="none" if number else "signed",
                at=None if number else STAMP.format(minute=9),
            )
            for number, each in enumerate(group.members[1:])
        ]
        itself = group.info.keys == "dcgka"
        about = rpc.MessageEvidence(
            event=event,
            signed=signs or itself,
            why="" if signs else "itself" if itself else "keys",
            members=others if signs and event.self else [],
        )
        return replace(found, message=about)

    def _accuse_member(self, params: rpc.AccuseParams) -> rpc.CaseInfo:
        group = self.groups[params.group]
        me, accused = group.members[0], next(one for one in group.members if one.did == params.member)
        case = rpc.CaseInfo(
            group=params.group,
            id=f"case{len(self.accused):04}",
            accuser=Author(me.did, me.nick),
            accused=Author(accused.did, accused.nick),
            mine="accuser",
            state="waiting",
        )
        if not params.check:
            self.accused.append(case)
        return case

    def _list_cases(self, params: rpc.GroupParams) -> list[rpc.CaseInfo]:
        return [one for one in self.accused if one.group == params.group]

    def _log_info(self, group: FakeGroup) -> rpc.TlogInfo:
        """It is kept by the second member, and witnessed by the first three."""
        state = group.info.tlog
        if state in ("", "unkept"):
            return rpc.TlogInfo(group=group.info.id, state=state, members_missing=max(3 - len(group.members), 0))
        keepers = [Author(one.did, one.nick) for one in group.members[:3]]
        return rpc.TlogInfo(
            group=group.info.id,
            state=state,
            operator=keepers[1],
            witnesses=keepers,
            needed=2,
            by=keepers[0],
            witnessing=True,
            size=12,
            shown_at=STAMP.format(minute=20),
            waiting=int(state == "stalled"),
            waiting_since=STAMP.format(minute=10) if state == "stalled" else None,
            ack_s=600,
            window_s=1200,
        )

    def _event_meant(self, group: FakeGroup, id: str) -> Event:
        own = [each for each in group.events if each.self and each.type == "message"]
        found = own[-1:] if id == "last" else [each for each in group.events if each.id.startswith(id)]
        if len(found) != 1:
            raise Refusal(f"There is no event {id} in {group.info.name}.", "UnknownEvent")
        return found[0]

    def _get_proof(self, params: rpc.ProofParams) -> rpc.ProofLines:
        group = self.groups[params.group]
        if group.info.keys != "sender-key":
            raise Refusal(f"In {group.info.name} nothing that is said is signed, so nobody can prove it.", "NotSigned")
        event = self._event_meant(group, params.id)
        return rpc.ProofLines(['{"zproof":1}\n', f'{{"message":"{event.id}"}}\n', '{"ack":"x"}\n'], left_out=1)

    def _get_nearby(self, params: rpc.NoParams) -> rpc.NearbyStatus:
        """One network, and on it every other member of the groups that are looked for."""
        found = [
            rpc.NearbyMember(group=one.info.id, did=did, nick=nick, addresses=["192.0.2.7"], linked=True)
            for one in self.groups.values()
            for did, nick in ((member.did, member.nick) for member in one.members[1:])
            if one.info.id in self.looked_for
        ]
        networks = [rpc.NearbyNetwork(id="0123456789abcdef", name="wlan0 (192.0.2.0/24)", on=bool(self.looked_for))]
        groups = sorted(self.looked_for)
        return rpc.NearbyStatus(on=bool(groups), groups=groups or None, networks=networks, heard=2, members=found)

    def _set_nearby(self, params: rpc.SetNearbyParams) -> rpc.NearbyStatus:
        self.looked_for = self.looked_for | set(params.groups) if params.on else self.looked_for - set(params.groups)
        return self._get_nearby(rpc.NoParams())

    def _get_overlay(self, params: rpc.GroupParams) -> rpc.OverlayInfo:
        """A ring, where the path is one: two successors, two predecessors, shortcuts, and a guest at the end."""
        group = self.groups[params.group]
        mesh: list[rpc.LinkPlace] = ["member"]
        across: list[rpc.LinkPlace] = ["shortcut"]
        ring: list[rpc.LinkPlace] = ["successor", "successor", "predecessor", "predecessor", *across * 8, "guest"]
        forwards, others = group.info.path == "ring", group.members[1:]
        linked = zip(others, ring if forwards else cycle(mesh), strict=False)
        return rpc.OverlayInfo(
            group=group.info.id,
            path=group.info.path,
            forwards=forwards,
            members=group.info.members,
            since=STAMP.format(minute=1),
            own=10,
            forwarded=90 if forwards else 0,
            copies=300 if forwards else 10 * len(others),
            links=[
                rpc.LinkInfo(
                    did=one.did,
                    nick=one.nick,
                    place=place,
                    connection=one.connection,
                    via=one.via,
                    sent=100 + at,
                    sent_bytes=50_000 + at,
                    received=200 + at,
                    received_bytes=2_000_000,
                    brought=7 if forwards else 0,
                    duplicates=at,
                    repaired=3 * (at == 1),
                    repaired_at=STAMP.format(minute=5) if at == 1 else "",
                )
                for at, (one, place) in enumerate(linked)
            ],
        )

    def _get_delivery(self, params: rpc.EventParams) -> DeliveryReport:
        group = self.groups[params.group]
        event = next(each for each in group.events if each.id == params.id)
        known, signed = event.delivery, group.info.keys == "sender-key"
        others = [
            MemberDelivery(
                each.did,
                each.nick,
                number < known.delivered,
                read=each.nick in self.readers,
                signed=signed and not number,
            )
            for number, each in enumerate(group.members[1:])
        ]
        found = [one for one in sorted(others, key=lambda one: one.delivered) if params.query in one.nick]
        start = int(params.after or 0)
        page, end = found[start : start + params.limit], start + params.limit
        more = str(end) if end < len(found) else ""
        return DeliveryReport(params.group, params.id, known.delivered, known.of, False, page, event, signed, more)
