"""Verb verify: compares key fingerprints as words, and records verified members."""

from typing import ClassVar

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import TRUST, find_group, find_member, name_of, quoted, split_words, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument, member_argument
from zerochat.cli.output import Output, narrate
from zerochat.cli.verbs.members import changed_sentence
from zerochat.errors import LocalError
from zerochat.presentation import group_rules
from zerochat.rpc import GroupInfo, MemberInfo, SafetyWords


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "verify",
        "compare safety words with a member, and mark the member as verified",
        "Print eight words derived from a member's key and yours, or from the keys of all members. Compare them in\n"
        "person or by phone, not in the chat: if both sides see the same words, the connection is not intercepted.\n"
        "With --words, compare the words that were read to you; exits with 0 if they match and with 1 if they do not.",
        """
zerochat verify hikers
zerochat verify hikers bob
zerochat verify hikers bob --words "apple river stone lamp ..." --mark
zerochat verify hikers bob --unmark
""",
        run=verify,
    )
    group_argument(parser)
    member_argument(parser, default="the whole group")
    parser.add_argument(
        "--words", metavar="WORDS", help="the words that were read to you; the first four letters of each are enough"
    )
    mark = parser.add_mutually_exclusive_group()
    mark.add_argument("--mark", action="store_true", help="mark the member as verified")
    mark.add_argument("--unmark", action="store_true", help="remove the mark")


HOW_TO_COMPARE = "Compare them by phone or in person, not in the chat: one of you reads a line, the other the next."


class MemberNeeded(LocalError):
    """--mark and --unmark need a MEMBER: the words of the whole group do not identify one. See
    `zerochat members {group}`."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class WordsAndUnmark(LocalError):
    """--words and --unmark cannot be combined."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def verify(options: Options, out: Output) -> ExitCode:
    if (options.mark or options.unmark) and not options.peer:
        raise MemberNeeded(group=options.group)
    if options.words is not None and options.unmark:
        raise WordsAndUnmark
    given = options.words if options.words is None else options.words.strip() or "-"  # empty words do not match
    with attached(options) as agent:
        client = agent.client
        group = find_group(client.list_groups(), options.group)
        members = client.list_members(group.id)
        member = find_member(members, options.peer, group.name).did if options.peer else ""
        words = client.get_safety_words(group.id, member, given or "")
        differ, known = words.match is False, words.trust
        if member and not differ and (options.mark or options.unmark):
            client.verify_member(group.id, member, options.mark)
            words = client.get_safety_words(group.id, member, given or "")
    out.data(words, [*_lines(words), *([] if member else ["", *_states(members)])])
    _print_result(words, group, options, known)
    return ExitCode.REFUSED if differ else ExitCode.OK


def _lines(words: SafetyWords) -> list[str]:
    return [f"  {line}" for line in split_words(words.words)]


def _states(members: list[MemberInfo]) -> list[str]:
    others = [one for one in members if one.connection != "self"]
    return table([("NAME", "TRUST", "KEY"), *((name_of(one.nick), TRUST[one.trust], one.did) for one in others)])


def _print_result(words: SafetyWords, group: GroupInfo, options: Options, before: str | None) -> None:
    """Print the result and the next step. `before`: the trust before this command."""
    who, where = name_of(words.nick), group_rules.positions_text(words.mismatches)
    command = f"`zerochat verify --mark {quoted(group.name, words.nick)}`"
    match words.match:
        case None if words.did:
            narrate(
                f"You and {who} see the same words in {name_of(group.name)} unless someone intercepts the connection."
                f" {HOW_TO_COMPARE}"
            )
        case None:
            narrate(f"All members of {name_of(group.name)} with the same member list see these words. {HOW_TO_COMPARE}")
        case True:
            narrate("The words match.")
        case False if words.did:
            narrate(
                f"The words differ{where}. Either they were misheard, or someone intercepts the connection to {who}. "
                f"Do not"
                " trust this group before you have compared them again."
            )
        case False:
            narrate(
                f"The words differ{where}. Either they were misheard, or your member lists differ: compare"
                f" `zerochat members {quoted(group.name)}`, and wait for pending joins."
            )
    if not words.did or words.match is False:
        return
    if options.unmark:
        narrate(
            f"{who} is no longer verified." if before != "unverified" else f"{who} is not verified. Nothing changed."
        )
    elif words.trust == "changed":
        narrate(changed_sentence(words.nick, group.name))
    elif words.trust == "verified":
        narrate(f"{who} is {'already ' if options.mark and before == 'verified' else ''}verified.")
    elif group.state == "left":
        narrate(f"You are no longer in {name_of(group.name)}.")
    elif words.match:
        narrate(f"To mark {who} as verified: {command}.")
    else:
        narrate(f"If they match: {command}.")
