"""A key and a state tree for journals."""

from msgspec import Struct, field

from zerochat.group.composite import Composite, SortedComposite

KEY = bytes(range(32))


class Leaf(Struct, frozen=True):
    number: int
    blob: bytes = b""
    names: frozenset[str] = frozenset()
    chain: tuple[tuple[str, int], ...] = ()


class Branch(Struct, frozen=True):
    """An entry that is split again, for it has entries of its own."""

    title: str
    leaves: dict[bytes, Leaf] = field(default_factory=dict)
    limbo: dict[str, dict[int, bytes]] = field(default_factory=dict)
    where: Leaf | None = None
    rings: dict[int, Leaf] = field(default_factory=dict)


class Tree(Struct, frozen=True):
    label: str
    branches: dict[str, Branch] = field(default_factory=dict)
    singles: dict[bytes, Leaf] = field(default_factory=dict)
    up: frozenset[bytes] = frozenset()


class Twig(Composite, frozen=True):
    leaves: dict[str, Leaf] = field(default_factory=dict)


class Wreath(Struct, frozen=True):
    """Its leaves have an order."""

    leaves: dict[str, Leaf] = field(default_factory=dict)


class Hedge(SortedComposite, frozen=True):
    leaves: dict[str, Leaf] = field(default_factory=dict)


class Bush(Struct, frozen=True):
    twig: Twig = Twig()
    wreath: Wreath = Wreath()
    hedge: Hedge = Hedge()
