"""The verbs for who is in a group: new, invite, join, members, leave."""

import sys
import time
from typing import TYPE_CHECKING, ClassVar

from zerochat.agent.schema import GroupInfo, InvitationInfo, JoinStatus, MemberInfo
from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.links import invitation_text, qr_lines
from zerochat.cli.output import Output, local_time, member_lines, name_of, narrate, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.terminal import printable

if TYPE_CHECKING:
    from zerochat.agent.client import Client

EXPIRES_S = 86_400
FAREWELL_S_MAX = 10.0
"""How long an agent that lives only for one `leave` stays to tell the others."""
MEETING_S_MAX = 2.0
"""How long an agent that lives only for one `members` looks for the others: enough for those who are near."""
LOOK_S = 0.1


class NoCode(LocalError):
    """This invitation leads over a mediator, so it has no short code. Hand over its link: add --format url."""


class NotConfirmed(LocalError):
    """Leaving {group} must be confirmed, and there is no terminal to ask: add --yes."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def new(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        group = agent.client.new(options.group, envelope=options.envelope)
        out.data(group, [group.id])
        narrate(f"Made the group {name_of(group.name)}. Bring others in with `zerochat invite {name_of(group.name)}`.")
    return ExitCode.OK


# --- invitations ----------------------------------------------------------------------------------------------------


def invite(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        invitation = agent.client.invite(options.group, expires_s=options.expires_s or EXPIRES_S, uses=options.uses)
        if agent.own:
            narrate(
                "Nobody answers this invitation until an agent of yours is running: start `zerochat agent`, or open"
                " the chat, and leave it open until it has been used."
            )
        _print_invitation(invitation, options.format, out)
    return ExitCode.OK


def _print_invitation(invitation: InvitationInfo, format_: str, out: Output) -> None:
    match format_:
        case "url":
            out.exactly(printable(invitation.url))
        case "code":
            if not invitation.code:
                raise NoCode
            out.exactly(printable(invitation.code))
        case "qr":
            # The QR code comes last, so that all of it is on the screen when the prompt comes back.
            code = [text for text in (invitation.code, invitation.short) if text]
            out.data(invitation, [invitation.url, "", *(line for text in code for line in (text, ""))])
            for line in qr_lines(invitation.short or invitation.code or invitation.url):
                out.exactly(line)
        case _:
            out.data(invitation, _invitation_lines(invitation))


def _invitation_lines(invitation: InvitationInfo) -> list[str]:
    uses = "once" if invitation.uses == 1 else f"{invitation.uses} times"
    return table(
        [
            ("link", invitation.url),
            *([("code", invitation.code)] if invitation.code else []),
            *([("short", invitation.short)] if invitation.short else []),
            ("good", f"{uses}, until {local_time(invitation.expires_at)}"),
            ("leads to", invitation.endpoint),
        ]
    )


# --- joining --------------------------------------------------------------------------------------------------------


def join(options: Options, out: Output) -> ExitCode:
    invitation = invitation_text(options, "join")
    with attached(options) as agent:
        client = agent.client
        client.subscribe()
        status, reached = _follow(client, client.join(invitation, options.name), options.timeout_s)
        if status.phase == "failed":
            return ExitCode.REFUSED if reached else ExitCode.UNREACHABLE
        if status.phase != "joined":
            if agent.own:
                narrate("Not joined yet, and giving up. Run the same command again; the invitation is still good.")
            else:
                narrate("Not joined yet. The agent goes on trying for a while: `zerochat status` lists the groups.")
            return ExitCode.TIMEOUT
        group = next((known for known in client.groups() if known.id == status.group), None)
        out.data(group or status, [status.group])
        if agent.own:
            narrate("You receive what is said there while an agent of yours is running: `zerochat agent`, or the chat.")
    return ExitCode.OK


def _follow(client: "Client", status: JoinStatus, timeout_s: float) -> tuple[JoinStatus, bool]:
    """Narrate a join until it ends or the time is up. True: the inviter was reached."""
    deadline = time.monotonic() + timeout_s
    reached, said = False, ""
    while status.phase not in ("joined", "failed"):
        news = client.next_news(max(deadline - time.monotonic(), 0.0))
        if news is None:
            break
        if isinstance(news.item, JoinStatus) and news.item.join == status.join:
            status = news.item
            reached |= status.phase not in ("dialling", "failed")
            if status.text != said:
                narrate(status.text)
                said = status.text
    return status, reached


# --- members --------------------------------------------------------------------------------------------------------


def members(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = _meeting(agent.client, options.group) if agent.own else agent.client.members(options.group)
    out.data_list(found, member_lines(found))
    if agent.own and _absent(found):
        narrate(
            "The agent had only just started for this, so somebody may be here and not yet connected; `zerochat agent`"
            " keeps one running."
        )
    return ExitCode.OK


def _meeting(client: "Client", group: str) -> list[MemberInfo]:
    """The members, as soon as all of them are connected or the time for that is up."""
    client.subscribe()
    deadline = time.monotonic() + MEETING_S_MAX
    while _absent(found := client.members(group)) and (left := deadline - time.monotonic()) > 0:
        client.next_news(min(left, LOOK_S))
    return found


def _absent(members: list[MemberInfo]) -> bool:
    return any(member.connection not in ("self", "connected") for member in members)


def leave(options: Options, out: Output) -> ExitCode:
    if not options.yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise NotConfirmed(group=options.group)
        print(f"Leave {name_of(options.group)}? Coming back needs a new invitation. [y/N] ", end="", file=sys.stderr)
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
    with attached(options) as agent:
        client = agent.client
        client.subscribe()
        group = client.leave(options.group)
        if agent.own:
            group = _farewell(client, group)
        out.data(group, [group.id])
        if group.state == "left":
            narrate(f"You have left {name_of(group.name)}. Its history stays here.")
        elif agent.own:
            narrate(
                f"You are leaving {name_of(group.name)}. Not everybody has heard of it yet; they do when an agent runs:"
                " `zerochat agent`, or the chat."
            )
        else:
            narrate(f"You are leaving {name_of(group.name)}; the agent goes on telling those who do not know it yet.")
    return ExitCode.OK


def _farewell(client: "Client", group: GroupInfo) -> GroupInfo:
    """Stay until everybody who can be reached knows that we left."""
    deadline = time.monotonic() + FAREWELL_S_MAX
    while group.state == "leaving" and (left := deadline - time.monotonic()) > 0:
        client.next_news(min(left, 0.5))
        group = next((known for known in client.groups() if known.id == group.id), group)
    return group
