"""Verb invite: creates, lists and revokes the invitations of a group."""

import os

from zerochat.agent.storage.paths import user_path
from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import local_time, name_of, table
from zerochat.cli.grammar import EXPIRES_S, Options, Parser, Verbs, add_verb, group_argument
from zerochat.cli.invitation_input import qr_lines
from zerochat.cli.output import Output, narrate
from zerochat.cli.value_types import history_rule, lifetime, positive
from zerochat.errors import LocalError
from zerochat.presentation import group_rules, history_rules
from zerochat.rpc import InvitationInfo, Invitee
from zerochat.terminal_text import printable, printable_line

NO_SERVER = "You have no mediator, which would serve a short link: this is the full one."
INVITATION_FORMATS = ("text", "short", "url", "code", "qr", "json", "jsonl")


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "invite",
        "create an invitation to a group, or list or revoke invitations",
        "Create an invitation. Anyone who has it can join until it expires or is used up, so send it over a channel\n"
        "you trust. Every member can invite. Your agent must be running when the invitation is used.",
        """
zerochat invite hikers
zerochat invite hikers --name "for Bob"
zerochat invite hikers --format short
zerochat invite hikers --read-only
zerochat invite hikers --history none
zerochat invite hikers --format url | wl-copy
zerochat invite hikers --format qr --expires 10m
zerochat invite hikers --format code --uses 5 --expires 7d
zerochat invite hikers --image code.png
zerochat invite hikers --list
""",
        formats=INVITATION_FORMATS,
        run=invite,
    )
    group_argument(parser)
    parser.add_argument(
        "--expires",
        dest="expires_s",
        type=lifetime,
        default=EXPIRES_S,
        metavar="TIME",
        help="lifetime, such as 90s, 30m, 24h or 7d (default: 24h)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--image", metavar="FILE", help="also write the QR code to this file, as PNG")
    what.add_argument("--list", dest="list_open", action="store_true", help="list the open invitations and their users")
    what.add_argument("--revoke", metavar="ID", help="revoke the invitation with this id (see --list)")
    parser.add_argument(
        "--uses",
        type=positive,
        metavar="N",
        help="number of members who can use it (default: 1; no limit in an open group)",
    )
    parser.add_argument(
        "--name",
        metavar="TEXT",
        help='what you call it, such as "for Bob", in --list and when it is used; its users do not see it',
    )
    parser.add_argument("--read-only", action="store_true", help="admit members as readers, who cannot post")
    parser.add_argument(
        "--history",
        dest="history_rule",
        type=history_rule,
        metavar="RULE",
        help="earlier messages that its users receive: none, all, last:N or since:DATE, at most what the group allows"
        " (default: the rule of the group)",
    )


class NoCode(LocalError):
    """This invitation uses a mediator and has no short code. Use a link: --format short, or --format url."""


class NoCodeFits(LocalError):
    """This invitation is too long for a QR code. Use its link, without --image."""


class ImageNotWritten(LocalError):
    """Cannot write the image {path}: {why}. The invitation itself is valid."""


def invite(options: Options, out: Output) -> ExitCode:
    if options.list_open:
        return _list(options, out)
    if options.revoke is not None:
        return _revoke(options, out)
    with attached(options) as agent:
        invitation = agent.client.create_invitation(
            options.group,
            expires_s=options.expires_s or EXPIRES_S,
            uses=options.uses,
            role="reader" if options.read_only else "writer",
            history=options.history_rule,
            name=options.name or "",
        )
        if agent.own:
            narrate(
                "This invitation works only while your agent runs: start `zerochat agent`, or keep the chat open "
                "until it"
                " has been used."
            )
        if not invitation.role_binds:
            narrate(group_rules.ROLE_NOT_BOUND)
        if elsewhere := group_rules.local_only(invitation):
            narrate(elsewhere)
        if options.image is not None:
            _write_image(invitation, options.image)
        _print_invitation(invitation, options.format, out)
    return ExitCode.OK


def _print_invitation(invitation: InvitationInfo, format_: str, out: Output) -> None:
    if not invitation.short and format_ in ("text", "qr", "short") and invitation.short_missing:
        narrate(printable_line(invitation.short_missing))
    elif not invitation.short and format_ == "short":
        narrate(NO_SERVER)
    match format_:
        case "short":
            out.exactly(printable(invitation.short or invitation.url))
        case "url":
            out.exactly(printable(invitation.url))
        case "code":
            if not invitation.code:
                raise NoCode
            out.exactly(printable(invitation.code))
        case "qr":
            # The QR code comes last, so that it is completely visible above the prompt.
            code = [text for text in (invitation.code, invitation.short) if text]
            out.data(invitation, [invitation.url, "", *(line for text in code for line in (text, ""))])
            for line in qr_lines(invitation.short or invitation.code or invitation.url):
                out.exactly(line)
        case _:
            out.data(invitation, _invitation_lines(invitation))


def _invitation_lines(invitation: InvitationInfo) -> list[str]:
    uses = {0: "unlimited uses", 1: "one use"}.get(invitation.uses, f"{invitation.uses} uses")
    return table(
        [
            *([("name", printable_line(invitation.name))] if invitation.name else []),
            *([("short", invitation.short)] if invitation.short else []),
            ("link", invitation.url),
            *([("code", invitation.code)] if invitation.code else []),
            ("valid", f"{uses}, until {local_time(invitation.expires_at)}"),
            *([("role", "reader, who cannot post")] if invitation.role == "reader" else []),
            *([("history", history_rules.rule_text(invitation.history))] if invitation.history != "all" else []),
            ("address", invitation.endpoint),
        ]
    )


def _write_image(invitation: InvitationInfo, file: str) -> None:
    """Write the QR code to a new PNG file."""
    from zerochat.agent.invitations.qr_pictures import code_png

    path = user_path(file)
    try:
        png = code_png(printable(invitation.short or invitation.code or invitation.url))
        # Its holder can join, so no other user of this machine may read it: created private, whatever the umask.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(png)
    except ValueError:
        raise NoCodeFits from None
    except OSError as error:
        raise ImageNotWritten(path=path, why=error.strerror or "I/O error") from None


def _revoke(options: Options, out: Output) -> ExitCode:
    assert options.revoke is not None
    with attached(options) as agent:
        group = agent.client.revoke_invitation(options.group, options.revoke)
        out.data(group, [group.id])
        narrate("The invitation is revoked. Members who have already joined stay.")
    return ExitCode.OK


def _list(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.list_invitations(options.group)
        rows = [
            (
                one.id,
                printable_line(one.name),
                f"{sum(each.state == 'joined' for each in one.invitees)}/{one.uses or '∞'} joined",
                f"until {local_time(one.expires_at)}",
                one.role,
                ", ".join(_invitee(each) for each in one.invitees) or "not used",
            )
            for one in found
        ]
        out.data_list(found, table(rows) if rows else [])
        if not rows:
            narrate("You have no open invitations to this group.")
    return ExitCode.OK


def _invitee(one: Invitee) -> str:
    if one.state == "joining":
        return "a new member is joining"
    return f"{name_of(one.nick)} {'is waiting for your approval' if one.state == 'waiting' else one.state}"
