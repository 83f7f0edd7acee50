"""Verb msg: private conversations, and the invitations to them."""

from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import local_time, name_of, quoted, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output, narrate
from zerochat.cli.verbs.send import report_delivery, text_to_send
from zerochat.errors import LocalError
from zerochat.names import matching_ids
from zerochat.presentation import private
from zerochat.rpc import GroupInfo, PrivateInvitationInfo

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "msg",
        "write to one member in private",
        "Find or begin the private conversation with a member, a group of the two, and send TEXT to it (-: read\n"
        "standard input). Prints the id of the message; without TEXT, of the conversation. The member gets an\n"
        "invitation; what you write is delivered when it has accepted. Without MEMBER, list the conversations and\n"
        "the invitations to you.",
        """
zerochat msg bob "Are you coming?"
zerochat msg bob --group hikers
zerochat msg
zerochat msg alice --accept
zerochat msg mallory --decline
""",
        run=msg,
    )
    parser.stray_hint = ". Put the text in quotes."
    parser.add_argument(
        "peer",
        nargs="?",
        default="",
        metavar="MEMBER",
        help="a member's name or key, GROUP/NAME, or the title of a conversation",
    )
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the text to send; -: read standard input")
    parser.add_argument(
        "--group", default="", metavar="GROUP", help="the group in which you know the member (default: any)"
    )
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument(
        "--accept", action="store_const", const="accept", dest="answer", help="accept the member's invitation"
    )
    answer.add_argument(
        "--decline",
        action="store_const",
        const="decline",
        dest="answer",
        help="decline it; the member is not told and keeps waiting",
    )


class WhichMember(LocalError):
    """Give the member whose invitation you want to answer. `zerochat msg` lists the invitations."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NotInvited(LocalError):
    """{member} does not invite you to a private conversation{also}. `zerochat msg` lists the invitations."""


def msg(options: Options, out: Output) -> ExitCode:
    if options.answer and not options.peer:
        raise WhichMember
    text = None if options.text is None else text_to_send(options.text, options.verb)
    with attached(options) as agent:
        if options.answer:
            return _answer(agent, options, out)
        if not options.peer:
            return _list(agent.client.list_groups(), out)
        info = agent.client.open_conversation(options.peer, options.group)
        if text is None:
            out.data(info, [info.id])
            narrate(f"{name_of(info.name)}: {private.state_text(info, name_of)}.")
            return ExitCode.OK
        sent = agent.client.send_message(info.id, text)
        out.report(sent, [sent.id])
        if info.private is not None and info.private.state == "waiting":
            narrate(f"Queued: {private.state_text(info, name_of)}.")
            return ExitCode.UNREACHABLE
        return report_delivery(agent, sent)


def _list(groups: list[GroupInfo], out: Output) -> ExitCode:
    invited = [one for group in groups for one in group.private_invitations]
    known = [group for group in groups if group.private is not None and group.state != "left"]
    names = {group.id: name_of(group.name) for group in groups}
    rows = [(name_of(group.name), private.state_text(group, name_of)) for group in known]
    rows += [
        (name_of(one.nick), f"invites you, from {names[one.group]}, until {local_time(one.expires_at)}")
        for one in invited
    ]
    out.data_list([*known, *invited], table(rows) if rows else [])
    if not rows:
        narrate("No private conversations. `zerochat msg MEMBER TEXT` begins one.")
    for one in invited:
        narrate(f"Answer with `zerochat msg --accept {quoted(one.nick)}` or `--decline`.")
    return ExitCode.OK


def _invitations(groups: list[GroupInfo], member: str, wanted: str) -> list[PrivateInvitationInfo]:
    """The invitations by a member of this name or key. `wanted`: the group's name, id or prefix; empty: any."""
    called = matching_ids({group.id: (group.name,) for group in groups}, wanted)
    return [
        one
        for group in groups
        if not wanted or group.id in called
        for one in group.private_invitations
        if member.casefold() in (one.nick.casefold(), one.did.casefold())
    ]


def _answer(agent: "Attached", options: Options, out: Output) -> ExitCode:
    groups = agent.client.list_groups()
    found = _invitations(groups, options.peer, options.group)
    name, _, member = options.peer.rpartition("/")
    if name and not found and not options.group:
        found = _invitations(groups, member, name)
    if len(found) != 1:
        also = ", or several members of this name do: add --group" if found else ""
        raise NotInvited(member=options.peer, also=also)
    (invitation,) = found
    accept = options.answer == "accept"
    info = agent.client.answer_private_invitation(invitation.group, invitation.did, accept)
    out.data(info, [])
    who = name_of(invitation.nick)
    if accept:
        narrate(f"Accepted. You join when {who} is connected; `zerochat msg` shows the conversation then.")
    else:
        narrate(f"Declined. {who} is not told.")
    return ExitCode.OK
