"""A simulated group whose envelopes are all recorded, on lines that lose some of them."""

from msgspec.structs import replace

from tests.support.file_world import Disks, file_of
from tests.support.thief import Thief
from zerochat.group.dcgka import publisher
from zerochat.group.effects import CommandDone
from zerochat.group.inputs import (
    AcceptInvitation,
    Command,
    CreateGroup,
    CreateInvitation,
    Received,
    SendPost,
    StepContext,
    TimerFired,
)
from zerochat.group.membership import Policy
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.sim import SIMULATED_PACKERS, Faults
from zerochat.sim.world import Node

LOSSY = Faults(loss=0.15, duplication=0.05, delay_ms_max=200)
MINUTE_MS = 60_000


class Watched(Disks):
    """Members of one group with these keys. Each post is a word of its own."""

    def __init__(
        self, keys: str, seed: int, members: int = 3, envelope: str = "didcomm/v2", mailed: tuple[str, ...] = ()
    ) -> None:
        """`mailed`: members behind a mediator, which write to each other over it."""
        self.recorded: list[tuple[str, Received]] = []
        """All frames, with their recipients."""
        self.posts: list[str] = []
        behind = {name: ["m0"] for name in mailed}
        super().__init__(seed, members, LOSSY, envelope, mediators=len(behind) and 1, behind=behind)
        answer = self.done("n0", CreateGroup("friends", "n0", self.envelope, keys, Policy()))
        self.id = answer.result.group
        for name in [*self.nodes][1:]:
            self.join(name)

    def _frame(self, name: str, input_: Received) -> None:
        self.recorded.append((name, input_))
        super()._frame(name, input_)

    def done(self, name: str, command: Command) -> CommandDone:
        answer = self.run_command(name, command)
        assert isinstance(answer, CommandDone), answer
        return answer

    def join(self, name: str) -> None:
        """Join the group, and wait until all views agree."""
        invitation = self.done("n0", CreateInvitation(self.id, 3600, 1)).result.invitation
        self.done(name, AcceptInvitation(invitation, name))
        assert self.run(lambda: self.id in self.nodes[name].agent.groups and self.agree(), for_ms=20 * MINUTE_MS)

    def newcomer(self) -> str:
        """One more member, with all the history that it may have."""
        name = self.add_node({}).name
        self.start(name)
        self.join(name)
        self.deliver()
        return name

    def agree(self) -> bool:
        members = [node.agent.groups[self.id] for node in self.nodes.values() if self.id in node.agent.groups]
        return len({group.view.checksum for group in members}) == 1

    def talk(self, rounds: int) -> list[str]:
        """Each member posts so often; returns the posts, once all members have them."""
        before = len(self.posts)
        for _ in range(rounds):
            for name in self.nodes:
                self.posts.append(f"word{len(self.posts):04}of{name}")
                self.done(name, SendPost(self.id, self.posts[-1]))
                self.run(for_ms=300)
        self.deliver()
        return self.posts[before:]

    def share_file(self, name: str, size: int = 60_000) -> str:
        """Post a file, and wait until all members have it; returns a word that it consists of."""
        self.posts.append(f"word{len(self.posts):04}of{name}")
        data = (self.posts[-1].encode() * size)[:size]
        file = file_of(data)
        self.attach(name, data, "a file")
        self.deliver()
        others = [other for other in self.nodes if other != name]
        for other in others:
            self.get(other, file, name)
        assert self.run(lambda: all(self.has(other, data, file) for other in others), for_ms=20 * MINUTE_MS)
        return self.posts[-1]

    def deliver(self) -> None:
        assert self.run(lambda: all(self.has_all(node) for node in self.nodes.values()), for_ms=20 * MINUTE_MS), (
            "all posts"
        )

    def has_all(self, node: Node) -> bool:
        return sum(row.type == "post" for row in node.log) == len(self.posts)

    def envelopes(self, start: int = 0, end: int | None = None) -> list[bytes]:
        """The recorded envelopes between two moments, in numbers of frames."""
        return [one.envelope for _, one in self.recorded[start:end]]

    def update_all(self) -> None:
        """Every member updates its keys, one after the other."""
        for name, node in self.nodes.items():
            tx = Transaction(node.agent, StepContext(self.now, self.rng.randbytes), SIMULATED_PACKERS)
            publisher.make(tx, self.id, update=True)
            node.agent = tx.agent
            for effect in tx.effects:
                self._perform(node, effect)
            self.process(name, TimerFired(f"{TimerKind.RETRANSMIT} {self.id}"))
            assert self.run(self.keys_acknowledged, for_ms=20 * MINUTE_MS)

    def keys_acknowledged(self) -> bool:
        groups = [node.agent.groups[self.id] for node in self.nodes.values()]
        return not any(group.dcgka.sent or group.dcgka.held for group in groups)

    def steal(self, name: str) -> Thief:
        """A copy of a member's profile: what its journal and its memory have now."""
        node = self.nodes[name]
        return Thief(replace(node.agent), [one.key for one in node.signed])


def words_in(texts: list[str], words: list[str]) -> set[str]:
    """Those of these words that are in the texts."""
    everything = "\n".join(texts)
    return {word for word in words if word in everything}
