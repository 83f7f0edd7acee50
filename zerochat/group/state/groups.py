"""A group, as this member sees it."""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did import Identity
from zerochat.group.event_log.event import Event
from zerochat.group.key_modes import MODES, Mode, OwnPlace
from zerochat.group.links.contact import transport_secret
from zerochat.group.membership import View
from zerochat.group.state.ack_sets import AggregatedAcks
from zerochat.group.state.chains import Chain, EventLog
from zerochat.group.state.content_keys import ContentKeys
from zerochat.group.state.dcgka import Dcgka
from zerochat.group.state.files import FileEntry
from zerochat.group.state.joins import Admissions
from zerochat.group.state.peers import Links
from zerochat.group.state.private import PrivateWith
from zerochat.group.state.routed import Routed
from zerochat.group.state.streams import SignedStreams
from zerochat.group.state.sync import SyncState
from zerochat.group.state.tlog import Tlogs
from zerochat.group.state.trust import TrustState

GroupState: TypeAlias = Literal["active", "leaving", "left"]
_EMPTY_CHAIN = Chain()
"""The chain of an author without events: requested so often that a shared object matters."""


class Profile(Struct, frozen=True):
    """The choices fixed at a group's creation."""

    keys: str
    path: str = "mesh"
    accountability: str = "acks"
    envelope: str = "didcomm/v2"


class Retention(Struct, frozen=True):
    """The retention of a group's content (`group/retention.py`)."""

    choice: int = 0
    """The user's choice for this conversation, ms; 0: none."""
    erased_before: int = 0
    """Content with an earlier Lamport time is erased here."""


class Group(Redacted, frozen=True):
    """One group, as this member sees it: a record for each part of the protocol."""

    REDACTED = ("seed",)

    id: str
    name: str
    profile: Profile
    state: GroupState
    me: str
    seed: bytes
    """The seed of the Ed25519 key that is `me`; our CURVE key for this group derives from it (`transport_secret`)."""
    contact: Identity
    control: dict[str, Event]
    """Every membership event, by id."""
    view: View
    created: int
    """The genesis event's own time, UTC ms."""
    removed_by: str = ""
    """The member that removed us; empty: none."""
    private: PrivateWith | None = None
    """The other member, if this is a private conversation."""
    joining: Admissions = Admissions()
    trust: TrustState = TrustState()
    links: Links = Links()
    log: EventLog = EventLog()
    sync: SyncState = SyncState()
    acks: AggregatedAcks = AggregatedAcks()
    streams: SignedStreams = SignedStreams()
    tlogs: Tlogs = Tlogs()
    dcgka: Dcgka = Dcgka()
    routed: Routed = Routed()
    content_keys: ContentKeys = ContentKeys()
    retention: Retention = Retention()
    files: dict[str, FileEntry] = field(default_factory=dict)
    """The files that were posted, by id."""

    @property
    def keys(self) -> str:
        """The group's key mode: the one that it was founded with, or upgraded to."""
        return self.view.keys or self.profile.keys

    @property
    def mode(self) -> Mode:
        """The operations of the group's key mode."""
        return MODES[self.keys]

    @property
    def first_mode(self) -> Mode:
        """The mode that the group was founded with: what comes from before an upgrade has its form."""
        return MODES[self.profile.keys]

    @property
    def own_place(self) -> OwnPlace:
        return OwnPlace(self.id, self.me, transport_secret(self.seed))

    @property
    def seq(self) -> int:
        """The number of our own events."""
        chain = self.log.chains.get(self.me)
        return chain.seq if chain else 0

    @property
    def others(self) -> list[str]:
        return [did for did in self.view.members if did != self.me]

    @property
    def counterparts(self) -> list[str]:
        """The other members that we talk to ourselves: all, or on the ring those that we are linked to."""
        return self.others if self.view.path == "mesh" else [did for did in self.others if did in self.links.peers]

    def chain(self, author: str) -> Chain:
        """How far this author's chain is delivered here."""
        return self.log.chains.get(author, _EMPTY_CHAIN)
