"""Notifications of simulated nodes as sentences: nodes by name, without keys."""

from collections.abc import Mapping

from zerochat.group.notifications import (
    ConversationMoved,
    Delivered,
    DidRotated,
    DifferenceFound,
    EventsConfirmed,
    EventsRefuted,
    ForkDetected,
    Gap,
    GapsFilled,
    HistoryProgress,
    InvitationUsed,
    JoinProgress,
    JoinRequestAnswered,
    JoinRequested,
    MemberConnections,
    Notification,
    PeerDown,
    PeerUp,
    PrivateInvitationAnswered,
    PrivateInvited,
    Receipt,
    RecoveryEnded,
    RemovedFromGroup,
    ValidityChanged,
    ViewChanged,
    ViewDisagreement,
)
from zerochat.sim.node import Node

_GAP_STATES: Mapping[str, str] = {"asked": "requested from other members", "lost": "not available so far"}


def node_names(nodes: Mapping[str, Node]) -> dict[str, str]:
    """Node name by DID."""
    return {group.me: name for name, node in nodes.items() for group in node.agent.groups.values()}


def describe(node: Node, notification: Notification, names: Mapping[str, str]) -> str:
    """A notification as a sentence; `names` as from `node_names`."""
    me = node.name

    def name(did: str) -> str:
        return names.get(did, "a new member" if did else "nobody")

    match notification:
        case Delivered(_, post):
            row = next((row for row in node.log if row.id == post), None)
            return f"{me} receives event {row.seq} of {name(row.author)}" if row else f"{me} receives {post}"
        case Receipt(_, member, author, _, upto):
            return f"{me} gets an acknowledgement: {name(member)} has {name(author)} up to event {upto}"
        case PeerUp(_, member):
            return f"{me} is connected to {name(member)}"
        case PeerDown(_, member):
            return f"{me} loses the connection to {name(member)}"
        case ViewChanged(group):
            members = node.agent.groups[group].view.members if group in node.agent.groups else {}
            return f"{me} has the view: {', '.join(name(did) for did in members)}"
        case JoinProgress(text=text, connected=up, members=of):
            return f"{me} joins: {text}" + (f" ({up} of {of} connected)" if of else "")
        case JoinRequested(label=label, role=role):
            return f"{me} receives a join request of {label} as {role}"
        case JoinRequestAnswered(label=label, admitted=admitted):
            return f"{me} {'admits' if admitted else 'rejects'} {label}"
        case PrivateInvited(_, member):
            return f"{me} is invited to a private conversation by {name(member)}"
        case PrivateInvitationAnswered(_, member, accepted):
            return f"{me} {'accepts' if accepted else 'declines'} a private conversation with {name(member)}"
        case ConversationMoved():
            return f"{me} moves its private conversation to the other member's"
        case InvitationUsed(_, label, left):
            return f"{label} uses an invitation of {me}; {left} uses left"
        case MemberConnections(_, member, up, of):
            return f"{me} admits {name(member)}: {up} of {of} members connected"
        case RemovedFromGroup(_, by):
            return f"{me} learns that {name(by)} removed it"
        case Gap(_, author, after, upto, state):
            if state == "filled":
                return f"{me} has filled the gap of {name(author)}"
            return f"{me} has a gap: {_numbers(after, upto)} of {name(author)}, {_GAP_STATES[state]}"
        case EventsConfirmed(_, author, after, upto):
            return f"{me} has {_numbers(after, upto)} confirmed by {name(author)}"
        case EventsRefuted(_, author, by, after, upto):
            whence = f", relayed by {name(by)}" if by else ""
            return f"{me} has {_numbers(after, upto)} refuted by {name(author)}{whence}"
        case ValidityChanged(_, author, after, upto, counts):
            verb = "become valid" if counts else "become void"
            return f"{me}: {_numbers(after, upto)} of {name(author)} {verb}"
        case HistoryProgress(_, got, left, done):
            return f"{me} has {got} events of earlier history, {left} missing{', no more available' if done else ''}"
        case RecoveryEnded(_, upto):
            return f"{me} has recovered its own events up to {upto}"
        case DidRotated(_, member, mine):
            knows, other = (name(member), me) if mine else (me, name(member))
            return f"{knows} has the new DID of {other}"
        case GapsFilled():
            return f"{me} has no gaps"
        case ForkDetected(_, author, seq):
            return f"{me} ACCUSES {name(author)}: two events at position {seq} of its chain"
        case DifferenceFound(_, author, seq, member):
            return f"{me} finds that {name(member)} has other events of {name(author)} from {seq} on"
        case ViewDisagreement(text=text):
            return f"{me} warns: {text}"
        case _:
            known = {key: getattr(notification, key) for key in notification.__struct_fields__ if key != "group"}
            shown = {key: str(value) for key, value in known.items() if not isinstance(value, bytes)}
            fields = ", ".join(f"{key} {name(v) if v.startswith('did:') else v}" for key, v in shown.items())
            return f"{me}: {type(notification).__name__}" + (f" ({fields})" if fields else "")


def _numbers(after: int, upto: int) -> str:
    """The positions of a chain after the first one, up to the second."""
    return f"event {upto}" if after + 1 == upto else f"events {after + 1} to {upto}"
