"""Reader of a transparency log: accepts only append-only extensions that a quorum cosigned."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from zerochat.errors import Refused, Unauthentic
from zerochat.evidence.merkle import Frontier
from zerochat.evidence.note import Note, parse_checkpoint
from zerochat.evidence.witness import Quorum, SplitView, parse_entry


class ReaderLog(Struct, frozen=True):
    """The reader's state of a log."""

    quorum: Quorum
    frontier: Frontier = Frontier()
    note: Note | None = None
    """The last accepted checkpoint."""

    def follow(self, records: Sequence[bytes], note: Note) -> "ReaderLog":
        """Extend the log to a checkpoint by its new entries; a known checkpoint changes nothing.

        Raises Unauthentic or Refused without a quorum or for entries that do not match the root, Malformed, and
        SplitView for a checkpoint that contradicts the accepted one.
        """
        self.quorum.posted_by_ms(note)
        target = parse_checkpoint(note.text)
        if target.origin != self.quorum.origin:
            raise Unauthentic()
        if target.size == self.frontier.size and self.note is not None and target.root != self.frontier.root():
            raise SplitView(self.note, note)
        if target.size <= self.frontier.size:
            return self
        if len(records) != target.size - self.frontier.size:
            raise Refused(why="a log extension with missing entries")
        frontier = self.frontier
        for record in records:
            parse_entry(record)
            frontier = frontier.with_entry(record)
        if frontier.root() != target.root:
            raise Refused(why="the entries do not match the checkpoint")
        return replace(self, frontier=frontier, note=note)
