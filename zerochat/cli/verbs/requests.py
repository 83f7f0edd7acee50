"""Verbs requests, admit and refuse: list and answer the join requests of a group."""

from typing import TYPE_CHECKING

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import find_group, local_time, name_of, quoted, split_words, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument
from zerochat.cli.output import Output, narrate
from zerochat.cli.verbs.members import wait_until_spread
from zerochat.presentation import group_rules
from zerochat.rpc import GroupInfo, JoinRequestInfo

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "requests",
        "list the pending join requests",
        "List the pending requests to join a group that was created with --join ask. The words identify the key of\n"
        "the joiner, who sees the same ones: compare them over another channel before you admit.",
        """
zerochat requests hikers
zerochat requests hikers --format jsonl | jq -r .nick
""",
        run=requests,
    )
    group_argument(parser)
    for verb, summary, text, run in (
        ("admit", "accept a join request", "Accept a request to join a group. Prints the key of the joiner.", admit),
        ("refuse", "refuse a join request", "Refuse a request to join a group. Prints the key of the joiner.", refuse),
    ):
        parser = add_verb(
            verbs,
            verb,
            summary,
            text,
            f"""
zerochat requests hikers
zerochat {verb} hikers carol
zerochat {verb} hikers "Carol B."
""",
            run=run,
        )
        group_argument(parser)
        parser.add_argument("peer", metavar="NAME", help="name or key of the joiner")


def requests(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.list_join_requests(options.group)
        info = find_group(agent.client.list_groups(), options.group)
    out.data_list(found, [line for one in found for line in _request_lines(one)])
    if not found:
        narrate(no_requests_reason(info) or "There are no join requests.")
    else:
        group = quoted(info.name)
        narrate(f"Answer with `zerochat admit {group} NAME` or `zerochat refuse {group} NAME`.")
    return ExitCode.OK


def no_requests_reason(group: GroupInfo) -> str:
    """States that a group has no join requests by its rules; empty if it can have some."""
    if group.policy.join == "ask":
        return ""
    return f"{name_of(group.name)} has no join requests: {group_rules.policy_sentences(group.policy)[0]}."


def _request_lines(one: JoinRequestInfo) -> list[str]:
    return [
        f"{name_of(one.nick)}, as {one.role}, since {local_time(one.asked_at)}",
        *table([("    key", one.did), *(("    words", line) for line in split_words(one.words))]),
    ]


def admit(options: Options, out: Output) -> ExitCode:
    return _answer(options, out, admit=True)


def refuse(options: Options, out: Output) -> ExitCode:
    return _answer(options, out, admit=False)


def _nothing_to_answer(client: "Client", options: Options, admit: bool) -> tuple[ExitCode, str]:
    """The exit code, and why there is no request to answer; empty if the agent reports the reason."""
    info, wanted = find_group(client.list_groups(), options.group), options.peer.casefold()
    if info.state != "active":
        return ExitCode.REFUSED, ""
    here = next(
        (one for one in client.list_members(info.id) if wanted in (one.did.casefold(), one.nick.casefold())), None
    )
    if admit and here is not None:
        return ExitCode.OK, f"{name_of(here.nick)} is already a member of {name_of(info.name)}."
    return ExitCode.REFUSED, no_requests_reason(info)


def _answer(options: Options, out: Output, admit: bool) -> ExitCode:
    with attached(options) as agent:
        waiting = agent.client.list_join_requests(options.group)
        code, why = _nothing_to_answer(agent.client, options, admit) if not waiting else (ExitCode.OK, "")
        if why:
            narrate(why)
            return code
        named = [one for one in waiting if options.peer.casefold() in (one.did.casefold(), one.nick.casefold())]
        nick, role = (named[0].nick, named[0].role) if len(named) == 1 else ("", "")
        group = agent.client.answer_join_request(options.group, options.peer, admit, nick=nick, role=role)
        left = {one.did for one in group.requests}
        # The answered request is the one that is no longer pending.
        answered = [one for one in waiting if one.did not in left]
        who = next(
            (one for one in answered if options.peer.casefold() in (one.did.casefold(), one.nick.casefold())), None
        )
        out.data(group, [who.did] if who else ())
        shown = name_of(who.nick if who else options.peer)
        if admit and who and all(one.did != who.did for one in agent.client.list_members(group.id)):
            narrate(f"{shown} cannot join any more: the group is full, or the name is taken.")
            return ExitCode.REFUSED
        as_reader = " as a reader" if who and who.role == "reader" else ""
        narrate(f"Admitted {shown}{as_reader}." if admit else f"Refused {shown}.")
        wait_until_spread(agent, group.id)
    return ExitCode.OK
