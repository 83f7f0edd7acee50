"""Who operates a group's log.

The operator gives what is posted its place, makes a checkpoint over it, and hands the log out as far as a quorum has
cosigned it. It has one checkpoint under way at a time, and each covers a bounded piece; so a witness that was away, or
begins, goes from checkpoint to checkpoint as everybody else has. Before a checkpoint leaves, the operator has it on its
disk with the entries under it: whoever forgets what it has signed could sign another one.
"""

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.errors import Refused, Unauthentic
from zerochat.evidence.merkle import Frontier
from zerochat.evidence.note import Note, cosigned_at
from zerochat.evidence.witness import ENTRIES_MAX, Quorum, checkpoint, parse_entry

WAITING_MAX, WAITING_OF_ONE_MAX = 4 * ENTRIES_MAX, ENTRIES_MAX // 4
"""Entries that wait for their place, of all members and of one."""


class Operated(Struct, frozen=True):
    """A log as its operator remembers it. The entries that have a place, and the checkpoints, are in its journal."""

    quorum: Quorum
    frontier: Frontier = Frontier()
    """Over all entries that have a place."""
    waiting: dict[bytes, str] = field(default_factory=dict)
    """Entries that have none yet, in the order in which they came, with who has posted each."""
    asked: Note | None = None
    """The checkpoint under way, with the cosignatures that have come."""
    whole: Note | None = None
    """The last one that a quorum has cosigned."""

    def posted(self, by: str, record: bytes) -> "Operated":
        """With an entry that this member has posted, and that waits for its place. What waits already changes nothing;
        what has a place, the journal knows.

        Raises Malformed, Unauthentic for a defence that its author has not signed, and Refused for an entry in another
        member's name, or where too many wait.
        """
        entry = parse_entry(record)
        if entry.author != by:
            raise Refused(why="an entry in the name of somebody else")
        if entry.kind == "defence":
            entry.check()
        if record in self.waiting:
            return self
        of_one = list(self.waiting.values()).count(by)
        if len(self.waiting) >= WAITING_MAX or of_one >= WAITING_OF_ONE_MAX:
            raise Refused(why="more entries than a log takes at once")
        return replace(self, waiting={**self.waiting, record: by})

    def asking(self, seed: bytes) -> tuple["Operated", tuple[bytes, ...]]:
        """With the next checkpoint under way, and the entries that it adds: none, while one is, or nothing waits."""
        if self.asked is not None or not self.waiting:
            return self, ()
        records, frontier = list(self.waiting), self.frontier
        placed = tuple(records[:ENTRIES_MAX])
        for record in placed:
            frontier = frontier.with_entry(record)
        waiting = {record: self.waiting[record] for record in records[ENTRIES_MAX:]}
        note = checkpoint(self.quorum.origin, frontier, seed)
        return replace(self, frontier=frontier, waiting=waiting, asked=note), placed

    def again(self, size: int) -> Note | None:
        """The checkpoint under way, where a witness with so many entries has all that is under it: its line was lost,
        and it gives another one for no more entries. None: it has to be shown some first, or there is no such."""
        return self.asked if self.asked is not None and size == self.frontier.size else None

    def cosigned(self, by: str, line: str) -> "Operated":
        """With the line by which this witness cosigns the checkpoint under way, or the last whole one. With enough of
        them, the first becomes the second. Raises Refused, Unauthentic and Malformed."""
        if by not in self.quorum.witnesses:
            raise Refused(why="a cosignature of somebody who is no witness of this log")
        if self.asked is not None and (more := _with_line(self.asked, by, line)) is not None:
            if self.quorum.is_whole(more):
                return replace(self, asked=None, whole=more)
            return replace(self, asked=more)
        if self.whole is not None and (more := _with_line(self.whole, by, line)) is not None:
            return replace(self, whole=more)
        raise Unauthentic()


def _with_line(note: Note, by: str, line: str) -> Note | None:
    """The note with this line, once; None, where the line is not this witness' word for it. Raises Malformed."""
    alone = Note(note.text, ()).with_line(line)
    try:
        if cosigned_at(alone, by) is None:
            return None
        known = cosigned_at(note, by) is not None
    except Unauthentic:
        return None
    return note if known else note.with_line(line)
