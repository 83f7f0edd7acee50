"""What a simulated node tells its faces, as sentences of a story: nodes by their names, and no keys."""

from collections.abc import Mapping

from zerochat.group.notifications import (
    Completed,
    Confirmed,
    Delivered,
    Differs,
    Disagreement,
    Forked,
    Gap,
    HistoryFetched,
    InvitationUsed,
    JoinAnswered,
    JoinAsked,
    JoinProgress,
    Notice,
    PeerDown,
    PeerUp,
    Receipt,
    Recounted,
    Refuted,
    Regained,
    Removed,
    Rotated,
    Seating,
    ViewChanged,
)
from zerochat.sim.node import Node

_GAPS: Mapping[str, str] = {"asked": "others are asked", "lost": "nobody has it so far"}


def who_is(nodes: Mapping[str, Node]) -> dict[str, str]:
    """The node's name of each member key."""
    return {group.me: name for name, node in nodes.items() for group in node.agent.groups.values()}


def told(node: Node, notice: Notice, names: Mapping[str, str]) -> str:
    """One sentence about what a node has noticed; `names` as from `who_is`."""
    me = node.name

    def name(did: str) -> str:
        return names.get(did, "somebody new" if did else "nobody")

    match notice:
        case Delivered(_, post):
            row = next((row for row in node.log if row.id == post), None)
            return f"{me} has number {row.seq} of {name(row.author)}" if row else f"{me} has {post}"
        case Receipt(_, member, author, _, upto):
            return f"{me} knows that {name(member)} has all of {name(author)} up to number {upto}"
        case PeerUp(_, member):
            return f"{me} is connected with {name(member)}"
        case PeerDown(_, member):
            return f"{me} has lost the connection with {name(member)}"
        case ViewChanged(group):
            members = node.agent.groups[group].view.members if group in node.agent.groups else {}
            return f"{me} sees as members: {', '.join(name(did) for did in members)}"
        case JoinProgress(text=text, connected=up, members=of):
            return f"{me} joins: {text}" + (f" ({up} of {of} connected)" if of else "")
        case JoinAsked(label=label, role=role):
            return f"{me} is asked whether {label} may come in as a {role}"
        case JoinAnswered(label=label, admitted=admitted):
            return f"{me} {'lets' if admitted else 'does not let'} {label} in"
        case InvitationUsed(_, label, left):
            return f"{label} has used an invitation of {me}, which is good for {left} more"
        case Seating(_, member, up, of):
            return f"{me} lets {name(member)} in: {up} of {of} connected with it"
        case Removed(_, by):
            return f"{me} learns that {name(by)} has put it out"
        case Gap(_, author, after, upto, state):
            if state == "filled":
                return f"{me} lacks nothing of {name(author)} any more"
            return f"{me} lacks {_numbers(after, upto)} of {name(author)}: {_GAPS[state]}"
        case Confirmed(_, author, after, upto):
            return f"{me} has it from {name(author)} itself that {_numbers(after, upto)} of it are its word"
        case Refuted(_, author, by, after, upto):
            whence = f", which {name(by)} has made up or been told" if by else ""
            return f"{me} believes {_numbers(after, upto)} of {name(author)} no more{whence}"
        case Recounted(_, author, after, upto, counts):
            verb = "count after all" if counts else "do not count any more"
            return f"{me} sees that {_numbers(after, upto)} of {name(author)} {verb}"
        case HistoryFetched(_, got, left, done):
            return f"{me} has {got} from before its time, {left} are not here{', and nobody has more' if done else ''}"
        case Regained(_, upto):
            return f"{me} knows again all that it has said, up to number {upto}"
        case Rotated(_, member, mine):
            knows, other = (name(member), me) if mine else (me, name(member))
            return f"{knows} knows {other} by a new key for the two of them"
        case Completed():
            return f"{me} lacks nothing that it knows of"
        case Forked(_, author, seq):
            return f"{me} ACCUSES {name(author)}: two events in place {seq} of its chain"
        case Differs(_, author, seq, member):
            return f"{me} finds that {name(member)} has something else from number {seq} of {name(author)} on"
        case Disagreement(text=text):
            return f"{me} is told: {text}"
        case _:
            known = {key: getattr(notice, key) for key in notice.__struct_fields__ if key != "group"}
            shown = {key: str(value) for key, value in known.items() if not isinstance(value, bytes)}
            told = ", ".join(f"{key} {name(v) if v.startswith('did:') else v}" for key, v in shown.items())
            return f"{me}: {type(notice).__name__}" + (f" ({told})" if told else "")


def _numbers(after: int, upto: int) -> str:
    """The places of a chain after the first one, up to the second."""
    return f"number {upto}" if after + 1 == upto else f"numbers {after + 1} to {upto}"
