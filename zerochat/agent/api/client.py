"""A blocking client of the agent: one typed method per method of the protocol."""

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from zerochat.agent.api.client_connection import (
    ANSWER_S_MAX,
    BACKUP_S_MAX,
    CONNECT_S_MAX,
    FILES_S_MAX,
    AgentGone,
    AgentUnreachable,
    ClientConnection,
    NoAgent,
)
from zerochat.agent.api.client_protocol import AgentUnclear
from zerochat.agent.api.member_pages import members_in_pages, recipients_in_pages
from zerochat.agent.storage.paths import path_from_wire, path_to_wire
from zerochat.limits import KEYS_DEFAULT, MEMBER_PAGE_MAX
from zerochat.rpc import (
    PROTOCOL,
    AcknowledgeResult,
    Announced,
    AnnouncedCommand,
    BackupCopy,
    BackupProgress,
    CaseInfo,
    CasePart,
    ConsumerInfo,
    DeliveryReport,
    Drafts,
    Event,
    EventPage,
    Evidence,
    FileInfo,
    FileList,
    Found,
    GroupInfo,
    Hello,
    History,
    IgnoredMember,
    Imported,
    InvitationInfo,
    JoinRequestInfo,
    JoinStatus,
    LogRow,
    LogSummary,
    MemberInfo,
    MessageStatus,
    OpenInvitation,
    OverlayInfo,
    ProofLines,
    ReadState,
    SafetyWords,
    Saved,
    SearchParams,
    Sent,
    Since,
    Status,
    Subscribed,
    TlogInfo,
    VoteInfo,
)
from zerochat.rpc.subscriptions import CREDIT

if TYPE_CHECKING:
    from zerochat.agent.storage.paths import ProfilePaths


class Client(ClientConnection):
    """The methods have the names and parameters of the protocol."""

    def hello(self, name: str = "") -> Hello:
        hello: Hello = self.call("hello", within_s=CONNECT_S_MAX, protocol=PROTOCOL, client=name)
        return hello

    def get_status(self) -> Status:
        status: Status = self.call("get_status")
        return status

    def list_groups(self) -> list[GroupInfo]:
        groups: list[GroupInfo] = self.call("list_groups")
        return groups

    def create_group(
        self,
        group: str,
        *,
        envelope: str = "didcomm/v2",
        keys: str = KEYS_DEFAULT,
        path: str = "mesh",
        accountability: str = "acks",
        join: str = "invited",
        remove: str | None = None,
        quorum: int | None = None,
        roles: str = "flat",
        agreement: str = "permissive",
        history: str = "all",
        keepers: int = 0,
        keep: int = 0,
    ) -> GroupInfo:
        info: GroupInfo = self.call(
            "create_group",
            group=group,
            envelope=envelope,
            keys=keys,
            path=path,
            accountability=accountability,
            join=join,
            remove=remove,
            quorum=quorum,
            roles=roles,
            agreement=agreement,
            history=history,
            keepers=keepers,
            keep=keep,
        )
        return info

    def create_invitation(
        self,
        group: str,
        *,
        expires_s: int = 24 * 3600,
        uses: int | None = None,
        role: str = "writer",
        history: str | None = None,
        name: str = "",
    ) -> InvitationInfo:
        info: InvitationInfo = self.call(
            "create_invitation", group=group, expires_s=expires_s, uses=uses, role=role, history=history, name=name
        )
        return info

    def list_invitations(self, group: str) -> list[OpenInvitation]:
        """The open invitations of this profile to a group, with their invitees."""
        found: list[OpenInvitation] = self.call("list_invitations", group=group)
        return found

    def revoke_invitation(self, group: str, invitation: str) -> GroupInfo:
        """`invitation`: its id or a prefix of it."""
        info: GroupInfo = self.call("revoke_invitation", group=group, invitation=invitation)
        return info

    def join_group(self, invitation: str, name: str | None = None, role: str = "writer") -> JoinStatus:
        """The first status of the join. `join_changed` notifications report the others, so subscribe before."""
        status: JoinStatus = self.call("join_group", invitation=invitation, name=name, role=role)
        return status

    def cancel_join(self, join: str = "") -> JoinStatus:
        status: JoinStatus = self.call("cancel_join", join=join)
        return status

    def send_message(
        self, group: str, text: str, *, reply_to: str | None = None, action: bool = False, key: str | None = None
    ) -> Sent:
        """Send a message, once per idempotency key."""
        sent: Sent = self.call("send_message", group=group, text=text, reply_to=reply_to, action=action, key=key)
        return sent

    def edit_message(self, group: str, event: str, text: str, *, key: str | None = None) -> Sent:
        sent: Sent = self.call("edit_message", group=group, event=event, text=text, key=key)
        return sent

    def delete_message(self, group: str, event: str, *, key: str | None = None) -> Sent:
        sent: Sent = self.call("delete_message", group=group, event=event, key=key)
        return sent

    def react(self, group: str, event: str, emoji: str, *, on: bool = True, key: str | None = None) -> Sent:
        sent: Sent = self.call("react", group=group, event=event, emoji=emoji, on=on, key=key)
        return sent

    def set_topic(self, group: str, text: str, *, key: str | None = None) -> Sent:
        sent: Sent = self.call("set_topic", group=group, text=text, key=key)
        return sent

    def pin_message(self, group: str, event: str, pinned: bool = True) -> Sent:
        sent: Sent = self.call("pin_message", group=group, event=event, pinned=pinned)
        return sent

    def list_pins(self, group: str) -> list[Event]:
        found: list[Event] = self.call("list_pins", group=group)
        return found

    def announce_bot(
        self, group: str, commands: Sequence[AnnouncedCommand] = (), *, bot: bool = True, consumer: str = ""
    ) -> Announced:
        """Announce that this profile is a bot with these commands, beside those of other consumers."""
        announced: Announced = self.call(
            "announce_bot", group=group, bot=bot, commands=list(commands), consumer=consumer
        )
        return announced

    def send_files(
        self,
        group: str,
        paths: Sequence[str],
        text: str = "",
        *,
        reply_to: str | None = None,
        action: bool = False,
        key: str | None = None,
    ) -> Sent:
        """Send a message with files. `paths` are absolute."""
        sent: Sent = self.call(
            "send_files",
            within_s=FILES_S_MAX,
            group=group,
            paths=[path_to_wire(path) for path in paths],
            text=text,
            reply_to=reply_to,
            action=action,
            key=key,
        )
        return sent

    def list_files(self, group: str) -> Iterator[FileInfo]:
        """The files of a group, newest first."""
        after, more = "", True
        while more:
            page: FileList = self.call("list_files", group=group, after=after)
            yield from page.files
            more = page.more and bool(page.files)
            after = page.files[-1].file.id if page.files else ""

    def fetch_file(self, group: str, file: str) -> FileInfo:
        """Start a download. `file_changed` notifications report the progress, so subscribe before."""
        info: FileInfo = self.call("fetch_file", group=group, file=file)
        return info

    def drop_file(self, group: str, file: str) -> FileInfo:
        info: FileInfo = self.call("drop_file", group=group, file=file)
        return info

    def save_file(self, group: str, file: str, to: str = "") -> Saved:
        saved: Saved = self.call(
            "save_file", within_s=FILES_S_MAX, group=group, file=file, to=path_to_wire(to) if to else ""
        )
        return saved

    def wait_for_delivery(
        self, group: str, event_id: str, *, count: int = -1, timeout_s: float = 30.0
    ) -> DeliveryReport:
        report: DeliveryReport = self.call(
            "wait_for_delivery",
            within_s=timeout_s + ANSWER_S_MAX,
            group=group,
            id=event_id,
            count=count,
            timeout_s=timeout_s,
        )
        return report

    def get_delivery(
        self, group: str, event_id: str, *, query: str = "", limit: int | None = MEMBER_PAGE_MAX
    ) -> DeliveryReport:
        """With the first `limit` recipients that `query` finds, page by page; None: all."""
        return recipients_in_pages(self, group, event_id, query, limit)

    def get_message_status(self, group: str, event_id: str) -> MessageStatus:
        status: MessageStatus = self.call("get_message_status", group=group, id=event_id)
        return status

    def get_log_summary(self, group: str) -> LogSummary:
        summary: LogSummary = self.call("get_log_summary", group=group)
        return summary

    def event_rows(self, summary: LogSummary) -> Iterator[LogRow]:
        """All rows of the log that a summary covers, in the total order, page by page."""
        page: EventPage = self.call("get_event_page", group=summary.group, latest=summary.latest)
        yield from page.rows
        while page.last is not None:
            page = self.call("get_event_page", group=summary.group, latest=summary.latest, after=page.last)
            yield from page.rows

    def get_proof(self, group: str, event_id: str = "", author: str = "", after: int = 0) -> ProofLines:
        """The lines of a proof of a message, or, without one, of an author's stream."""
        lines: ProofLines = self.call("get_proof", group=group, id=event_id, author=author, after=after)
        return lines

    def accuse_member(self, group: str, member: str) -> CaseInfo:
        """Accuse a member of withholding the oldest missing message of its stream."""
        case: CaseInfo = self.call("accuse_member", group=group, member=member)
        return case

    def list_cases(self, group: str) -> list[CaseInfo]:
        """The cases of a group, oldest first."""
        cases: list[CaseInfo] = self.call("list_cases", group=group)
        return cases

    def get_case(self, group: str, case: str) -> bytes:
        """A case in its file format."""
        first: CasePart = self.call("get_case", group=group, case=case)
        text, part = first.text, first
        while len(text) < part.size:
            part = self.call("get_case", group=group, case=case, after=len(text))
            if part.digest != first.digest:  # the transparency log has grown
                return self.get_case(group, case)
            text += part.text
        return text.encode()

    def get_tlog(self, group: str) -> TlogInfo:
        found: TlogInfo = self.call("get_tlog", group=group)
        return found

    def set_tlog_terms(self, group: str, operator: str, witnesses: Sequence[str]) -> TlogInfo:
        found: TlogInfo = self.call("set_tlog_terms", group=group, operator=operator, witnesses=list(witnesses))
        return found

    def get_evidence(self, group: str, event_id: str = "") -> Evidence:
        found: Evidence = self.call("get_evidence", group=group, id=event_id)
        return found

    def import_events(self, group: str, records: Sequence[bytes], *, back: bool = False) -> Imported:
        """Import events that the agent lacks. `back`: newest first."""
        imported: Imported = self.call("import_events", group=group, records=records, back=back)
        return imported

    def get_history(self, group: str, *, limit: int = 100, before: str | None = None) -> History:
        history: History = self.call("get_history", group=group, limit=limit, before=before)
        return history

    def search_messages(self, params: SearchParams) -> Found:
        found: Found = self.call("search_messages", **asdict(params))
        return found

    def list_members(
        self, group: str, *, query: str = "", after: str = "", limit: int | None = None, within_s: float = ANSWER_S_MAX
    ) -> list[MemberInfo]:
        """The members that `query` finds, page by page; at most `limit` after the one with the DID `after`."""
        return members_in_pages(self, group, query, after, limit, within_s)

    def get_overlay(self, group: str) -> OverlayInfo:
        overlay: OverlayInfo = self.call("get_overlay", group=group)
        return overlay

    def list_join_requests(self, group: str) -> list[JoinRequestInfo]:
        requests: list[JoinRequestInfo] = self.call("list_join_requests", group=group)
        return requests

    def answer_join_request(self, group: str, member: str, admit: bool, *, nick: str = "", role: str = "") -> GroupInfo:
        """`nick`, `role`: as the user saw them; a request that has changed is not admitted."""
        info: GroupInfo = self.call(
            "answer_join_request", group=group, member=member, admit=admit, nick=nick, role=role
        )
        return info

    def open_conversation(self, member: str, group: str = "") -> GroupInfo:
        """The private conversation with a member; without a group, one of this title or with the only such member."""
        info: GroupInfo = self.call("open_conversation", member=member, group=group)
        return info

    def answer_private_invitation(self, group: str, member: str, accept: bool) -> GroupInfo:
        info: GroupInfo = self.call("answer_private_invitation", group=group, member=member, accept=accept)
        return info

    def remove_member(self, group: str, member: str) -> VoteInfo:
        vote: VoteInfo = self.call("remove_member", group=group, member=member)
        return vote

    def set_role(self, group: str, role: str, member: str = "") -> MemberInfo:
        changed: MemberInfo = self.call("set_role", group=group, role=role, member=member)
        return changed

    def set_display_name(self, group: str, name: str) -> GroupInfo:
        info: GroupInfo = self.call("set_display_name", group=group, name=name)
        return info

    def get_safety_words(self, group: str, member: str = "", entered: str = "") -> SafetyWords:
        words: SafetyWords = self.call("get_safety_words", group=group, member=member, entered=entered)
        return words

    def verify_member(self, group: str, member: str, verified: bool = True) -> MemberInfo:
        changed: MemberInfo = self.call("verify_member", group=group, member=member, verified=verified)
        return changed

    def ignore_member(self, group: str, member: str, ignored: bool = True) -> IgnoredMember:
        changed: IgnoredMember = self.call("ignore_member", group=group, member=member, ignored=ignored)
        return changed

    def list_ignored(self, group: str) -> list[IgnoredMember]:
        found: list[IgnoredMember] = self.call("list_ignored", group=group)
        return found

    def leave_group(self, group: str) -> GroupInfo:
        info: GroupInfo = self.call("leave_group", group=group)
        return info

    def forget_group(self, group: str) -> None:
        self.call("forget_group", group=group)

    def set_retention(self, group: str, keep: int) -> GroupInfo:
        info: GroupInfo = self.call("set_retention", group=group, keep=keep)
        return info

    def upgrade_group(self, group: str) -> GroupInfo:
        info: GroupInfo = self.call("upgrade_group", group=group)
        return info

    def rekey_group(self, group: str) -> GroupInfo:
        info: GroupInfo = self.call("rekey_group", group=group)
        return info

    def resume_group(self, group: str) -> GroupInfo:
        info: GroupInfo = self.call("resume_group", group=group)
        return info

    def dismiss_warnings(self, group: str, member: str = "") -> GroupInfo:
        info: GroupInfo = self.call("dismiss_warnings", group=group, member=member)
        return info

    def mark_read(self, group: str = "", upto: int | None = None) -> list[ReadState]:
        """Mark a group, or all groups, as read up to this local number; None: to the end."""
        states: list[ReadState] = self.call("mark_read", group=group, upto=upto)
        return states

    def save_draft(self, group: str, text: str, client: str = "") -> None:
        """Store a draft; empty: delete it."""
        self.call("save_draft", group=group, text=text, client=client)

    def list_drafts(self, client: str = "") -> dict[str, str]:
        """The drafts by group id. `client`: its drafts and those of clients that have ended; empty: all drafts."""
        page: Drafts = self.call("list_drafts", client=client)
        found = {one.group: one.text for one in page.drafts}
        while page.more and page.drafts:
            page = self.call("list_drafts", after=page.drafts[-1].group, client=client)
            found |= {one.group: one.text for one in page.drafts}
        return found

    def subscribe(
        self,
        groups: list[str] | None = None,
        since: int | Since | None = None,
        *,
        types: list[str] | None = None,
        consumer: str | None = None,
        credit: int = CREDIT,
        take_over: bool = False,
    ) -> Subscribed:
        subscribed: Subscribed = self.call(
            "subscribe", groups=groups, since=since, types=types, consumer=consumer, credit=credit, take_over=take_over
        )
        return subscribed

    def acknowledge(self, consumer: str, seq: int) -> AcknowledgeResult:
        """Acknowledge all items up to `seq`; this is on disk when the call returns."""
        acked: AcknowledgeResult = self.call("acknowledge", consumer=consumer, seq=seq)
        return acked

    def list_consumers(self) -> list[ConsumerInfo]:
        found: list[ConsumerInfo] = self.call("list_consumers")
        return found

    def delete_consumer(self, consumer: str) -> None:
        self.call("delete_consumer", consumer=consumer)

    def create_backup(self, on_progress: Callable[[BackupProgress], object] = lambda progress: None) -> str:
        """The path of an encrypted copy of the journal. Move it away. `on_progress` is called while it is made."""
        self.observers["backup_progress"] = on_progress
        copied: BackupCopy = self.call("create_backup", within_s=BACKUP_S_MAX)
        return str(path_from_wire(copied.path))

    def stop_agent(self) -> None:
        """Stop the agent; it may exit before it answers."""
        with suppress(AgentGone):
            self.call("stop_agent")


def connect(places: "ProfilePaths", name: str = "") -> Client:
    """A client of the profile's agent. Raises NoAgent where none is running, AgentUnreachable where its socket cannot
    be opened, and AgentUnclear or AgentError where it uses another protocol."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT_S_MAX)
    try:
        connection.connect(str(places.socket))
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        connection.close()
        raise NoAgent(profile=places.profile) from None
    except OSError as error:
        connection.close()
        raise AgentUnreachable(path=places.socket, why=(error.strerror or str(error)).lower()) from error
    client = Client(connection)
    try:
        hello = client.hello(name)
        if hello.protocol != PROTOCOL:
            raise AgentUnclear(why=f"it uses protocol {hello.protocol}, and this program {PROTOCOL}")
    except AgentGone:  # it was about to end
        client.close()
        raise NoAgent(profile=places.profile) from None
    except BaseException:
        client.close()
        raise
    client.owner = hello.owner
    return client
