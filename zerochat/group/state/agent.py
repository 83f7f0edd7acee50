"""All of it: one person's or bot's agent."""

from msgspec import Struct, field

from zerochat.group.files.quota import FileRules
from zerochat.group.key_rotation import Rotation
from zerochat.group.links.contact import Reach
from zerochat.group.messages.sharing import Sharing
from zerochat.group.state.external import Awaited, Connection, Fault, Question
from zerochat.group.state.groups import Group
from zerochat.group.state.joins import Join, OpenInvitation


class Agent(Struct, frozen=True):
    """One person's or bot's agent: its groups, its open invitations and its joins."""

    label: str
    reach: Reach | None = None
    groups: dict[str, Group] = field(default_factory=dict)
    invitations: dict[bytes, OpenInvitation] = field(default_factory=dict)
    """By the link on which they are answered."""
    joins: dict[bytes, Join] = field(default_factory=dict)
    """By the link on which they knock."""
    up: frozenset[bytes] = frozenset()
    """The links that are connected right now."""
    connections: dict[str, Connection] = field(default_factory=dict)
    web: tuple[str, ...] = ()
    """Where envelopes reach us over HTTP and WebSocket; empty unless asked for."""
    web_up: frozenset[str] = frozenset()
    """The WebSockets of ours that are open right now."""
    faults: dict[str, Fault] = field(default_factory=dict)
    """By URI: those that did not take what we posted."""
    awaited: dict[bytes, Awaited] = field(default_factory=dict)
    """By the digest of an envelope, the latest ones for which a mediator may give a receipt; as short-lived as the
    connections that they went over."""
    questions: dict[str, Question] = field(default_factory=dict)
    """By thread; as short-lived as the connections they went over."""
    leap: int = 0
    """By how many ms the clock was set since anybody has agreed with it; until then the time goes on as before."""
    file_rules: FileRules = FileRules()
    """How much of others' files this machine takes."""
    sharing: Sharing = Sharing()
    """What others are told of what a person here reads and writes."""
    rotation: Rotation = Rotation()
    """When a new key is drawn for what is said here, in groups whose keys sign."""
    calls: dict[bytes, bytes] = field(default_factory=dict)
    """Joiners whom we have dialled because they answered by mail (`invite.call`): our link to each, and the link of
    the invitation that it has answered. As short-lived as any connection."""
