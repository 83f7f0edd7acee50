"""Who reads a group's log: it believes what a quorum has cosigned and nothing else, and only what goes on from where it
stands."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from zerochat.errors import Refused, Unauthentic
from zerochat.evidence.merkle import Frontier
from zerochat.evidence.note import Note, parse_checkpoint
from zerochat.evidence.witness import Quorum, Split, parse_entry


class Followed(Struct, frozen=True):
    """A log as whoever reads it remembers it."""

    quorum: Quorum
    frontier: Frontier = Frontier()
    note: Note | None = None
    """The last checkpoint that was believed."""

    def followed(self, records: Sequence[bytes], note: Note) -> "Followed":
        """The log up to this checkpoint, with the entries that come after what is known of it. What is known already
        changes nothing.

        Raises Unauthentic or Refused where no quorum stands behind it or the entries do not lead there, Malformed, and
        Split where it contradicts what was believed before.
        """
        self.quorum.time_ms(note)
        said = parse_checkpoint(note.text)
        if said.origin != self.quorum.origin:
            raise Unauthentic()
        if said.size == self.frontier.size and self.note is not None and said.root != self.frontier.root():
            raise Split(self.note, note)
        if said.size <= self.frontier.size:
            return self
        if len(records) != said.size - self.frontier.size:
            raise Refused(why="a piece of a log with entries missing")
        frontier = self.frontier
        for record in records:
            parse_entry(record)
            frontier = frontier.with_entry(record)
        if frontier.root() != said.root:
            raise Refused(why="the entries do not lead to this checkpoint")
        return replace(self, frontier=frontier, note=note)
