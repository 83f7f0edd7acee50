"""What a simulated node tells its faces, as sentences of a story: nodes by their names, and no keys."""

from collections.abc import Mapping

from zerochat.group.notices import (
    Completed,
    Delivered,
    Differs,
    Forked,
    Gap,
    JoinAsked,
    JoinProgress,
    Notice,
    PeerDown,
    PeerUp,
    Receipt,
    Removed,
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
        case Seating(_, member, up, of):
            return f"{me} lets {name(member)} in: {up} of {of} connected with it"
        case Removed(_, by):
            return f"{me} learns that {name(by)} has put it out"
        case Gap(_, author, after, upto, state):
            if state == "filled":
                return f"{me} lacks nothing of {name(author)} any more"
            which = f"number {upto}" if after + 1 == upto else f"numbers {after + 1} to {upto}"
            return f"{me} lacks {which} of {name(author)}: {_GAPS[state]}"
        case Completed():
            return f"{me} lacks nothing that it knows of"
        case Forked(_, author, seq):
            return f"{me} ACCUSES {name(author)}: two events in place {seq} of its chain"
        case Differs(_, author, seq, member):
            return f"{me} finds that {name(member)} has something else from number {seq} of {name(author)} on"
        case _:
            known = {name: getattr(notice, name) for name in notice.__struct_fields__ if name != "group"}
            told = ", ".join(f"{key} {names.get(value, value)}" for key, value in known.items())
            return f"{me}: {type(notice).__name__}" + (f" ({told})" if told else "")
