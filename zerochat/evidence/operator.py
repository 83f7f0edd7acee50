"""Operator of a transparency log: sequences entries, proposes checkpoints, collects cosignatures.

One checkpoint is proposed at a time and covers a bounded number of entries, so a lagging or new witness catches up
checkpoint by checkpoint. A checkpoint and its entries must be on disk before it is sent: an operator that forgets a
signed checkpoint could sign a conflicting one. Readers get the log up to the last complete checkpoint.
"""

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.errors import Refused, Unauthentic
from zerochat.evidence.merkle import Frontier
from zerochat.evidence.note import Note, cosignature_time
from zerochat.evidence.witness import ENTRIES_MAX, Quorum, checkpoint, parse_entry

PENDING_MAX, PENDING_PER_AUTHOR_MAX = 4 * ENTRIES_MAX, ENTRIES_MAX // 4
"""Unsequenced entries, in total and per member."""


class OperatorLog(Struct, frozen=True):
    """The operator's state of a log. Sequenced entries and checkpoints are in its journal."""

    quorum: Quorum
    frontier: Frontier = Frontier()
    """Frontier over all sequenced entries."""
    pending: dict[bytes, str] = field(default_factory=dict)
    """Unsequenced entries in order of arrival, with their authors."""
    proposed: Note | None = None
    """The proposed checkpoint with the cosignatures received so far."""
    complete: Note | None = None
    """The last checkpoint that a quorum cosigned."""

    def post(self, by: str, record: bytes) -> "OperatorLog":
        """Queue an entry posted by member `by`; a duplicate of a queued entry changes nothing.

        Raises Malformed, Unauthentic for a defence without its author's signature, and Refused for an entry in another
        member's name or too many queued entries.
        """
        entry = parse_entry(record)
        if entry.author != by:
            raise Refused(why="an entry in another member's name")
        if entry.kind == "defence":
            entry.check()
        if record in self.pending:
            return self
        of_one = list(self.pending.values()).count(by)
        if len(self.pending) >= PENDING_MAX or of_one >= PENDING_PER_AUTHOR_MAX:
            raise Refused(why="too many entries are queued")
        return replace(self, pending={**self.pending, record: by})

    def propose(self, seed: bytes) -> tuple["OperatorLog", tuple[bytes, ...]]:
        """Propose the next checkpoint; return the new state and the sequenced entries (none while a proposal is pending
        or nothing is queued)."""
        if self.proposed is not None or not self.pending:
            return self, ()
        records, frontier = list(self.pending), self.frontier
        placed = tuple(records[:ENTRIES_MAX])
        for record in placed:
            frontier = frontier.with_entry(record)
        pending = {record: self.pending[record] for record in records[ENTRIES_MAX:]}
        note = checkpoint(self.quorum.origin, frontier, seed)
        return replace(self, frontier=frontier, pending=pending, proposed=note), placed

    def proposal_for(self, size: int) -> Note | None:
        """The proposal, for a witness that already has its `size` entries and whose cosignature was lost; None: no
        proposal, or the witness needs entries first."""
        return self.proposed if self.proposed is not None and size == self.frontier.size else None

    def add_cosignature(self, by: str, line: str) -> "OperatorLog":
        """Add a witness's cosignature to the proposed or the last complete checkpoint; a quorum completes the proposal.
        Raises Refused, Unauthentic and Malformed."""
        if by not in self.quorum.witnesses:
            raise Refused(why="a cosignature by a member that is not a witness of this log")
        if self.proposed is not None and (more := _with_line(self.proposed, by, line)) is not None:
            if self.quorum.is_complete(more):
                return replace(self, proposed=None, complete=more)
            return replace(self, proposed=more)
        if self.complete is not None and (more := _with_line(self.complete, by, line)) is not None:
            return replace(self, complete=more)
        raise Unauthentic()


def _with_line(note: Note, by: str, line: str) -> Note | None:
    """The note with this cosignature line, added once; None: the line does not cosign this note. Raises Malformed."""
    alone = Note(note.text, ()).with_line(line)
    try:
        if cosignature_time(alone, by) is None:
            return None
        known = cosignature_time(note, by) is not None
    except Unauthentic:
        return None
    return note if known else note.with_line(line)
