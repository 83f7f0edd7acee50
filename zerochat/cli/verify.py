"""The verb verify: words that two people compare, and what is remembered of it."""

from typing import ClassVar

from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.members import changed_sentence
from zerochat.cli.output import TRUST, Output, find_group, find_member, name_of, narrate, quoted, split_words, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.presentation import group_rules
from zerochat.rpc import GroupInfo, MemberInfo, WordsInfo

HOW = (
    "Compare them over the phone or face to face, not in the chat itself: one of you reads a line, the other the next."
)


class NobodyToMark(LocalError):
    """Only a member can be verified, and the words of a whole group are everybody's: say which one
    (`zerochat members {group}`)."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class WordsAndUnmark(LocalError):
    """Words are compared in order to trust somebody; leave out --words to take that back."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def verify(options: Options, out: Output) -> ExitCode:
    if (options.mark or options.unmark) and not options.peer:
        raise NobodyToMark(group=options.group)
    if options.words is not None and options.unmark:
        raise WordsAndUnmark
    said = options.words if options.words is None else options.words.strip() or "-"  # nothing is not the same either
    with attached(options) as agent:
        client = agent.client
        group = find_group(client.groups(), options.group)
        members = client.members(group.id)
        whom = find_member(members, options.peer, group.name).did if options.peer else ""
        words = client.words(group.id, whom, said or "")
        differ, known = words.same is False, words.trust
        if whom and not differ and (options.mark or options.unmark):
            client.verify(group.id, whom, options.mark)
            words = client.words(group.id, whom, said or "")
    out.data(words, [*_lines(words), *([] if whom else ["", *_states(members)])])
    _tell(words, group, options, known)
    return ExitCode.REFUSED if differ else ExitCode.OK


def _lines(words: WordsInfo) -> list[str]:
    return [f"  {line}" for line in split_words(words.words)]


def _states(members: list[MemberInfo]) -> list[str]:
    others = [one for one in members if one.connection != "self"]
    return table([("NAME", "TRUST", "KEY"), *((name_of(one.nick), TRUST[one.trust], one.did) for one in others)])


def _tell(words: WordsInfo, group: GroupInfo, options: Options, before: str | None) -> None:
    """`before`: what the trust was when the verb began."""
    who, where = name_of(words.nick), group_rules.places(words.differ)
    command = f"`zerochat verify --mark {quoted(group.name, words.nick)}`"
    match words.same:
        case None if words.did:
            narrate(f"You and {who} see these words in {name_of(group.name)} if nobody is between you. {HOW}")
        case None:
            narrate(f"Everybody in {name_of(group.name)} sees these words who sees the same members. {HOW}")
        case True:
            narrate("The words are the same.")
        case False if words.did:
            narrate(
                f"The words differ{where}. Somebody was misheard, or somebody is between you and {who}: do not trust"
                " what is said here before you have compared them once more."
            )
        case False:
            narrate(
                f"The words differ{where}. Somebody was misheard, or you do not see the same members: compare"
                f" `zerochat members {quoted(group.name)}` too, and wait for a join that is under way."
            )
    if not words.did or words.same is False:
        return
    if options.unmark:
        narrate(f"{who} is not verified{' any more' if before != 'unverified' else ', so nothing had to change'}.")
    elif words.trust == "changed":
        narrate(changed_sentence(words.nick, group.name))
    elif words.trust == "verified":
        narrate(f"{who} is verified{' already' if options.mark and before == 'verified' else ''}.")
    elif group.state == "left":
        narrate(f"You are no longer in {name_of(group.name)}.")
    elif words.same:
        narrate(f"To remember that: {command}.")
    else:
        narrate(f"If they are the same: {command}.")
