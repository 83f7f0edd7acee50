"""The verbs about the members of a group: members, requests, admit, refuse, remove, role, rename."""

import sys
import time
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import (
    Output,
    command_lines,
    find_group,
    find_member,
    local_time,
    member_lines,
    name_of,
    narrate,
    quoted,
    split_words,
    table,
    wanted_out,
    whole,
)
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.presentation import group_rules
from zerochat.rpc import GroupInfo, MemberInfo, RequestInfo

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.agent.api.client import Client

MEETING_S_MAX = 2.0
"""How long an agent that lives only for one `members` looks for the others: enough for those who are near."""
LOOK_S = 0.1
SPREAD_S_MAX = 5.0
"""How long an agent that lives only for one change stays to tell the others."""


class NotConfirmed(LocalError):
    """Putting {member} out must be confirmed, and there is no terminal to ask: add --yes."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def members(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        if options.dismiss:
            agent.client.dismiss(options.group)
        found = _meeting(agent.client, options.group) if agent.own else agent.client.members(options.group)
        here = find_group(agent.client.groups(), options.group)
    said = [*([whole(here)] if here.completeness else []), *wanted_out(here)]
    out.data_list(found, [*member_lines(found), *command_lines(found), *(["", *said] if said else [])])
    for one in found:
        if one.trust == "changed":
            narrate(changed_sentence(one.nick, options.group))
        if not one.arrived:
            way = f"`zerochat remove {quoted(options.group, one.nick)}`" if "remove" in one.may else ""
            narrate(group_rules.never_arrived(name_of(one.nick), way))
        if one.disputed and not options.dismiss:
            narrate(
                f"{name_of(one.nick)} tells of other members than whoever let you in. Ask the others what they see."
            )
        if one.forked and not options.dismiss:
            narrate(
                f"{name_of(one.nick)} has signed two histories of this group: what one of you was told, another was"
                " not. Ask the others what they see."
            )
    if agent.own and _absent(found):
        narrate(
            "The agent had only just started for this, so somebody may be here and not yet connected; `zerochat agent`"
            " keeps one running."
        )
    return ExitCode.OK


def changed_sentence(nick: str, group: str) -> str:
    who = name_of(nick)
    return (
        f"Careful: whom you verified as {who} was somebody else than who is called {who} now. Compare words again"
        f" before you trust it: `zerochat verify {quoted(group, nick)}`."
    )


def _meeting(client: "Client", group: str) -> list[MemberInfo]:
    """The members, as soon as all of them are connected or the time for that is up."""
    client.subscribe()
    deadline = time.monotonic() + MEETING_S_MAX
    while _absent(found := client.members(group)) and (left := deadline - time.monotonic()) > 0:
        client.next_news(min(left, LOOK_S))
    return found


def _absent(members: list[MemberInfo]) -> bool:
    return any(member.connection not in ("self", "connected") for member in members)


# --- coming in ------------------------------------------------------------------------------------------------------


def requests(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.requests(options.group)
        info = find_group(agent.client.groups(), options.group)
    out.data_list(found, [line for one in found for line in _request_lines(one)])
    if not found:
        narrate(nobody_asks(info) or "Nobody waits to be let in.")
    else:
        group = quoted(info.name)
        narrate(f"Let somebody in with `zerochat admit {group} WHO`, or not with `zerochat refuse {group} WHO`.")
    return ExitCode.OK


def nobody_asks(group: GroupInfo) -> str:
    """That a group asks nobody before it lets somebody in; empty where it does."""
    if group.policy.join == "ask":
        return ""
    return f"In {name_of(group.name)} nobody has to ask: {group_rules.rules_of(group.policy)[0]}."


def _request_lines(one: RequestInfo) -> list[str]:
    return [
        f"{name_of(one.nick)}, as {one.role}, since {local_time(one.asked_at)}",
        *table([("    key", one.did), *(("    words", line) for line in split_words(one.words))]),
    ]


def admit(options: Options, out: Output) -> ExitCode:
    return _answer(options, out, admit=True)


def refuse(options: Options, out: Output) -> ExitCode:
    return _answer(options, out, admit=False)


def _nothing_to_answer(client: "Client", options: Options, admit: bool) -> str:
    """Why there is nobody to answer; empty where the agent says it better."""
    info, wanted = find_group(client.groups(), options.group), options.peer.casefold()
    if info.state != "active":
        return ""
    here = next((one for one in client.members(info.id) if wanted in (one.did.casefold(), one.nick.casefold())), None)
    if admit and here is not None:
        return f"{name_of(here.nick)} is in {name_of(info.name)} already."
    return nobody_asks(info)


def _answer(options: Options, out: Output, admit: bool) -> ExitCode:
    with attached(options) as agent:
        waiting = agent.client.requests(options.group)
        if not waiting and (why := _nothing_to_answer(agent.client, options, admit)):
            narrate(why)
            return ExitCode.OK if admit and why.endswith("already.") else ExitCode.REFUSED
        named = [one for one in waiting if options.peer.casefold() in (one.did.casefold(), one.nick.casefold())]
        nick, role = (named[0].nick, named[0].role) if len(named) == 1 else ("", "")
        group = agent.client.answer(options.group, options.peer, admit, nick=nick, role=role)
        left = {one.did for one in group.requests}
        # Whom it was about is whoever does not wait any more.
        settled = [one for one in waiting if one.did not in left]
        who = next(
            (one for one in settled if options.peer.casefold() in (one.did.casefold(), one.nick.casefold())), None
        )
        out.data(group, [who.did] if who else ())
        shown = name_of(who.nick if who else options.peer)
        if admit and who and all(one.did != who.did for one in agent.client.members(group.id)):
            narrate(f"{shown} cannot come in any more: the group is full, or somebody there has this name by now.")
            return ExitCode.REFUSED
        comes = "comes in now, to read only" if who and who.role == "reader" else "comes in now"
        narrate(f"{shown} {comes}." if admit else f"{shown} does not come in.")
        _spread(agent, group.id)
    return ExitCode.OK


# --- going, and changing --------------------------------------------------------------------------------------------


def remove(options: Options, out: Output) -> ExitCode:
    if not options.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise NotConfirmed(member=options.peer)
    with attached(options) as agent:
        client = agent.client
        group = find_group(client.groups(), options.group)
        whom = find_member(client.members(group.id), options.peer, group.name)
        before = next((one for one in group.votes if one.did == whom.did and one.mine), None)
        if before is not None:
            out.data(before, [group_rules.removal(before, name_of(whom.nick))])
            narrate("You had voted already.")
            return ExitCode.OK
        if not options.yes and not _confirmed(group.policy.remove, name_of(whom.nick), name_of(group.name)):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        vote = client.remove(group.id, whom.did)
        out.data(vote, [group_rules.removal(vote, name_of(vote.nick))])
        _spread(agent, group.id)
    return ExitCode.OK


def _confirmed(rule: str, who: str, group: str) -> bool:
    what = f"Vote for putting {who} out of {group}?" if rule == "quorum" else f"Put {who} out of {group}?"
    print(f"{what} There is no way back but a new invitation. [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def role(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        group = find_group(agent.client.groups(), options.group)
        before = {one.did: one.role for one in agent.client.members(group.id)}
        changed = agent.client.role(group.id, options.role, options.peer or "")
        out.data(changed, ())
        who = "You are" if changed.connection == "self" else f"{name_of(changed.nick)} is"
        article = "an" if changed.role in ("admin", "owner") else "a"
        since = "already" if before.get(changed.did) == changed.role else "now"
        narrate(f"{who} {article} {changed.role} in {name_of(group.name)} {since}.")
        _spread(agent, group.id)
    return ExitCode.OK


def rename(options: Options, out: Output) -> ExitCode:
    assert options.name is not None
    with attached(options) as agent:
        before = find_group(agent.client.groups(), options.group).nick
        group = agent.client.rename(options.group, options.name)
        out.data(group, ())
        since = "already" if before == group.nick else "now"
        narrate(f"You are called {name_of(group.nick)} in {name_of(group.name)} {since}.")
        _spread(agent, group.id)
    return ExitCode.OK


def _spread(agent: "Attached", group: str) -> None:
    """An agent of our own stays for a moment, so that the others hear of what was changed."""
    if not agent.own:
        return
    client, deadline = agent.client, time.monotonic() + SPREAD_S_MAX
    client.subscribe()
    while untold := any(one.unacknowledged for one in client.groups() if one.id == group):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        client.next_news(min(left, LOOK_S))
    if untold:
        narrate(
            "Not everybody has heard of it yet; they do when an agent of yours runs: `zerochat agent`, or the chat."
        )
