"""Invariants of upgrades: one key mode for all members, no way back, and one form of each post everywhere."""

from collections.abc import Iterator, Mapping, Sequence

from zerochat.group.effects import StoreEvent
from zerochat.group.event_log.event import CONTROL, UPGRADE
from zerochat.group.membership import upgrade_of
from zerochat.group.membership.upgrades import UPGRADES
from zerochat.group.state import Group
from zerochat.sim.fast_crypto import event_of
from zerochat.sim.node import Node, Violation


def keys_kept(former: Group, group: Group) -> bool:
    """Whether the keys are as before, or upgraded."""
    return group.keys in (former.keys, UPGRADES.get(former.keys))


def check_own_form(who: str, former: Group | None, effect: StoreEvent) -> None:
    """Raise Violation for a new event of ours without a signature, if authors signed in our `former` state already."""
    signs = former is not None and former.mode.signs_events
    if signs and effect.type not in CONTROL and not _is_signed(effect):
        raise Violation(f"{who} does not sign a post in a group whose authors sign")


def differing_keys(active: Mapping[str, Group]) -> Iterator[str]:
    """Whether these members, who have the same view, have different keys, as a sentence."""
    keys = {group.keys for group in active.values()}
    if len(keys) > 1:
        yield f"members have different keys: {', '.join(sorted(keys))}"


def check_forms(seed: int, nodes: Sequence[Node]) -> None:
    """Raise Violation if a post with a final upgrade in its causal past lacks a signature, or if a copy of a post has
    another form than its author's."""
    forms: dict[str, bool] = {}
    for node in nodes:
        for group in node.agent.groups.values():
            rows = [row for row in node.log if row.group == group.id and row.type not in CONTROL]
            forms.update({row.id: _is_signed(row) for row in rows if row.author == group.me})
            after = _after_final([row for row in node.log if row.group == group.id])
            if not all(_is_signed(row) for row in rows if row.id in after):
                raise Violation(f"seed {seed}: {node.name} has an unsigned post from after an upgrade")
    for node in nodes:
        if any(forms.get(row.id, _is_signed(row)) != _is_signed(row) for row in node.log if not row.relayed_by):
            raise Violation(f"seed {seed}: {node.name} has a post in another form than its author")


def _is_signed(row: StoreEvent) -> bool:
    return bool(event_of(row.record).sig)


def _after_final(rows: Sequence[StoreEvent]) -> set[str]:
    """The events of a log that are a final upgrade or have one in their causal past. Causes come first."""
    found = set[str]()
    for row in rows:
        event = event_of(row.record)
        is_final = row.type == UPGRADE and upgrade_of(event).final
        if is_final or not found.isdisjoint((event.pre, *event.deps)):
            found.add(row.id)
    return found
