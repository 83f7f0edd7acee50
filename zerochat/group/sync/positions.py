"""Version vectors in messages: how far a member has the chains, whole or in part.

Every message reports positions, cumulative ones, so a lost message costs nothing. In a small group each message has all
of them. In a larger one an anti-entropy message has all; every other message has those of the authors of the newest
events, and a part that begins at a random member, so that each author is covered in time. So its size does not grow
with the group.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from zerochat.group.membership.view import View
from zerochat.group.state import Group
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import HAVE_MAX, PositionsBody

WHOLE_MAX = 16
"""Views with at most so many members go whole into every message."""
PART_MAX = 8
"""Members in `have` otherwise."""


def confirmed_positions(group: Group, members: Iterable[str]) -> list[int]:
    """How far we have the chains of these members by the author's own word, and completely. Relayed events do not
    count: the author may still retransmit them."""
    chains = group.log.chains
    return [chains[did].complete_seq if did in chains else 0 for did in members]


def position_fields(tx: Transaction, group: Group, *, whole: bool) -> tuple[dict[str, Any], Sequence[str]]:
    """The fields of a `messages.PositionsBody`, and the members whose chains they are about. `whole`: all members, as
    far as they fit."""
    view = group.view
    most = HAVE_MAX if whole else PART_MAX
    if len(view.order) <= max(most, WHOLE_MAX):
        return {"view": view.checksum, "have": confirmed_positions(group, view.order)}, view.order
    first = int.from_bytes(tx.context.random(4)) % len(view.order)
    part = _members_from(view, first, most)
    latest = [did for did in group.log.latest_authors if did in view.places and did not in part]
    fields = {
        "view": view.checksum,
        "have": confirmed_positions(group, part),
        "have_from": first,
        "latest": list(zip(map(view.places.__getitem__, latest), confirmed_positions(group, latest), strict=True)),
    }
    return fields, (*part, *latest)


def reported(view: View, body: PositionsBody) -> list[tuple[str, int]]:
    """The members whose chains a message from a member with this view is about, and its positions."""
    order = view.order
    latest = [(order[place], upto) for place, upto in body.latest if place < len(order)]
    return [*zip(_members_from(view, body.have_from, len(body.have)), body.have, strict=False), *latest]


def _members_from(view: View, place: int, count: int) -> tuple[str, ...]:
    """So many members in the order of the view, beginning at this place and going round; each at most once."""
    place %= len(view.order) or 1
    end = place + min(count, len(view.order))
    return view.order[place:end] + view.order[: max(0, end - len(view.order))]
