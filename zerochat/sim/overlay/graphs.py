"""Connectivity of simulated overlays: the components of a graph of links without directions."""

from collections.abc import Iterable, Iterator, Mapping

Graph = Mapping[str, set[str]]


def undirected(links: Mapping[str, Iterable[str]]) -> Graph:
    """The graph of these links among its nodes, in both directions; links to others are left out."""
    graph: dict[str, set[str]] = {name: set() for name in links}
    for name, others in links.items():
        for other in others:
            if other in graph and other != name:
                graph[name].add(other)
                graph[other].add(name)
    return graph


def components(graph: Graph) -> Iterator[set[str]]:
    """The connected components."""
    left = dict.fromkeys(graph)
    while left:
        reached, border = set[str](), [next(iter(left))]
        while border:
            name = border.pop()
            if name not in reached:
                reached.add(name)
                border.extend(graph[name] - reached)
        for name in reached:
            del left[name]
        yield reached


def largest_part(graph: Graph) -> float:
    """The part of the nodes in the largest component, 0 to 1."""
    return max(map(len, components(graph)), default=0) / max(1, len(graph))
