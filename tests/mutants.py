"""Small faults of our own, as switches that only the tests can set: a search that does not find them finds nothing.

Each takes something away, or puts it in the wrong order, that one of the promises needs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from zerochat.didcomm.packer import Unpacked
from zerochat.errors import Malformed
from zerochat.group import clock, engine, log, outbox, peers, sync
from zerochat.group.effects import Receipt, Remembered
from zerochat.group.history import needs, past
from zerochat.group.membership import resolve_view
from zerochat.group.state import Limbo
from zerochat.group.turn import Turn
from zerochat.sim.episode import CLOCK, GO
from zerochat.sim.ordeal import Ordeal
from zerochat.sim.transparent import TransparentPacker

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutant:
    """One of them."""

    name: str
    apply: Callable[[Patch], object]
    lazy_turns: int = 0
    """For the disks of `play_episode`."""
    kind: str = ""
    """What has to go wrong for it to matter; empty: nothing in particular."""


def _no_dedupe(patch: Patch) -> None:
    """What was heard already is delivered once more."""
    hear = log._hear_chain

    def again(turn, name, event):
        known = turn.group(name).chain(event.author)
        hear(turn, name, event)
        if 0 < event.seq <= known.seq and not event.is_control:
            log.remember(turn, name, event, late=True)

    patch.setattr(log, "_hear_chain", again)


def _no_retransmission(patch: Patch) -> None:
    patch.setattr(sync, "repair", lambda turn, name: None)
    patch.setattr(needs, "seek", lambda turn, name: None)
    patch.setattr(past, "fetch", lambda turn, name: None)


def _wrong_comparison(patch: Patch) -> None:
    """A new event may have the time of one that its author has read, or an earlier one."""
    patch.setattr(clock, "tick", lambda latest, now: now)


def _last_first(patch: Patch) -> None:
    """A repair begins with the newest of what is lacking, and there is room for one."""
    recalled = sync.recalled

    def last(turn, name, member, records, messages):
        recalled(turn, name, member, records[-1:], messages[-1:])

    patch.setattr(sync, "recalled", last)


def _speaks_first(patch: Patch) -> None:
    """What a turn says goes out before the turn is remembered."""

    def hear(world, name, stimulus):
        node, machine = world.nodes[name], world.machines[name]
        if machine.dies_after == -1 and not machine.off:
            before = node.agent
            for effect in world._step(node, stimulus):
                if not isinstance(effect, Remembered):
                    world._perform(node, effect)
            node.agent = before
            world._die(node)
        else:
            straight(world, name, stimulus)

    straight = Ordeal.hear
    patch.setattr(Ordeal, "hear", hear)


def _no_causes(patch: Patch) -> None:
    """Nobody waits for the membership events that an event names."""
    patch.setattr(log, "_is_next", lambda group, event: event.seq == group.chain(event.author).seq + 1)


def _no_gaps(patch: Patch) -> None:
    """Whatever comes is taken for the next."""

    def is_next(group, event):
        return event.seq > group.chain(event.author).seq and all(dep in group.control for dep in event.deps)

    patch.setattr(log, "_is_next", is_next)


def _acknowledges_too_much(patch: Patch) -> None:
    """What waits for something earlier counts as had."""

    def have(group):
        held = {did: max(group.limbo.get(did, Limbo()).records, default=0) for did in group.view.members}
        return [max(group.chain(did).sure, held[did]) for did in group.view.members]

    patch.setattr(outbox, "have", have)
    patch.setattr(sync, "have", have)


def _limbo_is_lost(patch: Patch) -> None:
    """What has waited is thrown away when what it waited for has come, and counts as had."""
    release = log._release

    def forget(turn, name, author):
        group = turn.group(name)
        held = group.limbo.get(author, Limbo()).records
        if held:
            chain = group.chain(author)
            last = max(held)
            if last > chain.seq:
                turn.edit(name, chains={**group.chains, author: replace(chain, seq=last)})
            turn.edit(name, limbo=log._without(turn.group(name).limbo, author))
        release(turn, name, author)

    patch.setattr(log, "_release", forget)


def _views_are_not_compared(patch: Patch) -> None:
    patch.setattr(sync, "reconcile", lambda turn, name, member, heads: None)
    patch.setattr(sync, "compare_views", lambda turn, name: None)


def _view_from_labels(patch: Patch) -> None:
    """A view is told by its members' names, and not by what has made it."""

    def told(view):
        return "|".join(member.label for member in view.members.values())

    resolve = resolve_view
    patch.setattr(log, "resolve_view", lambda control: replace(found := resolve(control), checksum=told(found)))


def _bytes_unchecked(patch: Patch) -> None:
    """Whatever comes over a link is taken for what was sent there."""

    def unpack(packer, envelope, *, secret_of, public_of):
        try:
            sender, recipient, _, plain = envelope.decode().split("\n", 3)
        except ValueError as error:
            raise Malformed(why=str(error)) from None
        return Unpacked(plain.encode(), "authcrypt" if sender else "anoncrypt", sender or None, recipient, "none")

    patch.setattr(TransparentPacker, "unpack", unpack)


def _believes_its_clock(patch: Patch) -> None:
    """Events are dated by whatever the clock says."""
    patch.setattr(Turn, "now", property(lambda turn: turn.moment.now))


def _dials_once(patch: Patch) -> None:
    """After a start nobody is dialled whom one has dialled before."""
    start, dial = engine._start, peers.dial

    def silent(turn, reach, web):
        peers.dial = lambda turn, name, member, *, second=False: None
        try:
            start(turn, reach, web)
        finally:
            peers.dial = dial

    patch.setattr(engine, "_start", silent)


def _nothing_when_a_link_comes_up(patch: Patch) -> None:
    """Whoever comes back is told nothing of what it may lack."""
    patch.setattr(peers, "link_up", lambda turn, name, member: None)


def _reads_without_a_trace(patch: Patch) -> None:
    """What others have said does not move the clock of whoever reads it."""
    deliver = log._deliver

    def forget(turn, name, event, by=""):
        before = turn.group(name).lamport
        deliver(turn, name, event, by)
        if not event.is_control and event.author != turn.group(name).me:
            turn.edit(name, lamport=before)

    patch.setattr(log, "_deliver", forget)


def _receipts_for_more(patch: Patch) -> None:
    """Whoever acknowledges something is taken to have all that was said until then."""
    acknowledged = sync.acknowledged

    def all_of_it(turn, name, member, reported):
        said = len(turn.effects)
        acknowledged(turn, name, member, reported)
        seq = turn.group(name).seq
        turn.effects[said:] = [
            replace(one, upto=seq) if isinstance(one, Receipt) and one.member == member else one
            for one in turn.effects[said:]
        ]

    patch.setattr(sync, "acknowledged", all_of_it)


def _out_after_a_start(patch: Patch) -> None:
    """Whoever starts again takes itself for somebody who has left."""
    start = engine._start

    def leave(turn, reach, web):
        start(turn, reach, web)
        for name in turn.agent.groups:
            turn.edit(name, state="left")

    patch.setattr(engine, "_start", leave)


def _goes_at_once(patch: Patch) -> None:
    """Whoever leaves does not stay until somebody has heard it."""
    patch.setattr(
        sync, "lacks", lambda group, member, lacks=sync.lacks: group.state != "leaving" and lacks(group, member)
    )


MUTANTS = [
    Mutant("no dedupe", _no_dedupe),
    Mutant("no retransmission", _no_retransmission),
    Mutant("no fsync", lambda patch: None, lazy_turns=5),
    Mutant("wrong comparison in the clock", _wrong_comparison),
    Mutant("repair in the wrong order", _last_first),
    Mutant("speaking before remembering", _speaks_first),
    Mutant("no waiting for causes", _no_causes),
    Mutant("no waiting for what is missing", _no_gaps),
    Mutant("acknowledging what waits", _acknowledges_too_much),
    Mutant("losing what waits", _limbo_is_lost),
    Mutant("views not compared", _views_are_not_compared),
    Mutant("a view from labels", _view_from_labels),
    Mutant("bytes not checked", _bytes_unchecked),
    Mutant("events dated by a wrong clock", _believes_its_clock, kind=CLOCK),
    Mutant("not dialling after a start", _dials_once),
    Mutant("nothing when a link comes up", _nothing_when_a_link_comes_up),
    Mutant("reading without a trace in the clock", _reads_without_a_trace, kind=CLOCK),
    Mutant("receipts for more than was acknowledged", _receipts_for_more),
    Mutant("out after a start", _out_after_a_start),
    Mutant("leaving before anybody has heard it", _goes_at_once, kind=GO),
]
