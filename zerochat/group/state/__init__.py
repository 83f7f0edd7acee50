"""What the core knows: frozen, serialisable values, changed only by replacing them.

The journal writes each field that changed as a row of its own (and each entry of a dict of these values), so a field
is the unit of what one turn costs on disk. Connections are not here for long: "I want to reach her" is state, "I
reach her" is news, and `up` is empty after every start.
"""

from zerochat.group.state.agent import Agent
from zerochat.group.state.chains import Chain, Limbo, Past, Spot
from zerochat.group.state.external import Awaited, Connection, Fault, Letter, Question, Whom
from zerochat.group.state.files import FileState, Haul, Holding
from zerochat.group.state.groups import (
    Conduct,
    Contradiction,
    Custody,
    Group,
    GroupState,
    Offer,
    Peer,
    Profile,
    Request,
    Waiting,
    Word,
)
from zerochat.group.state.joins import Claim, Join, JoinState, OpenInvitation
from zerochat.group.state.streams import Asking, Early, OwnStream, Stream, Subscriber
from zerochat.group.state.sync import Comparison, Difference, Errand, Fetching, Need, Regain, Second, Unheard, Unmet
from zerochat.group.state.tlog import Ended, Log, Mine, Wanted

__all__ = [
    "Agent",
    "Asking",
    "Awaited",
    "Chain",
    "Claim",
    "Comparison",
    "Conduct",
    "Connection",
    "Contradiction",
    "Custody",
    "Difference",
    "Early",
    "Ended",
    "Errand",
    "Fault",
    "Fetching",
    "FileState",
    "Group",
    "GroupState",
    "Haul",
    "Holding",
    "Join",
    "JoinState",
    "Letter",
    "Limbo",
    "Log",
    "Mine",
    "Need",
    "Offer",
    "OpenInvitation",
    "OwnStream",
    "Past",
    "Peer",
    "Profile",
    "Question",
    "Regain",
    "Request",
    "Second",
    "Spot",
    "Stream",
    "Subscriber",
    "Unheard",
    "Unmet",
    "Waiting",
    "Wanted",
    "Whom",
    "Word",
]
