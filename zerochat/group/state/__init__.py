"""The state of the core: frozen, serialisable records, changed only by replacing them.

The journal writes each changed field as a row of its own, and each entry of a dict of records, inside nested records
too: a field is the unit of a batch's cost on disk. Connections are not state: the wish for a link is kept, "the link is
up" is an event, and `links_up` is empty after every start.
"""

from zerochat.group.state.agent import Agent
from zerochat.group.state.chains import (
    Backfill,
    BlockedEvent,
    Chain,
    ChainPosition,
    ChainStart,
    EarlyEvent,
    EventLog,
    ReorderBuffer,
    StartEvent,
)
from zerochat.group.state.external import (
    AwaitedReceipt,
    BasicMessage,
    Connection,
    EndpointFailure,
    PeerQuery,
    PeerRef,
    RelayedPost,
)
from zerochat.group.state.files import Download, FileEntry, FileState
from zerochat.group.state.groups import Group, GroupState, Profile, Retention
from zerochat.group.state.joins import Admissions, Claim, Join, JoinRequest, JoinState, OpenInvitation
from zerochat.group.state.peers import (
    Account,
    BranchRate,
    Links,
    Mailbox,
    Peer,
    RateLimit,
    RelationshipOffer,
    StoredAtMediator,
)
from zerochat.group.state.private import Consent, PrivateInvitation, PrivateWith, Voucher
from zerochat.group.state.streams import EarlyMessage, EarlyMessages, OwnStream, Stream, Subscriber, SubscriptionRequest
from zerochat.group.state.sync import (
    BackfillProgress,
    Comparison,
    Corroboration,
    Difference,
    MissingRange,
    PullPurpose,
    PullRequest,
    Recovery,
    ReinstatedPosts,
    UnreachableAuthor,
)
from zerochat.group.state.tlog import EndedSubscription, PendingEntry, TransparencyLog, WantedEntry
from zerochat.group.state.trust import AttestationConflict, TrustState, ViewAttestation

__all__ = [
    "Account",
    "Admissions",
    "Agent",
    "AttestationConflict",
    "AwaitedReceipt",
    "Backfill",
    "BackfillProgress",
    "BasicMessage",
    "BlockedEvent",
    "BranchRate",
    "Chain",
    "ChainPosition",
    "ChainStart",
    "Claim",
    "Comparison",
    "Connection",
    "Consent",
    "Corroboration",
    "Difference",
    "Download",
    "EarlyEvent",
    "EarlyMessage",
    "EarlyMessages",
    "EndedSubscription",
    "EndpointFailure",
    "EventLog",
    "FileEntry",
    "FileState",
    "Group",
    "GroupState",
    "Join",
    "JoinRequest",
    "JoinState",
    "Links",
    "Mailbox",
    "MissingRange",
    "OpenInvitation",
    "OwnStream",
    "Peer",
    "PeerQuery",
    "PeerRef",
    "PendingEntry",
    "PrivateInvitation",
    "PrivateWith",
    "Profile",
    "PullPurpose",
    "PullRequest",
    "RateLimit",
    "Recovery",
    "ReinstatedPosts",
    "RelationshipOffer",
    "RelayedPost",
    "ReorderBuffer",
    "Retention",
    "StartEvent",
    "StoredAtMediator",
    "Stream",
    "Subscriber",
    "SubscriptionRequest",
    "TransparencyLog",
    "TrustState",
    "UnreachableAuthor",
    "ViewAttestation",
    "Voucher",
    "WantedEntry",
]
