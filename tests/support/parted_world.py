"""A simulated group split into partitions."""

from tests.support.ruled_world import Ruled
from zerochat.agent.views.completeness import completeness


class Parted(Ruled):
    """A group in which some pairs cannot reach each other."""

    def __init__(self, members=3, keys="pairwise-multi"):
        self.cut = set()
        super().__init__(members, keys=keys)

    def _ends(self, node, link):
        ends = super()._ends(node, link)
        return None if ends is None or frozenset((node.name, ends[0].name)) in self.cut else ends

    def part(self, one, other):
        self.cut.add(frozenset((one, other)))
        for name, there in ((one, other), (other, one)):
            node = self.nodes[name]
            for link in [link for link, end in node.connected.items() if end == there]:
                self._disconnect(node, link)
        self.run(for_ms=500)

    def meet(self):
        self.cut.clear()
        self._connect_all()

    def whole(self, name):
        group, up = self.group(name), self.nodes[name].agent.links_up
        near = {did for did, peer in group.links.peers.items() if peer.link in up}
        return completeness(group, near, self.now)
