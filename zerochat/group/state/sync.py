"""Records of synchronisation: gaps, pull requests, backfill, recovery, reconciliation, corroboration."""

from enum import Enum
from typing import Self

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.group.composite import Composite


class MissingRange(Struct, frozen=True):
    """A missing stretch of an author's chain that other members have."""

    upto: int
    tries: int = 0
    """The number of requests so far."""
    retry_at: int = 0
    """Do not request it again before this, UTC ms."""
    since: int = 0
    """When it was first found missing, UTC ms."""


class PullPurpose(Enum):
    """How the response to a pull request is processed."""

    GAPS = "gaps"
    """Stored as relayed events (`sync/history_requests.py`)."""
    BACKFILL = "backfill"
    """Stored below the chains that are here (`sync/backfill.py`)."""
    COMPARE = "compare"
    """Compared with our events, not stored (`sync/fork_detection.py`)."""
    CORROBORATE = "corroborate"
    """Compared with relayed events, not stored (`sync/corroboration.py`)."""
    REINSTATE = "reinstate"
    """Stored if rejected before and valid now (`sync/reinstated_posts.py`)."""
    UNREACHABLE_AUTHOR = "unreachable-author"
    """Stored as the start of a chain (`sync/unreachable_authors.py`)."""


class PullRequest(Struct, frozen=True):
    """The open history request to one member: a response counts only if it answers this."""

    thread: str
    ranges: tuple[tuple[str, int, int], ...]
    until: int
    """The timeout, UTC ms; then another member is asked."""
    backwards: bool = False
    page: int = 0
    """The number of the next response."""
    pages: int = 1
    """The most responses to it."""
    purpose: PullPurpose = PullPurpose.GAPS
    """How its response is processed."""


class ReinstatedPosts(Struct, frozen=True):
    """Posts of one author that were rejected while it counted as a reader (`sync/reinstated_posts.py`)."""

    ids: dict[int, str] = field(default_factory=dict)
    """The ids of the events, by place."""
    tries: int = 0
    """Requests in a row without an answer."""
    retry_at: int = 0
    """Do not request them again before this, UTC ms."""


class UnreachableAuthor(Struct, frozen=True):
    """Requests about an author that has never reached us itself (`sync/unreachable_authors.py`)."""

    answered_upto: dict[str, int] = field(default_factory=dict)
    """By member that answered: the end of the chain that it had then."""
    tries: int = 0
    """Requests in a row without an answer."""
    retry_at: int = 0
    """Do not ask again before this, UTC ms."""


class Recovery(Struct, frozen=True):
    """The recovery of our own events after this profile was found, or may be, stale (`sync/stale_profile.py`)."""

    from_backup: bool = False
    """The profile was restored from a backup, and some members have not reported our chain's end yet."""
    claims: dict[str, int] = field(default_factory=dict)
    """By member: the end of our chain that it reports."""
    requests: dict[str, int] = field(default_factory=dict)
    """By member in reach: requests for our events since the last progress."""
    rounds: int = 0
    """Rounds of requests since then with at least one member connected."""
    requested_by_mail: frozenset[str] = frozenset()
    """Members that were asked by mail, and not over a link since."""
    ignored: frozenset[str] = frozenset()
    """Members that claimed more and had nothing to show."""
    has_new_keys: bool = False
    """The key agreement has begun anew, since the lost copy may have used our keys."""


class Comparison(Struct, frozen=True):
    """The state of our set reconciliation with one member (`sync/fork_detection.py`)."""

    noticed_at: int = 0
    """Since when its chain heads differ from ours, UTC ms; 0: they do not."""
    started_at: int = 0
    """When we last began a reconciliation, UTC ms."""
    authors: tuple[str, ...] = ()
    """The authors whose heads differ; empty: none is under way."""
    thread: str = ""
    """The question that it has not answered yet."""
    rounds: int = 0
    """Questions so far."""
    differing: tuple[tuple[str, int, str], ...] = ()
    """Of each author, the first event of ours that the member lacks: author, place, id."""
    answers_since: int = 0
    """Since when the member's own questions are counted, UTC ms."""
    answers: int = 0
    """How many of those we have answered since."""


class Difference(Struct, frozen=True):
    """A member has another event than we at this place of an author's chain."""

    author: str
    seq: int
    member: str
    found_at: int
    """When that was found, UTC ms."""
    relayed_by: str = ""
    """The member that relayed our event; empty: its author confirmed it."""


class Corroboration(Struct, frozen=True):
    """Whether another member has the same relayed events (`sync/corroboration.py`)."""

    seq: int
    id: str
    """The newest relayed event."""
    relayed_by: str
    """The member that relayed it."""
    asked: tuple[str, ...] = ()
    """The members that were asked."""
    corroborator: str = ""
    """The member that has the same event; empty: none has said so."""


class BackfillProgress(Struct, frozen=True):
    """How far the history from before we joined is fetched."""

    done: bool = False
    """The members that could be asked have no more that we may have."""
    idle_rounds: int = 0
    """Rounds in a row in which no member could be asked."""
    requested_authors: frozenset[str] = frozenset()
    """The authors whose chains were requested."""
    received: int = 0
    """The number of events received."""
    tries: int = 0
    """Requests in a row without an answer or without news."""
    thread: str = ""
    """The id of the request that was sent over a link and is unanswered."""
    lost: int = 0
    """Requests of this round that do not count as tries, since they may have been lost."""
    requests: dict[str, int] = field(default_factory=dict)
    """By member: requests to it, less those that brought events confirmed by their author."""
    pages: int = 1
    """The responses requested at once: doubled as long as none is lost."""
    rechecks: int = 0
    """Requests in vain since the backfill was done, made because there should be more."""
    recheck_at: int = 0
    """When the next of them is due, UTC ms."""

    def reopened(self) -> Self:
        """The same state after more history turned out to exist."""
        return replace(self, done=False, tries=0, lost=0, requests={}, rechecks=0)


class SyncState(Composite, frozen=True):
    """What is missing here, and what other members were asked (`group/sync/`)."""

    ahead: frozenset[str] = frozenset()
    """All authors of whose chains a member may have more than we: the others need not be looked for."""
    gaps: dict[str, MissingRange] = field(default_factory=dict)
    """By author: the missing part of its chain that other members have."""
    pull_requests: dict[str, PullRequest] = field(default_factory=dict)
    """By member: the open pull request, at most one each."""
    reinstated_posts: dict[str, ReinstatedPosts] = field(default_factory=dict)
    """By author: posts that were left out because the author was a reader, and that may be valid after all."""
    unreachable_authors: dict[str, UnreachableAuthor] = field(default_factory=dict)
    """By author: the answers of other members about an author that has never reached us itself."""
    corroborations: dict[str, Corroboration] = field(default_factory=dict)
    """By author: the corroboration of the newest relayed part of its chain."""
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    """By member: the state of our set reconciliation with it."""
    differences: tuple[Difference, ...] = ()
    """The differences that reconciliation has found."""
    recovery: Recovery | None = None
    """Stale-profile recovery; None: no member claims to have more of our chain than we have."""
    backfill: BackfillProgress | None = None
    """The backfill; None: there is nothing from before we joined that we may have."""
    view_comparisons: int = 0
    """Comparisons of views since ours changed (`sync/anti_entropy.py`)."""
    acks_due: frozenset[str] = frozenset()
    """The authors to which an acknowledgement is due."""
