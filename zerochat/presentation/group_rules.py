"""Group policies: validation of their combinations, their meaning and their limitations as sentences."""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import ClassVar, Final
from urllib.parse import urlsplit

from zerochat.errors import LocalError
from zerochat.limits import MEMBERS_MAX
from zerochat.presentation import history_rules, keep_rules
from zerochat.rpc import GroupInfo, InvitationInfo, MemberInfo, PolicyInfo, VoteInfo
from zerochat.terminal_text import Printable, printable_line

JOIN_RULES: Final = ("invited", "ask", "open")
REMOVE_RULES: Final = ("anyone", "admins", "quorum")
ROLE_RULES: Final = ("flat", "admins")
AGREEMENT_RULES: Final = ("permissive", "strict")
QUORUM: Final = 2
"""Default number of votes for a removal."""
QUORUM_MAX: Final = MEMBERS_MAX

_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

_JOIN: Final = {
    "invited": "anyone with an invitation can join",
    "ask": "anyone with an invitation can ask to join; the inviter decides",
    "open": "open: an invitation can be used by any number of members",
}
_ROLES: Final = {
    "flat": "all members are equal and can post",
    "admins": "the owner appoints admins; they decide who can post",
}
_AGREEMENT: Final = {
    "permissive": "conflicting member lists cause a warning for new members",
    "strict": "conflicting member lists cancel a join",
}


class BadRules(LocalError):
    """Invalid group settings: {why}."""

    exit_code: ClassVar[int] = 2


# --- validation -----------------------------------------------------------------------------------------------------


def completed_policy(
    join: str = "invited",
    remove: str | None = None,
    quorum: int | None = None,
    roles: str = "flat",
    agreement: str = "permissive",
    history: str = "all",
    keepers: int = 0,
    keep_ms: int = 0,
) -> PolicyInfo:
    """The policy, with defaults that depend on other rules. Raises BadRules, BadHistory or BadKeep."""
    one_of("join rule", join, JOIN_RULES)
    one_of("role rule", roles, ROLE_RULES)
    one_of("agreement rule", agreement, AGREEMENT_RULES)
    history_rules.check(history)
    keep_rules.check_keep(keep_ms)
    if not 0 <= keepers <= history_rules.KEEPERS_MAX:
        raise BadRules(why=f"there can be 1 to {history_rules.KEEPERS_MAX} history keepers, or 0 for all members")
    if remove is None:
        remove = "quorum" if quorum is not None or roles == "flat" else "admins"
    one_of("removal rule", remove, REMOVE_RULES)
    if remove == "admins" and roles == "flat":
        raise BadRules(why="removal by `admins` requires the roles `admins`; with flat roles use `anyone` or `quorum`")
    if remove != "quorum":
        if quorum:
            raise BadRules(why=f"a quorum applies only to the removal rule `quorum`, not to `{remove}`")
        quorum = 0
    elif quorum is None:
        quorum = QUORUM
    if remove == "quorum" and not QUORUM <= quorum <= QUORUM_MAX:
        raise BadRules(why=f"the quorum must be {QUORUM} to {QUORUM_MAX}; for one member use the removal rule `anyone`")
    return PolicyInfo(
        join=join,
        remove=remove,
        quorum=quorum,
        roles=roles,
        agreement=agreement,
        history=history,
        keepers=keepers,
        keep=keep_ms,
    )


def one_of(what: str, given: str, known: tuple[str, ...]) -> None:
    """Raise BadRules for an unknown value."""
    if given not in known:
        raise BadRules(why=f"unknown {what} {given[:32]!a}; choose {', '.join(known[:-1])} or {known[-1]}")


# --- meaning --------------------------------------------------------------------------------------------------------


def policy_sentences(policy: PolicyInfo, here_ms: int = 0) -> list[str]:
    """The rules of a group without full stops: joining, removal, posting, agreement, history, retention. `here_ms`: how
    long messages stay on this machine; 0: for ever."""
    match policy.remove:
        case "anyone":
            removal = "every member can remove others"
        case "admins":
            removal = "the owner and the admins can remove members"
        case _:
            removal = f"{number(policy.quorum)} members together can remove a member"
    return [
        _JOIN.get(policy.join, policy.join),
        removal,
        _ROLES.get(policy.roles, policy.roles),
        _AGREEMENT.get(policy.agreement, policy.agreement),
        history_rules.policy_text(policy.history, policy.keepers),
        keep_rules.policy_text(policy.keep, here_ms),
    ]


def connected(info: GroupInfo) -> str:
    """The number of connected members, and of those reachable only via a mediator, who may be offline. In a large group
    no member is connected to all others."""
    if info.forwards:
        mailed = f", {info.via_mediator} via mediator" if info.via_mediator else ""
        return f"{info.members:,} members over {info.connected} links{mailed}"
    mailed = f", {info.via_mediator} via mediator" if info.via_mediator else ""
    return f"{info.connected - info.via_mediator}/{max(info.members - 1, 0)} connected{mailed}"


def number(count: int) -> str:
    return _NUMBERS[count] if 0 <= count < len(_NUMBERS) else str(count)


def positions_text(differ: Sequence[int]) -> str:
    """The positions of differing words, for the end of a sentence; empty if unknown."""
    if not differ:
        return ""
    *first, last = (str(position) for position in differ)
    where = f"{', '.join(first)} and {last}" if first else last
    return f" at {'positions' if first else 'position'} {where}"


def owner_leaving_warning(group: GroupInfo, members: Sequence[MemberInfo]) -> str:
    """A warning for an owner who is about to leave; empty for other members, or if the group is empty."""
    if group.role != "owner" or len(members) < 2:
        return ""
    if any(one.role == "admin" for one in members):
        return (
            "You are the owner: after you leave, no new admins can be appointed. The current admins stay."
            " /transfer hands over the group first."
        )
    removal = " or remove members" if group.policy.remove == "admins" else ""
    return (
        f"You are the owner, and there are no admins: after you leave, no member can ever change who can post{removal}."
        " Consider handing over the group first (/transfer)."
    )


def ignored_state(who: str, ignored: bool) -> str:
    """Whether the messages of a member are shown, as a sentence."""
    return f"You no longer see messages from {who}." if ignored else f"Messages from {who} are shown."


def transfer_question(who: str, group: str) -> str:
    """The question before a transfer of ownership."""
    return f"Make {who} the owner of {group}? You become an admin, and only {who} can give it back."


# --- members --------------------------------------------------------------------------------------------------------


def removal_state(vote: VoteInfo, who: str) -> str:
    """The state of a removal, without a full stop. `who`: sanitised name."""
    if vote.needed <= 1:
        return f"{who} was removed" if vote.removed else f"{who} was not removed"
    count = vote_count(vote)
    if vote.removed:
        return f"{count}: {who} was removed"
    left = max(1, vote.needed - vote.votes)
    return f"{count}; {number(left)} more {'vote' if left == 1 else 'votes'} needed"


def vote_count(vote: VoteInfo) -> str:
    """The valid votes for a removal, and the number of votes cast if it differs."""
    more = f" ({vote.cast} cast; some count only once)" if vote.cast > vote.votes else ""
    return f"{vote.votes} of {vote.needed} votes{more}"


_GUILT: Final = {
    "upheld": "has withheld a message",
    "forked": "has signed two messages for one position",
    "time reversed": "has backdated a message",
}


def conviction(member: MemberInfo) -> str:
    """The proven offences of a member, without a full stop; may be empty."""
    *first, last = list(dict.fromkeys(_GUILT.get(one, "has broken the rules") for one in member.verdicts)) or [""]
    return f"{', '.join(first)} and {last}" if first else last


NEVER_CONNECTED: Final = "never connected"
FORGET: Final = (
    "Its messages are deleted from this machine. This cannot be undone; the other members keep their copies."
)
DELETE: Final = (
    "It is hidden in all members' clients; copies and modified clients may still have it. This cannot be undone."
)
RESUME: Final = (
    "This is an older copy of your profile. Members who received later posts of yours will see two contradicting"
    " histories, and a warning about you."
)


def never_connected(who: str, remover: str) -> str:
    """Warns that an admitted member has never connected. `who`: sanitised name; `remover`: the command to remove it, or
    empty."""
    remedy = f" Remove it with {remover}." if remover else " A member with the permission can remove it."
    return f"You admitted {who}, who has never connected: the join probably failed.{remedy}"


def removed_from(group: str, by: Sequence[str]) -> str:
    """States that we were removed from a group, and `by` whom; all names sanitised."""
    reason = removal_reason(by)
    return (
        f"You are no longer in {group}: {reason}. Its history stays on this machine; to return, get a new invitation."
    )


def removal_reason(by: Sequence[str]) -> str:
    """Why we were removed, without a full stop. `by`: the members who did it or voted for it; empty if it follows from
    another removal. Sanitised."""
    if not by:
        return "the member who invited you had been removed before"
    *first, last = by
    return f"{', '.join(first)} and {last} voted to remove you" if first else f"{last} removed you"


def removers_of(info: GroupInfo) -> list[str]:
    """The names of the members who removed us; empty if it follows from another removal."""
    if info.removed_by is None or info.removed_by.did == info.me:
        return []
    return [one.nick for one in info.voters] or [info.removed_by.nick]


ROLE_NOT_BOUND: Final = (
    "This group has no admins, so a reader can become a writer. In a group created with `--roles admins`, only admins"
    " can change that."
)


def your_invitation(name: str) -> Printable:
    """An invitation of ours in a sentence; `name`: what we call it, or empty."""
    return printable_line(f"your invitation \u201c{name}\u201d" if name else "your invitation")


_LOCAL_NETWORKS: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")


def local_only(invitation: InvitationInfo, remedy: str = "see `zerochat help network`") -> str:
    """Who can use an invitation with an address of a home network and without a mediator; empty: any other."""
    if not invitation.code:  # it leads through a mediator
        return ""
    try:
        address = ip_address(urlsplit(invitation.endpoint).hostname or "")
    except ValueError:
        return ""
    if not any(address in ip_network(network) for network in _LOCAL_NETWORKS):
        return ""
    return f"Its address {address} is of your local network. For people elsewhere, {remedy}."
