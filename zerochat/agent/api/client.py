"""The control socket's other end: how a face asks the agent of its profile, and hears its news.

`Dialogue` is the protocol without any input or output; `Client` puts it on a blocking socket, which is all that a verb
of the command line needs. Neither needs more than the standard library and msgspec, so `zerochat send` starts at once.
"""

import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import asdict

from zerochat.errors import LocalError, Retry
from zerochat.rpc import (
    LINE_BYTES_MAX,
    METHODS,
    NEWS,
    PROTOCOL,
    Acked,
    Announced,
    AnnouncedCommand,
    CaseInfo,
    CasePart,
    ConsumerInfo,
    Copied,
    DeliveryReport,
    Drafts,
    Evidence,
    Fate,
    FileInfo,
    FileList,
    Found,
    GroupInfo,
    Hello,
    History,
    Imported,
    InvitationInfo,
    JoinStatus,
    Ledger,
    LogInfo,
    LogRow,
    MemberInfo,
    OpenInvitation,
    ProofLines,
    RequestInfo,
    Rows,
    Saved,
    SearchParams,
    Sent,
    Since,
    Status,
    Subscribed,
    VoteInfo,
    WordsInfo,
)
from zerochat.rpc.subscriptions import CREDIT

if TYPE_CHECKING:
    from zerochat.agent.storage.paths import Places

ANSWER_S_MAX = 30.0
"""How long an agent may think before we say that it does not answer."""
BACKUP_S_MAX = 600.0
"""And how long a copy of its journal may take."""
FILES_S_MAX = 600.0
"""And how long it may take to read or write large files."""
CONNECT_S_MAX = 5.0
READ_BYTES_MAX = 1 << 16


class NoAgent(LocalError):
    """No agent is running for the profile {profile}. Start one with `zerochat --profile {profile} agent`, or open the
    chat with `zerochat --profile {profile}`."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Retry] = "later"


class AgentUnreachable(LocalError):
    """The agent's control socket cannot be reached at {path}: {why}."""

    exit_code: ClassVar[int] = 6


class AgentGone(LocalError):
    """The agent has closed the connection. If it was not stopped on purpose, its log says why (`zerochat locate log`);
    start it again with `zerochat agent`."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1


class AgentSilent(LocalError):
    """The agent has not answered {method} for {seconds} seconds. It may be stuck: stop it and start it again, nothing
    is lost."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1


class AgentUnclear(LocalError):
    """The agent's answer cannot be read: {why}. It may be another version of zerochat than this one: stop it and start
    it again."""

    exit_code: ClassVar[int] = 6


class AgentError(LocalError):
    """{message}"""

    def __init__(
        self, code: str, message: str, number: int, exit_code: int = 1, data: Mapping[str, object] | None = None
    ) -> None:
        """`code`: the stable name of what was refused. `number`: JSON-RPC's own. `data`: what else it says."""
        super().__init__(message=message)
        self._code = code
        self.number = number
        self.data = dict(data or {})
        retry, after = self.data.get("retry"), self.data.get("retry_after_s")
        # What the agent says, and not one for the class.
        self.exit_code = exit_code  # type: ignore[misc]
        self.retry = retry if retry in ("later", "now") else "never"  # type: ignore[misc]
        self.retry_after_s = after if isinstance(after, int) else 0  # type: ignore[misc]

    @property
    def code(self) -> str:
        return self._code


class Reply(Struct, frozen=True):
    """The answer to one request: the result in its method's shape, or the refusal."""

    id: int
    method: str
    result: object | AgentError


class News(Struct, frozen=True):
    """One notification; `item` has the shape that `schema.NEWS` gives for `method`."""

    method: str
    item: Struct


class _Error(Struct, frozen=True):
    code: int
    message: str
    data: dict[str, Any] | None = None


class _Line(Struct, frozen=True):
    id: int | str | UnsetType | None = UNSET
    method: str = ""
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: _Error | None = None


_lines = msgspec.json.Decoder(_Line)


@cache
def _result_decoder(method: str) -> "msgspec.json.Decoder[object]":
    return msgspec.json.Decoder(cast(type[object], METHODS[method][1]))


@cache
def _news_decoder(method: str) -> msgspec.json.Decoder[Struct]:
    return msgspec.json.Decoder(NEWS[method])


class Dialogue:
    """A face's side of the conversation: bytes to send for what is asked, and what the bytes that came in mean."""

    def __init__(self) -> None:
        self._asked: dict[int, str] = {}
        self._next_id = 1
        self._heard = bytearray()
        self._scanned = 0

    def ask(self, method: str, params: dict[str, object]) -> tuple[int, bytes]:
        """The id under which the `Reply` will come, and the line to send."""
        request_id = self._next_id
        self._next_id += 1
        self._asked[request_id] = method
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return request_id, msgspec.json.encode(request) + b"\n"

    def hear(self, data: bytes) -> list[Reply | News]:
        """What the lines say that are whole with `data`. News of a kind that we do not know is skipped.

        Raises AgentUnclear when a line is not one that an agent of our protocol would send.
        """
        self._heard += data
        if self._heard.find(b"\n", self._scanned) < 0:
            self._scanned = len(self._heard)
            if self._scanned > LINE_BYTES_MAX:
                raise AgentUnclear(why="a line without end")
            return []
        *lines, rest = bytes(self._heard).split(b"\n")
        self._heard = bytearray(rest)
        self._scanned = len(rest)
        return [said for line in lines if line and (said := self._understand(line)) is not None]

    def _understand(self, line: bytes) -> Reply | News | None:
        try:
            said = _lines.decode(line)
            if said.method:
                if said.method not in NEWS or said.params is UNSET:
                    return None
                return News(said.method, _news_decoder(said.method).decode(said.params))
            if said.error is not None:
                return self._refusal(said.id, said.error)
            if not isinstance(said.id, int) or said.id not in self._asked or said.result is UNSET:
                return None
            method = self._asked.pop(said.id)
            return Reply(said.id, method, _result_decoder(method).decode(said.result))
        except (ValueError, RecursionError) as error:
            raise AgentUnclear(why=error) from error

    def _refusal(self, request_id: int | str | UnsetType | None, error: _Error) -> Reply | None:
        data = error.data or {}
        code, exit_code = data.get("code"), data.get("exit_code")
        refusal = AgentError(
            code if isinstance(code, str) else "AgentError",
            error.message,
            error.code,
            exit_code if isinstance(exit_code, int) else 1,
            data,
        )
        if request_id is None:
            raise refusal  # about the connection or a line of ours, not about one request
        method = self._asked.pop(request_id, None) if isinstance(request_id, int) else None
        return Reply(cast(int, request_id), method, refusal) if method is not None else None


class Client:
    """A blocking conversation with the agent, for one thread.

    Every method raises AgentError when the agent refuses, AgentGone, AgentSilent or AgentUnclear when it fails.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._dialogue = Dialogue()
        self._news: deque[News] = deque()
        self._replies: dict[int, object | AgentError] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def call(self, method: str, *, within_s: float = ANSWER_S_MAX, **params: object) -> Any:
        """Ask, and wait for the answer: the struct (or list) that `schema.METHODS` gives for `method`.

        The methods below say the same with types. News that comes meanwhile is kept for `news`.
        """
        deadline = time.monotonic() + within_s
        request_id, line = self._dialogue.ask(method, params)
        try:
            self._socket.settimeout(within_s)
            self._socket.sendall(line)
        except TimeoutError:
            raise AgentSilent(method=method, seconds=round(within_s)) from None
        except OSError:
            pass  # the agent's last words may still be there to read
        while request_id not in self._replies:
            if not self._hear(deadline):
                raise AgentSilent(method=method, seconds=round(within_s))
        result = self._replies.pop(request_id)
        self._replies.clear()  # answers that came after we had stopped waiting for them
        if isinstance(result, AgentError):
            raise result
        return result

    def next_news(self, within_s: float | None = None) -> News | None:
        """The next piece of news; None when there is none within `within_s` seconds (None: wait for ever)."""
        deadline = None if within_s is None else time.monotonic() + within_s
        while not self._news:
            if not self._hear(deadline):
                return None
        return self._news.popleft()

    def news(self, within_s: float | None = None) -> Iterator[News]:
        """News as it comes, until there has been none for `within_s` seconds (None: for ever). `subscribe` first."""
        while (item := self.next_news(within_s)) is not None:
            yield item

    def _hear(self, deadline: float | None) -> bool:
        """Read once. False: the deadline passed."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        try:
            self._socket.settimeout(left)  # which fails where somebody has closed it meanwhile
            data = self._socket.recv(READ_BYTES_MAX)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            raise AgentGone
        for said in self._dialogue.hear(data):
            if isinstance(said, News):
                self._news.append(said)
            else:
                self._replies[said.id] = said.result
        return True

    # --- the methods of schema/, typed -----------------------------------------------------------------------------

    def hello(self, name: str = "") -> Hello:
        hello: Hello = self.call("hello", within_s=CONNECT_S_MAX, protocol=PROTOCOL, client=name)
        return hello

    def status(self) -> Status:
        status: Status = self.call("status")
        return status

    def groups(self) -> list[GroupInfo]:
        groups: list[GroupInfo] = self.call("groups")
        return groups

    def new(
        self,
        group: str,
        *,
        envelope: str = "didcomm/v2",
        keys: str = "pairwise-multi",
        accountability: str = "acks",
        join: str = "invited",
        remove: str | None = None,
        quorum: int | None = None,
        roles: str = "flat",
        agreement: str = "permissive",
        history: str = "all",
        keepers: int = 0,
    ) -> GroupInfo:
        info: GroupInfo = self.call(
            "new",
            group=group,
            envelope=envelope,
            keys=keys,
            accountability=accountability,
            join=join,
            remove=remove,
            quorum=quorum,
            roles=roles,
            agreement=agreement,
            history=history,
            keepers=keepers,
        )
        return info

    def invite(
        self,
        group: str,
        *,
        expires_s: int = 24 * 3600,
        uses: int = 1,
        role: str = "writer",
        history: str | None = None,
    ) -> InvitationInfo:
        info: InvitationInfo = self.call(
            "invite", group=group, expires_s=expires_s, uses=uses, role=role, history=history
        )
        return info

    def invitations(self, group: str) -> list[OpenInvitation]:
        """My invitations to a group that are open, with those who have used them."""
        found: list[OpenInvitation] = self.call("invitations", group=group)
        return found

    def revoke(self, group: str, invitation: str) -> GroupInfo:
        """Take an invitation back; by its id, or the beginning of that."""
        info: GroupInfo = self.call("revoke", group=group, invitation=invitation)
        return info

    def join(self, invitation: str, name: str | None = None, role: str = "writer") -> JoinStatus:
        """The join's first phase; the others come as news (`join`), so subscribe before."""
        status: JoinStatus = self.call("join", invitation=invitation, name=name, role=role)
        return status

    def cancel(self, join: str = "") -> JoinStatus:
        status: JoinStatus = self.call("cancel", join=join)
        return status

    def send(
        self, group: str, text: str, *, reply_to: str | None = None, action: bool = False, key: str | None = None
    ) -> Sent:
        """Say something; under the same `key` (`SendParams`), once."""
        sent: Sent = self.call("send", group=group, text=text, reply_to=reply_to, action=action, key=key)
        return sent

    def edit(self, group: str, event: str, text: str, *, key: str | None = None) -> Sent:
        sent: Sent = self.call("edit", group=group, event=event, text=text, key=key)
        return sent

    def delete(self, group: str, event: str, *, key: str | None = None) -> Sent:
        sent: Sent = self.call("delete", group=group, event=event, key=key)
        return sent

    def react(self, group: str, event: str, emoji: str, *, on: bool = True, key: str | None = None) -> Sent:
        sent: Sent = self.call("react", group=group, event=event, emoji=emoji, on=on, key=key)
        return sent

    def topic(self, group: str, text: str, *, key: str | None = None) -> Sent:
        sent: Sent = self.call("topic", group=group, text=text, key=key)
        return sent

    def announce(self, group: str, commands: Sequence[AnnouncedCommand] = (), *, bot: bool = True) -> Announced:
        """Say of myself that I am a bot, and which commands I listen to."""
        announced: Announced = self.call("announce", group=group, bot=bot, commands=list(commands))
        return announced

    def attach(
        self,
        group: str,
        paths: Sequence[str],
        text: str = "",
        *,
        reply_to: str | None = None,
        action: bool = False,
        key: str | None = None,
    ) -> Sent:
        """Send a message with files; `paths` are whole ones."""
        sent: Sent = self.call(
            "attach",
            within_s=FILES_S_MAX,
            group=group,
            paths=list(paths),
            text=text,
            reply_to=reply_to,
            action=action,
            key=key,
        )
        return sent

    def files(self, group: str) -> Iterator[FileInfo]:
        """The files of a group, the newest first."""
        after, more = "", True
        while more:
            page: FileList = self.call("files", group=group, after=after)
            yield from page.files
            more = page.more and bool(page.files)
            after = page.files[-1].file.id if page.files else ""

    def get(self, group: str, file: str) -> FileInfo:
        """Have a file fetched; how it gets on comes as news (`file`), so subscribe before."""
        info: FileInfo = self.call("get", group=group, file=file)
        return info

    def drop(self, group: str, file: str) -> FileInfo:
        info: FileInfo = self.call("drop", group=group, file=file)
        return info

    def save(self, group: str, file: str, to: str = "") -> Saved:
        saved: Saved = self.call("save", within_s=FILES_S_MAX, group=group, file=file, to=to)
        return saved

    def wait(self, group: str, event_id: str, *, count: int = -1, timeout_s: float = 30.0) -> DeliveryReport:
        report: DeliveryReport = self.call(
            "wait", within_s=timeout_s + ANSWER_S_MAX, group=group, id=event_id, count=count, timeout_s=timeout_s
        )
        return report

    def delivery(self, group: str, event_id: str) -> DeliveryReport:
        report: DeliveryReport = self.call("delivery", group=group, id=event_id)
        return report

    def why(self, group: str, event_id: str) -> Fate:
        fate: Fate = self.call("why", group=group, id=event_id)
        return fate

    def ledger(self, group: str) -> Ledger:
        ledger: Ledger = self.call("ledger", group=group)
        return ledger

    def log(self, ledger: Ledger) -> Iterator[LogRow]:
        """Every row of the log of which `ledger` speaks, in the order that every member sees, page by page."""
        page: Rows = self.call("rows", group=ledger.group, latest=ledger.latest)
        yield from page.rows
        while page.last is not None:
            page = self.call("rows", group=ledger.group, latest=ledger.latest, after=page.last)
            yield from page.rows

    def proof(self, group: str, event_id: str = "", author: str = "", after: int = 0) -> ProofLines:
        """The lines of a proof of a message, or, without one, the next ones of that of an author's whole stream."""
        lines: ProofLines = self.call("proof", group=group, id=event_id, author=author, after=after)
        return lines

    def accuse(self, group: str, member: str) -> CaseInfo:
        """Accuse a member of what is missing in its stream the longest."""
        case: CaseInfo = self.call("accuse", group=group, member=member)
        return case

    def cases(self, group: str) -> list[CaseInfo]:
        """The cases of a group, the oldest first."""
        cases: list[CaseInfo] = self.call("cases", group=group)
        return cases

    def case(self, group: str, case: str) -> bytes:
        """A case as a file has it."""
        first: CasePart = self.call("case", group=group, case=case)
        text, part = first.text, first
        while len(text) < part.size:
            part = self.call("case", group=group, case=case, after=len(text))
            if part.digest != first.digest:  # the log has grown meanwhile
                return self.case(group, case)
            text += part.text
        return text.encode()

    def group_log(self, group: str) -> LogInfo:
        """How the group's log stands, and who keeps it."""
        found: LogInfo = self.call("log", group=group)
        return found

    def terms(self, group: str, operator: str, witnesses: Sequence[str]) -> LogInfo:
        """Say who keeps the group's log from now on."""
        found: LogInfo = self.call("terms", group=group, operator=operator, witnesses=list(witnesses))
        return found

    def evidence(self, group: str, event_id: str = "") -> Evidence:
        """What can be proven in a group, and of one event."""
        found: Evidence = self.call("evidence", group=group, id=event_id)
        return found

    def import_page(self, group: str, records: Sequence[bytes], *, back: bool = False) -> Imported:
        """Have the agent take in what it lacks of these records; `back`: they go from the newest to the oldest."""
        imported: Imported = self.call("import", group=group, records=records, back=back)
        return imported

    def history(self, group: str, *, limit: int = 100, before: str | None = None) -> History:
        history: History = self.call("history", group=group, limit=limit, before=before)
        return history

    def search(self, params: SearchParams) -> Found:
        found: Found = self.call("search", **asdict(params))
        return found

    def members(self, group: str) -> list[MemberInfo]:
        members: list[MemberInfo] = self.call("members", group=group)
        return members

    def requests(self, group: str) -> list[RequestInfo]:
        requests: list[RequestInfo] = self.call("requests", group=group)
        return requests

    def answer(self, group: str, who: str, admit: bool, *, nick: str = "", role: str = "") -> GroupInfo:
        """`nick`, `role`: what was shown of whoever asks; nobody else is let in."""
        info: GroupInfo = self.call("answer", group=group, who=who, admit=admit, nick=nick, role=role)
        return info

    def remove(self, group: str, member: str) -> VoteInfo:
        vote: VoteInfo = self.call("remove", group=group, member=member)
        return vote

    def role(self, group: str, role: str, member: str = "") -> MemberInfo:
        changed: MemberInfo = self.call("role", group=group, role=role, member=member)
        return changed

    def rename(self, group: str, name: str) -> GroupInfo:
        info: GroupInfo = self.call("rename", group=group, name=name)
        return info

    def words(self, group: str, member: str = "", said: str = "") -> WordsInfo:
        words: WordsInfo = self.call("words", group=group, member=member, said=said)
        return words

    def verify(self, group: str, member: str, verified: bool = True) -> MemberInfo:
        changed: MemberInfo = self.call("verify", group=group, member=member, verified=verified)
        return changed

    def leave(self, group: str) -> GroupInfo:
        info: GroupInfo = self.call("leave", group=group)
        return info

    def forget(self, group: str) -> None:
        self.call("forget", group=group)

    def resume(self, group: str) -> GroupInfo:
        info: GroupInfo = self.call("resume", group=group)
        return info

    def dismiss(self, group: str, member: str = "") -> GroupInfo:
        info: GroupInfo = self.call("dismiss", group=group, member=member)
        return info

    def draft(self, group: str, text: str) -> None:
        """Have the agent keep what is begun in a group; empty: nothing is."""
        self.call("draft", group=group, text=text)

    def drafts(self) -> dict[str, str]:
        """What is begun in which group, by its id."""
        page: Drafts = self.call("drafts")
        found = {one.group: one.text for one in page.drafts}
        while page.more and page.drafts:
            page = self.call("drafts", after=page.drafts[-1].group)
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
        take: bool = False,
    ) -> Subscribed:
        subscribed: Subscribed = self.call(
            "subscribe", groups=groups, since=since, types=types, consumer=consumer, credit=credit, take=take
        )
        return subscribed

    def ack(self, consumer: str, seq: int) -> Acked:
        """Say that a consumer has handled everything up to `seq`; that is on disk when this returns."""
        acked: Acked = self.call("ack", consumer=consumer, seq=seq)
        return acked

    def consumers(self) -> list[ConsumerInfo]:
        found: list[ConsumerInfo] = self.call("consumers")
        return found

    def forget_consumer(self, consumer: str) -> None:
        self.call("forget_consumer", consumer=consumer)

    def backup(self) -> str:
        """Where the agent has put a copy of its journal, encrypted as ever. Take it away afterwards."""
        copied: Copied = self.call("backup", within_s=BACKUP_S_MAX)
        return copied.path

    def stop(self) -> None:
        """Ask the agent to end; it may be gone before it has answered."""
        with suppress(AgentGone):
            self.call("stop")


def connect(places: "Places", name: str = "") -> Client:
    """A client of the agent that owns the profile. Raises NoAgent when there is none, AgentUnreachable when its socket
    is not ours to open, and AgentError when it speaks another protocol."""
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
            raise AgentUnclear(why=f"it speaks protocol {hello.protocol}, and this program {PROTOCOL}")
    except BaseException:
        client.close()
        raise
    return client
