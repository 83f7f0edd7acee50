"""The verbs for groups: new, invite, join, leave, forget, resume, info."""

import sys
import time
from typing import TYPE_CHECKING

from zerochat.cli import inviting
from zerochat.cli.agents import attached
from zerochat.cli.confirm import NotConfirmed, agreed
from zerochat.cli.exits import ExitCode
from zerochat.cli.links import invitation_text, qr_lines
from zerochat.cli.output import (
    Output,
    earlier,
    find_group,
    local_time,
    name_of,
    narrate,
    put_out_sentence,
    quoted,
    split_words,
    table,
    whole,
)
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.presentation import group_rules, history_rules
from zerochat.rpc import CONTRADICTION, DisagreementNews, GroupInfo, InvitationInfo, JoinStatus, MemberInfo
from zerochat.terminal_text import printable, printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client

EXPIRES_S = 86_400
FAREWELL_S_MAX = 10.0
"""How long an agent that lives only for one `leave`, or to give a join up, stays to tell the others."""
LOOK_S = 0.1


class NoCode(LocalError):
    """This invitation leads over a mediator, so it has no short code. Hand over its link: add --format url."""


def new(options: Options, out: Output) -> ExitCode:
    rules = group_rules.settled(
        options.join_rule,
        options.removal,
        options.quorum,
        options.roles,
        options.agreement,
        options.history_rule or "all",
        options.keepers,
    )
    keys, accountability = group_rules.kind_for(options.kind, options.keys)
    with attached(options) as agent:
        group = agent.client.new(
            options.group,
            envelope=options.envelope,
            keys=keys,
            accountability=accountability,
            join=rules.join,
            remove=rules.remove,
            quorum=rules.quorum,
            roles=rules.roles,
            agreement=rules.agreement,
            history=rules.history,
            keepers=rules.keepers,
        )
        out.data(group, [group.id])
        narrate(
            f"Created the group {name_of(group.name)}. Bring others in with `zerochat invite {quoted(group.name)}`."
        )
        _tell_signing(group)
    return ExitCode.OK


def _tell_signing(group: GroupInfo) -> None:
    """What one gives up by speaking there, where that is so: before anything is said."""
    if said := group_rules.signing(group):
        narrate(f"{name_of(group.name)}: {said}")


# --- invitations ----------------------------------------------------------------------------------------------------


def invite(options: Options, out: Output) -> ExitCode:
    if options.list_open:
        return inviting.list_open(options, out)
    if options.revoke is not None:
        return inviting.revoke(options, out)
    with attached(options) as agent:
        invitation = agent.client.invite(
            options.group,
            expires_s=options.expires_s or EXPIRES_S,
            uses=options.uses,
            role="reader" if options.read_only else "writer",
            history=options.history_rule,
        )
        if agent.own:
            narrate(
                "Nobody answers this invitation until an agent of yours is running: start `zerochat agent`, or open"
                " the chat, and leave it open until it has been used."
            )
        _print_invitation(invitation, options.format, out)
        if options.image is not None:
            inviting.draw(invitation, options.image)
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
    uses = {0: "for as many as come", 1: "once"}.get(invitation.uses, f"{invitation.uses} times")
    return table(
        [
            ("link", invitation.url),
            *([("code", invitation.code)] if invitation.code else []),
            *([("short", invitation.short)] if invitation.short else []),
            ("good", f"{uses}, until {local_time(invitation.expires_at)}"),
            *([("lets in", "readers, who cannot send")] if invitation.role == "reader" else []),
            *([("gives", history_rules.given(invitation.history))] if invitation.history != "all" else []),
            ("leads to", invitation.endpoint),
        ]
    )


# --- joining --------------------------------------------------------------------------------------------------------


def join(options: Options, out: Output) -> ExitCode:
    if options.cancel is not None:
        return _cancel(options.cancel, options, out)
    invitation = invitation_text(options, "join")
    with attached(options) as agent:
        client = agent.client
        client.subscribe()
        begun = client.join(invitation, options.name, "reader" if options.read_only else "writer")
        status, reached = _follow(client, begun, options.timeout_s)
        if status.phase == "failed" and status.error == CONTRADICTION:
            return ExitCode.INTEGRITY
        if status.phase == "failed":
            return ExitCode.REFUSED if reached else ExitCode.UNREACHABLE
        if status.words:
            goes_on = "when it runs: `zerochat agent`, or the chat" if agent.own else "and `zerochat status` tells"
            narrate(
                f"Nobody has let you in yet. Your agent goes on asking for a day, {goes_on}."
                " `zerochat join --cancel` gives it up."
            )
            return ExitCode.TIMEOUT
        if status.phase != "joined":
            if agent.own:
                narrate("Not joined yet, and giving up. Run the same command again; the invitation is still good.")
            else:
                narrate("Not joined yet. The agent goes on trying for a while: `zerochat status` lists the groups.")
            return ExitCode.TIMEOUT
        group = next((known for known in client.groups() if known.id == status.group), None)
        out.data(group or status, [status.group])
        if group is not None:
            _tell_signing(group)
        if agent.own:
            narrate("You receive what is said there while an agent of yours is running: `zerochat agent`, or the chat.")
    return ExitCode.OK


def _cancel(which: str, options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        client = agent.client
        status = client.cancel(which)
        out.data(status, [status.join])
        narrate(f"You have given up joining {name_of(status.name) if status.name else 'with that invitation'}.")
        deadline = time.monotonic() + FAREWELL_S_MAX
        while agent.own and any(one.parting for one in client.status().joins) and time.monotonic() < deadline:
            time.sleep(LOOK_S)  # whoever has invited us should hear of it
    return ExitCode.OK


def _follow(client: "Client", status: JoinStatus, timeout_s: float) -> tuple[JoinStatus, bool]:
    """Narrate a join until it ends or the time is up. True: the inviter was reached."""
    deadline = time.monotonic() + timeout_s
    reached, said, words = False, "", False
    while status.phase not in ("joined", "failed"):
        news = client.next_news(max(deadline - time.monotonic(), 0.0))
        if news is None:
            break
        if isinstance(news.item, DisagreementNews):
            narrate(f"Careful: {printable_line(news.item.text)}")
        if isinstance(news.item, JoinStatus) and news.item.join == status.join:
            status = news.item
            reached |= status.phase not in ("dialling", "failed")
            if status.text != said:
                narrate(status.text)
                said = status.text
            if status.words and not words:
                words = True
                narrate(
                    "Whoever decides may want to hear the words of your key, to know that it is you:\n"
                    + "\n".join(f"  {line}" for line in split_words(status.words))
                )
    return status, reached


# --- going ---------------------------------------------------------------------------------------------------------


def leave(options: Options, out: Output) -> ExitCode:
    if not options.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise NotConfirmed(doing="Leaving", group=options.group)
    with attached(options) as agent:
        client = agent.client
        group = find_group(client.groups(), options.group)
        if group.state == "left":
            narrate(_over(group))
            return ExitCode.REMOVED if group.removed_by else ExitCode.OK
        warning = group_rules.owner_leaves(group, client.members(group.id)) if group.role == "owner" else ""
        if options.yes and warning:
            narrate(f"Careful: {warning}")
        if not options.yes and not _confirmed(group, warning):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        client.subscribe()
        group = client.leave(group.id)
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


def _confirmed(group: GroupInfo, warning: str) -> bool:
    """Whether the person at the terminal means it; `warning`: what else to think of, if anything."""
    if warning:
        narrate(warning)
    return agreed(f"Leave {name_of(group.name)}? Coming back needs a new invitation.")


def forget(options: Options, out: Output) -> ExitCode:
    if not options.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise NotConfirmed(doing="Forgetting", group=options.group)
    with attached(options) as agent:
        group = find_group(agent.client.groups(), options.group)
        if (
            not options.yes
            and group.state == "left"
            and not agreed(f"Forget {name_of(group.name)}? {group_rules.FORGET}")
        ):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        agent.client.forget(group.id)
        out.data({"group": group.id, "name": group.name}, [group.id])
        narrate(f"{name_of(group.name)} is forgotten.")
    return ExitCode.OK


def resume(options: Options, out: Output) -> ExitCode:
    if not options.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise NotConfirmed(doing="Resuming", group=options.group)
    with attached(options) as agent:
        group = find_group(agent.client.groups(), options.group)
        if not options.yes and group.suspended and not agreed(f"Resume {name_of(group.name)}? {group_rules.RESUME}"):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        group = agent.client.resume(group.id)
        out.data(group, [group.id])
        narrate(f"You can speak in {name_of(group.name)} again.")
    return ExitCode.OK


def _farewell(client: "Client", group: GroupInfo) -> GroupInfo:
    """Stay until everybody who can be reached knows that we left."""
    deadline = time.monotonic() + FAREWELL_S_MAX
    while group.state == "leaving" and (left := deadline - time.monotonic()) > 0:
        client.next_news(min(left, 0.5))
        group = next((known for known in client.groups() if known.id == group.id), group)
    return group


# --- what holds -----------------------------------------------------------------------------------------------------


def info(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        group = find_group(agent.client.groups(), options.group)
        members = agent.client.members(group.id)
    out.data(group, [*_info_lines(group, members), "", *group_rules.limits_of(group)])
    if group.state == "left":
        narrate(_over(group))
    return ExitCode.OK


def _over(group: GroupInfo) -> str:
    """That one is no longer in a group, and why."""
    if group.removed_by:
        return put_out_sentence(group)
    return f"You have left {name_of(group.name)}. Its history stays here; to come back you need a new invitation."


def _info_lines(group: GroupInfo, members: list[MemberInfo]) -> list[str]:
    entry, exit_, writing, disagreement, history = group_rules.rules_of(group.policy)
    before = earlier(group)
    rows = [
        ("group", f"{name_of(group.name)} ({group.id})"),
        *([("about", printable_line(group.topic))] if group.topic else []),
        ("you", _standing(group)),
        *([] if group.state == "left" else [("members", _present(group))]),
        *([("what is here", whole(group))] if group.completeness else []),
        *([("before you", before)] if before else []),
        ("getting in", entry),
        ("being put out", exit_),
        ("writing", writing),
        ("disagreement", disagreement),
        ("history", history),
        ("keys", f"{group.keys}: {group_rules.keys_of(group)}"),
        ("path", f"{group.path}: {group_rules.path_of(group)}"),
        ("accountability", f"{group.accountability}: {group_rules.accountability_of(group)}"),
        ("envelope", group.envelope),
    ]
    for role in ("owner", "admin", "reader"):
        rows += _named(role, [one for one in members if one.role == role])
    rows += _named("keeps the history", [one for one in members if one.keeper])
    rows += _named("verified", [one for one in members if one.trust == "verified"])
    rows += _named("not who they were", [one for one in members if one.trust == "changed"])
    rows += [("convicted", f"{name_of(one.nick)} {group_rules.guilt(one)}") for one in members if one.guilty]
    rows += _named("two histories", [one for one in members if one.forked])
    rows += _named(group_rules.NEVER_ARRIVED, [one for one in members if not one.arrived])
    if group.state == "left":
        return table(rows)
    rows += [
        ("voted against", f"{name_of(one.nick)}: {group_rules.counted(one)}{', with yours' if one.mine else ''}")
        for one in group.votes
    ]
    rows += [("waits to get in", name_of(one.nick)) for one in group.requests]
    return table(rows)


def _standing(group: GroupInfo) -> str:
    if group.state == "active":
        return f"{name_of(group.nick)}, {group.role}"
    return "put out" if group.removed_by else group.state


def _present(group: GroupInfo) -> str:
    return f"{group.members}; {group_rules.connected(group)}"


def _named(what: str, members: list[MemberInfo]) -> list[tuple[str, str]]:
    return [(what, ", ".join(name_of(one.nick) for one in members))] if members else []
