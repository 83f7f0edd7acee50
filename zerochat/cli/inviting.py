"""What `zerochat invite` does besides making an invitation: a picture of it, a list of those that are open, and taking
one back."""

from pathlib import Path

from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, local_time, name_of, narrate, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.rpc import InvitationInfo, Invitee
from zerochat.terminal_text import printable


class NoCodeFits(LocalError):
    """This invitation is too long for a QR code. Hand over its link: leave --image out."""


class PictureNotWritten(LocalError):
    """The picture {path} cannot be written: {why}. The invitation is good all the same."""


def draw(invitation: InvitationInfo, file: str) -> None:
    """Draw the invitation's code into a file, which must not be there yet."""
    from zerochat.agent.invitations.qr_pictures import code_png

    path = Path(file).expanduser()
    try:
        png = code_png(printable(invitation.short or invitation.code or invitation.url))
        with path.open("xb") as out:
            out.write(png)
    except ValueError:
        raise NoCodeFits from None
    except OSError as error:
        raise PictureNotWritten(path=path, why=error.strerror or "the disk says no") from None


def revoke(options: Options, out: Output) -> ExitCode:
    assert options.revoke is not None
    with attached(options) as agent:
        group = agent.client.revoke(options.group, options.revoke)
        out.data(group, [group.id])
        narrate("Nobody gets in with that invitation any more. Whoever is in stays.")
    return ExitCode.OK


def list_open(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.invitations(options.group)
        rows = [
            (
                one.id,
                f"{sum(each.state == 'joined' for each in one.invitees)}/{one.uses or 'all'} in",
                f"until {local_time(one.expires_at)}",
                "to read only" if one.role == "reader" else "to write",
                ", ".join(_invitee(each) for each in one.invitees) or "not used yet",
            )
            for one in found
        ]
        out.data_list(found, table(rows) if rows else [])
        if not rows:
            narrate("No invitation of yours to that group is open.")
    return ExitCode.OK


def _invitee(one: Invitee) -> str:
    if one.state == "joining":
        return "somebody is joining"
    return f"{name_of(one.nick)} {'waits for your answer' if one.state == 'waiting' else one.state}"
