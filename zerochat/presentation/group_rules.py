"""A group's rules as people say them: whether they go together, what they mean, and what they do not promise.

Faces show them and the desk goes by them, so one place has the words. It needs no more than the schema, and so it is
there for a verb that must start at once.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from zerochat.errors import LocalError
from zerochat.presentation import history_rules
from zerochat.rpc import GroupInfo, MemberInfo, PolicyInfo, VoteInfo

JOIN_RULES: Final = ("invited", "ask", "open")
REMOVE_RULES: Final = ("anyone", "admins", "quorum")
ROLE_RULES: Final = ("flat", "admins")
AGREEMENT_RULES: Final = ("permissive", "strict")
KEYS: Final = ("pairwise-multi", "pairwise-single", "sender-key")
KINDS: Final = {
    "classic-multi": ("pairwise-multi", "acks"),
    "classic-single": ("pairwise-single", "acks"),
    "signed": ("sender-key", "acks"),
    "accountable": ("sender-key", "ledger"),
}
"""Keys and accountability in one word. You see who has your messages in each; where it is `signed`, you can show it
too; and where it is `accountable`, what somebody has not acknowledged in time stands in a log that members witness."""
SIGNS: Final = ("sender-key",)
"""The keys under which whoever says something signs it."""
SIGNED: Final = "What you say here is signed: any member can show it to anybody, for good, and you cannot deny it."
"""What one gives up in such a group."""
QUORUM: Final = 2
"""How many have to want somebody out, unless a group says otherwise."""
QUORUM_MAX: Final = 64

_NUMBERS: Final = ("nobody", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

_KEYS: Final = {
    "pairwise-multi": "keys for each pair of members; each member gets an envelope of its own",
    "pairwise-single": "keys for each pair of members; one envelope for all, with a section for each",
    "sender-key": "a key for each author; one envelope for all, with its author's signature",
}
_PATHS: Final = {"mesh": "every member is connected with every other"}
_ACCOUNTABILITY: Final = {
    "acks": "you see who has your messages",
    "ledger": "you see who has your messages, and have that signed; what is not acknowledged in time stands in a log"
    " that members witness",
}
_JOIN: Final = {
    "invited": "anybody with an invitation gets in",
    "ask": "anybody with an invitation may ask, and gets in when whoever made it says yes",
    "open": "anybody gets in, as an invitation may be passed on and used by as many as come",
}
_ROLES: Final = {
    "flat": "everybody may write, and is free to only read",
    "admins": "the owner and the admins say who may write; the owner makes the admins",
}
_AGREEMENT: Final = {
    "permissive": "a newcomer to whom members tell different things stays, and is warned",
    "strict": "a newcomer to whom members tell different things does not come in",
}


class BadRules(LocalError):
    """Such a group cannot be made: {why}."""

    exit_code: ClassVar[int] = 2


# --- whether they go together ---------------------------------------------------------------------------------------


def settled(
    join: str = "invited",
    remove: str | None = None,
    quorum: int | None = None,
    roles: str = "flat",
    agreement: str = "permissive",
    history: str = "all",
    keepers: int = 0,
) -> PolicyInfo:
    """The rules with what follows from the others filled in. Raises BadRules where they do not go together, BadHistory
    where `history` is none of the rules (`histories.py`)."""
    _one_of("way to get in", join, JOIN_RULES)
    _one_of("kind of roles", roles, ROLE_RULES)
    _one_of("kind of agreement", agreement, AGREEMENT_RULES)
    history_rules.check(history)
    if not 0 <= keepers <= history_rules.KEEPERS_MAX:
        raise BadRules(why=f"who keep the history are from 1 to {history_rules.KEEPERS_MAX}, or 0, which is everybody")
    if remove is None:
        remove = "quorum" if quorum is not None or roles == "flat" else "admins"
    _one_of("way to put somebody out", remove, REMOVE_RULES)
    if remove == "admins" and roles == "flat":
        raise BadRules(
            why="where everybody is equal there are no admins who could put somebody out. Take `admins` for the roles"
            " too, or let `anyone` or a `quorum` put members out"
        )
    if remove != "quorum":
        if quorum:
            raise BadRules(why=f"a quorum counts votes, and nobody votes where `{remove}` can put somebody out alone")
        quorum = 0
    elif quorum is None:
        quorum = QUORUM
    if remove == "quorum" and not QUORUM <= quorum <= QUORUM_MAX:
        raise BadRules(
            why=f"a quorum is from {QUORUM} to {QUORUM_MAX} members; where one is enough, let `anyone` put members out"
        )
    return PolicyInfo(
        join=join, remove=remove, quorum=quorum, roles=roles, agreement=agreement, history=history, keepers=keepers
    )


def kind_for(kind: str | None, keys: str | None) -> tuple[str, str]:
    """The keys and the accountability of a group that somebody wants by one word or the other, or by neither. Raises
    BadRules."""
    if kind is None:
        return keys or KEYS[0], "acks"
    _one_of("kind of group", kind, tuple(KINDS))
    if keys not in (None, KINDS[kind][0]):
        raise BadRules(why=f"a group that is `{kind}` has the keys `{KINDS[kind][0]}`, and not `{keys}`")
    return KINDS[kind]


def check_accountability(accountability: str, keys: str) -> None:
    """Raise BadRules where these do not go together."""
    _one_of("kind of accountability", accountability, tuple(_ACCOUNTABILITY))
    if accountability == "ledger" and keys not in SIGNS:
        raise BadRules(why=f"a log with witnesses needs keys that sign (`{SIGNS[0]}`), and not `{keys}`")


def _one_of(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise BadRules(why=f"there is no {what} called {given[:32]!a}, only {', '.join(known[:-1])} and {known[-1]}")


# --- what they mean -------------------------------------------------------------------------------------------------


def keys_of(info: GroupInfo) -> str:
    return _KEYS.get(info.keys, "a kind that this program does not know")


def path_of(info: GroupInfo) -> str:
    return _PATHS.get(info.path, "a kind that this program does not know")


def accountability_of(info: GroupInfo) -> str:
    if info.accountability == "acks" and info.keys in SIGNS:
        return "you see who has your messages, and have that signed"
    return _ACCOUNTABILITY.get(info.accountability, "a kind that this program does not know")


def signing(info: GroupInfo) -> str:
    """What one gives up in this group by speaking, in a sentence; empty where nothing is signed."""
    return SIGNED if info.keys in SIGNS else ""


def rules_of(policy: PolicyInfo) -> list[str]:
    """What holds in a group, a sentence without its full stop each: getting in, being put out, writing, agreeing, what
    newcomers get of what was said before."""
    match policy.remove:
        case "anyone":
            out = "every member can put another out"
        case "admins":
            out = "the owner and the admins can put somebody out"
        case _:
            out = f"{number(policy.quorum)} members together can put somebody out"
    return [
        _JOIN.get(policy.join, policy.join),
        out,
        _ROLES.get(policy.roles, policy.roles),
        _AGREEMENT.get(policy.agreement, policy.agreement),
        history_rules.in_words(policy.history, policy.keepers),
    ]


def limits_of(info: GroupInfo) -> list[str]:
    """What the group cannot promise, in sentences."""
    said = (
        "Messages are not signed by themselves: whoever reads one knows who wrote it, and can prove it to nobody until"
        " its author signs something about who is in, such as a new name; that stands for all that it had said by then."
    )
    if info.keys in SIGNS:
        said = SIGNED
    if info.keys == "pairwise-single":
        said += " Whoever watches the network can tell from an envelope's size how many members there are."
    gone = "Who is put out keeps all that was read, and whoever has not heard of it yet goes on writing to them."
    return [said, gone]


def connected(info: GroupInfo) -> str:
    """How many of the others there is a connection to; and for how many only a mediator takes in what is said, which
    does not tell whether they are there."""
    mailed = f", {info.mailed} over a mediator" if info.mailed else ""
    return f"{info.connected - info.mailed}/{max(info.members - 1, 0)} connected{mailed}"


def number(count: int) -> str:
    return _NUMBERS[count] if 0 <= count < len(_NUMBERS) else str(count)


def places(differ: Sequence[int]) -> str:
    """Which of the words that somebody read out differ, for the end of a sentence; empty where that is not known."""
    if not differ:
        return ""
    *first, last = (str(place) for place in differ)
    where = f"{', '.join(first)} and {last}" if first else last
    return f" at {'places' if first else 'place'} {where}"


def owner_leaves(group: GroupInfo, members: Sequence[MemberInfo]) -> str:
    """What a group loses with its owner, in a sentence; empty where we are not its owner, or nobody else is there."""
    if group.role != "owner" or len(members) < 2:
        return ""
    if any(one.role == "admin" for one in members):
        return "You are the owner: without you nobody can make admins any more; those that there are stay."
    out = ", or put anybody out" if group.policy.remove == "admins" else ""
    return (
        f"You are the owner, and there are no admins: without you nobody can ever again say who may write{out}. Make"
        " somebody an admin first if that is not what you want."
    )


# --- what has become of somebody ------------------------------------------------------------------------------------


def removal(vote: VoteInfo, who: str) -> str:
    """How far it is with putting somebody out, without a full stop; `who` is what it is called, made printable."""
    if vote.needed <= 1:
        return f"{who} is out" if vote.out else f"{who} is not out"
    count = counted(vote)
    if vote.out:
        return f"{count}: {who} is out"
    left = max(1, vote.needed - vote.votes)
    return f"{count}; {number(left)} more {'member has' if left == 1 else 'members have'} to say the same"


def counted(vote: VoteInfo) -> str:
    """The votes for putting somebody out that count, and how many were cast where that is another number."""
    more = f" ({vote.cast} cast; some count as one)" if vote.cast > vote.votes else ""
    return f"{vote.votes} of {vote.needed} votes{more}"


_GUILT: Final = {
    "upheld": "has withheld a message",
    "forked": "has signed two messages in one place",
    "turned back": "has dated a message back",
}


def guilt(member: MemberInfo) -> str:
    """What somebody was convicted of by the group's log and its own signatures, behind its name, without a full stop;
    empty: of nothing."""
    *first, last = list(dict.fromkeys(_GUILT.get(one, "has broken the rules") for one in member.guilty)) or [""]
    return f"{', '.join(first)} and {last}" if first else last


NEVER_ARRIVED: Final = "never arrived"
FORGET: Final = (
    "What was said there is deleted on this machine, and nothing here brings it back; the others keep what they have."
)
DELETE: Final = (
    "Everybody's zerochat shows it no more; whoever has kept a copy, or runs another program, still has it. Nothing"
    " brings it back."
)
RESUME: Final = (
    "This is an older copy of your profile. Whoever has heard more of you than this copy knows will see two histories"
    " from you, and tell others to be careful."
)
"""What one risks by going on."""


def never_arrived(who: str, remover: str) -> str:
    """That somebody whom we have let in has not come; `who` is made printable, `remover` says how to put it out, empty
    where we may not."""
    gone = f" {remover} puts it out." if remover else " Whoever may put members out can do that."
    return f"You have let {who} in, and nothing was ever heard from there: its join must have failed.{gone}"


def put_out(group: str, by: Sequence[str]) -> str:
    """That we were put out of a group, and `by` whom. All made printable."""
    return (
        f"You are no longer in {group}: {why_out(by)}. Its history stays here; to come back you need a new invitation."
    )


def why_out(by: Sequence[str]) -> str:
    """What has put us out, without a full stop; `by`: who has done it or voted for it, nobody where it only follows
    from somebody else's going. Made printable."""
    if not by:
        return "whoever let you in was put out before"
    *first, last = by
    return f"{', '.join(first)} and {last} have voted you out" if first else f"{last} has put you out"


def removers_of(info: GroupInfo) -> list[str]:
    """What those are called who have put us out; nobody did where it only follows from somebody else's going."""
    if info.removed_by is None or info.removed_by.did == info.me:
        return []
    return [one.nick for one in info.voters] or [info.removed_by.nick]
