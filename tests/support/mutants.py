"""Seeded defects: a search that does not find them proves nothing.

Each defect names the invariant whose violation must be reported; a crash is not enough. `MUTANTS` are defects of the
product. `ROOM` breaks the simulator's stand-ins for disk, process and cipher, and shows that it would notice if the
real ones (`agent/`, `crypto/`) failed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from zerochat.didcomm.packer import Unpacked
from zerochat.errors import Malformed
from zerochat.evidence.witness import Quorum
from zerochat.group import engine
from zerochat.group.effects import JournalEffect, ReadOwnEvents, StoreEvent, StoreReceipt
from zerochat.group.event_log import delivery, lamport, receiving
from zerochat.group.files import download
from zerochat.group.links import mediator_mail, peers
from zerochat.group.membership import extend_control
from zerochat.group.messages import current
from zerochat.group.signed_streams import publisher, receiver
from zerochat.group.state import ReorderBuffer
from zerochat.group.sync import acknowledgements, anti_entropy, backfill, history_requests, positions, reinstated_posts
from zerochat.group.tlog import submission, witness
from zerochat.group.transaction import Transaction
from zerochat.sim.byzantine import play_byzantine
from zerochat.sim.episode import ATTACH, CLOCK, LEAVE, MUTUAL_REMOVAL
from zerochat.sim.fast_crypto import TransparentPacker
from zerochat.sim.fault_schedule import FaultyWorld, crash_point
from zerochat.sim.history import MEDIATED_EVERY, play_history
from zerochat.sim.tlog_histories import play_accountable

Patch = pytest.MonkeyPatch


def mediated(seed: int) -> object:
    """A history in which some members only dial out."""
    return play_history(MEDIATED_EVERY * (seed + 1) - 1)


def put_out(seed: int) -> object:
    """A history in which a removed member keeps listening."""
    return play_byzantine(seed, attacks=["activity after removal"])


@dataclass(frozen=True)
class Mutant:
    """A seeded defect."""

    name: str
    apply: Callable[[Patch], object]
    seen: str
    """Regular expression of the violation that finds it."""
    kind: str = ""
    """Action or fault that it needs; empty: none in particular."""
    sync_every_steps: int = 0
    """For the disks of `play_episode`."""
    play: Callable[[int], object] | None = None
    """The history in which it can be found; None: an episode."""


def _no_dedupe(patch: Patch) -> None:
    """Duplicates are delivered again."""
    hear = receiving._receive_in_chain

    def again(tx, name, event):
        known = tx.group(name).chain(event.author)
        hear(tx, name, event)
        if 0 < event.seq <= known.seq and not event.is_control:
            delivery.store_event(tx, name, event, late=True)

    patch.setattr(receiving, "_receive_in_chain", again)


def _no_retransmission(patch: Patch) -> None:
    patch.setattr(acknowledgements, "retransmit", lambda tx, name: None)
    patch.setattr(history_requests, "request_missing", lambda tx, name: None)
    patch.setattr(backfill, "request_page", lambda tx, name: None)


def _wrong_comparison(patch: Patch) -> None:
    """An event may have the same or an earlier time than one that its author has read."""
    patch.setattr(lamport, "tick", lambda latest, now: now)


def _last_first(patch: Patch) -> None:
    """Retransmission starts with the newest event, one at a time."""
    recalled = acknowledgements.send_retransmission

    def last(tx, name, member, records, messages):
        recalled(tx, name, member, records[-1:], messages[-1:])

    patch.setattr(acknowledgements, "send_retransmission", last)


def _speaks_first(patch: Patch) -> None:
    """Effects are performed before the commit."""

    def process(world, name, input_):
        node, machine = world.nodes[name], world.machines[name]
        dying = machine.crash_seed is not None and crash_point(machine.crash_seed, 0) == -1
        if dying and not machine.off:
            before = node.agent
            for effect in world._step(node, input_):
                if not isinstance(effect, JournalEffect):
                    world._perform(node, effect)
            node.agent = before
            world._crash(node)
        else:
            straight(world, name, input_)

    straight = FaultyWorld.process
    patch.setattr(FaultyWorld, "process", process)


def _no_causes(patch: Patch) -> None:
    """Membership events that an event depends on are not awaited."""
    patch.setattr(delivery, "is_next", lambda group, event, **_: event.seq == group.chain(event.author).seq + 1)


def _no_gaps(patch: Patch) -> None:
    """Every event is taken for the next one."""

    def is_next(group, event, **_):
        return event.seq > group.chain(event.author).seq and all(dep in group.control for dep in event.deps)

    patch.setattr(delivery, "is_next", is_next)


def _acknowledges_too_much(patch: Patch) -> None:
    """Buffered events are acknowledged."""

    def have(group, members):
        held = {did: max(group.log.reorder_buffers.get(did, ReorderBuffer()).events, default=0) for did in members}
        return [max(group.chain(did).confirmed_seq, held[did]) for did in members]

    patch.setattr(positions, "confirmed_positions", have)


def _limbo_is_lost(patch: Patch) -> None:
    """Buffered events are dropped when the gap is filled, and count as received."""
    release = delivery.drain_buffer

    def forget(tx, name, author):
        group = tx.group(name)
        held = group.log.reorder_buffers.get(author, ReorderBuffer()).events
        if held:
            chain = group.chain(author)
            last = max(held)
            if last > chain.seq:
                tx.update_log(name, chains={**group.log.chains, author: replace(chain, seq=last)})
            tx.update_log(name, reorder_buffers=delivery._without(tx.group(name).log.reorder_buffers, author))
        release(tx, name, author)

    patch.setattr(delivery, "drain_buffer", forget)


def _views_are_not_compared(patch: Patch) -> None:
    patch.setattr(anti_entropy, "reconcile_views", lambda tx, name, member, heads: None)
    patch.setattr(anti_entropy, "compare_views", lambda tx, name: None)


def _view_from_labels(patch: Patch) -> None:
    """A view's checksum covers labels instead of events."""

    def told(view):
        return "|".join(member.label for member in view.members.values())

    def extend(control, event):
        extended, view = extend_control(control, event)
        return extended, replace(view, checksum=told(view))

    patch.setattr(delivery, "extend_control", extend)


def _bytes_unchecked(patch: Patch) -> None:
    """Envelopes are not authenticated."""

    def unpack(packer, envelope, *, secret_of, public_of):
        try:
            sender, recipient, _, plain = envelope.decode().split("\n", 3)
        except ValueError as error:
            raise Malformed(why=str(error)) from None
        return Unpacked(plain.encode(), "authcrypt" if sender else "anoncrypt", sender or None, recipient, "none")

    patch.setattr(TransparentPacker, "unpack", unpack)


def _believes_its_clock(patch: Patch) -> None:
    """Events get the clock's time without correction."""
    patch.setattr(Transaction, "now", property(lambda tx: tx.context.now))


def _dials_once(patch: Patch) -> None:
    """Peers are not dialled after a restart."""
    start, dial = engine._start, peers.dial_peer

    def silent(tx, reach, web):
        peers.dial_peer = lambda tx, name, member, *, second=False: None
        try:
            start(tx, reach, web)
        finally:
            peers.dial_peer = dial

    patch.setattr(engine, "_start", silent)


def _nothing_when_a_link_comes_up(patch: Patch) -> None:
    """A reconnected peer receives no sync."""
    patch.setattr(peers, "handle_link_up", lambda tx, name, member: None)


def _reads_without_a_trace(patch: Patch) -> None:
    """Received events do not advance the logical clock."""
    deliver = delivery.deliver

    def forget(tx, name, event, relayed_by=""):
        before = tx.group(name).log.lamport
        deliver(tx, name, event, relayed_by)
        if not event.is_control and event.author != tx.group(name).me:
            tx.update_log(name, lamport=before)

    patch.setattr(delivery, "deliver", forget)


def _receipts_for_more(patch: Patch) -> None:
    """An acknowledgement counts for everything sent so far."""
    acknowledged = acknowledgements.record_acks

    def all_of_it(tx, name, member, reported):
        said = len(tx.effects)
        acknowledged(tx, name, member, reported)
        seq = tx.group(name).seq
        tx.effects[said:] = [
            replace(one, upto=seq) if isinstance(one, StoreReceipt) and one.member == member else one
            for one in tx.effects[said:]
        ]

    patch.setattr(acknowledgements, "record_acks", all_of_it)


def _forgets_its_last_word(patch: Patch) -> None:
    """After a restart the own chain continues before its last event."""
    start = engine._start

    def back(tx, reach, web):
        start(tx, reach, web)
        for name, group in tx.agent.groups.items():
            chain = group.chain(group.me)
            if chain.seq > 1:
                tx.update_log(name, chains={**group.log.chains, group.me: replace(chain, seq=chain.seq - 1)})

    patch.setattr(engine, "_start", back)


def _told_and_not_kept(patch: Patch) -> None:
    """Late events are notified but not stored."""
    remember = delivery.store_event

    def forget(tx, name, event, late, relayed_by=""):
        said = len(tx.effects)
        remember(tx, name, event, late, relayed_by)
        if late:
            tx.effects[said:] = [one for one in tx.effects[said:] if not isinstance(one, StoreEvent)]

    patch.setattr(delivery, "store_event", forget)


def _late_ones_pass_for_new(patch: Patch) -> None:
    """Late events are not marked as late."""
    remember = delivery.store_event
    patch.setattr(
        delivery,
        "store_event",
        lambda tx, name, event, late, relayed_by="": remember(tx, name, event, False, relayed_by),
    )


def _shown_as_it_came(patch: Patch) -> None:
    """Events are ordered by arrival."""
    patch.setattr(lamport, "sort_key", lambda row: getattr(row, "received", 0))


def _reactions_stay(patch: Patch) -> None:
    """A removed reaction stays."""
    reactions = current._reactions
    patch.setattr(
        current, "_reactions", lambda said: reactions([(event, replace(what, on=True)) for event, what in said])
    )


def _first_edit_stays(patch: Patch) -> None:
    """The first of two edits stays."""
    patch.setattr(current, "reversed", iter, raising=False)


def _signs_for_what_waits(patch: Patch) -> None:
    """The last received message of a stream is acknowledged despite a gap."""
    hold = receiver._buffer

    def ahead(tx, name, sender, message, written):
        hold(tx, name, sender, message, written)
        stream = tx.group(name).streams.followed.get(sender)
        if stream is not None and message.alias == stream.alias and message.time > stream.time:
            known = tx.group(name).streams.followed
            tx.update_streams(
                name, followed={**known, sender: replace(stream, time=message.time, head=message.signature)}
            )

    patch.setattr(receiver, "_buffer", ahead)


def _one_place_for_all(patch: Patch) -> None:
    """Every message of a stream follows its start."""
    say = publisher._publish_signed

    def again(tx, name, sealed, upto, key, span=None):
        stream = publisher.own_stream(tx, name)
        tx.update_streams(name, own=replace(stream, head=stream.start))
        say(tx, name, sealed, upto, key, span)

    patch.setattr(publisher, "_publish_signed", again)


def _key_outlives_who_goes(patch: Patch) -> None:
    """The sending key is kept after a member has left."""
    patch.setattr(publisher, "member_left", lambda tx, name: None)


def waits(tx: Transaction, name: str) -> bool:
    """Whether a download of a file is running."""
    return any(one.download is not None for one in tx.group(name).files.values())


def _files_unfinished(patch: Patch) -> None:
    """A download waits forever for a member that does not respond."""
    patch.setattr(
        download,
        "start_downloads",
        lambda tx, name, seek=download.start_downloads: None if waits(tx, name) else seek(tx, name),
    )


def _mail_is_dropped(patch: Patch) -> None:
    """A mediator's mail is acknowledged and not opened."""
    patch.setattr(mediator_mail, "open_forward", lambda *_: [])


def _any_two_logs_convict(patch: Patch) -> None:
    """A witness takes two consistent checkpoints for a fork."""
    patch.setattr(witness, "is_split_view", lambda one, other, operator: one.text != other.text)


def _one_witness_too_few(patch: Patch) -> None:
    """A log is accepted with one cosignature too few."""
    enough = vars(Quorum)["threshold"].fget
    patch.setattr(Quorum, "threshold", property(lambda self: enough(self) - 1))


def _goes_at_once(patch: Patch) -> None:
    """A leaving member does not wait until its departure is known."""
    patch.setattr(
        acknowledgements,
        "is_behind",
        lambda group, member, lacks=acknowledgements.is_behind: group.state != "leaving" and lacks(group, member),
    )


def _overdue_unposted(patch: Patch) -> None:
    patch.setattr(submission, "query_overdue", lambda tx, name, origin: None)


def _only_the_last(patch: Patch) -> None:
    """Retransmission sends only the last batch of what is missing."""
    repair, recall, said = acknowledgements.retransmit, ReadOwnEvents, [0]

    def last(tx, name):
        said[0] = tx.group(name).seq
        repair(tx, name)

    def few(name, member, author, after, most, *rest):
        return recall(name, member, author, max(after, said[0] - most), most, *rest)

    patch.setattr(acknowledgements, "retransmit", last)
    patch.setattr(acknowledgements, "ReadOwnEvents", few)


def _stays_unheard(patch: Patch) -> None:
    """Excluded posts of a reader are never requested again."""
    patch.setattr(reinstated_posts, "request", lambda tx, name: 0)


MUTANTS = [
    Mutant("no dedupe", _no_dedupe, "twice"),
    Mutant("no retransmission", _no_retransmission, "lacks a post"),
    Mutant("told and not kept", _told_and_not_kept, "that it has not stored"),
    Mutant(
        "wrong comparison in the clock", _wrong_comparison, "before its cause|disagree about the order|lacks a post"
    ),
    Mutant("repair in the wrong order", _last_first, "lacks a post|has not acknowledged"),
    Mutant("no waiting for causes", _no_causes, "before a cause"),
    Mutant("no waiting for what is missing", _no_gaps, "lacks a post|accuses"),
    Mutant("acknowledging what waits", _acknowledges_too_much, "counts as delivered"),
    Mutant("losing what waits", _limbo_is_lost, "lacks a post|counts as delivered"),
    Mutant("views not compared", _views_are_not_compared, "views differ"),
    Mutant("a view from labels", _view_from_labels, "views differ|lacks a post"),
    Mutant("events dated by a wrong clock", _believes_its_clock, "lacks a post|views differ", kind=CLOCK),
    Mutant("not dialling after a start", _dials_once, "lacks a post|has not acknowledged"),
    Mutant(
        "nothing when a link comes up", _nothing_when_a_link_comes_up, "lacks a post|has not acknowledged|views differ"
    ),
    Mutant("reading without a trace in the clock", _reads_without_a_trace, "before its cause|as late", kind=CLOCK),
    Mutant("receipts for more than was acknowledged", _receipts_for_more, "counts as delivered"),
    Mutant("forgetting one's last word at a start", _forgets_its_last_word, "goes back"),
    Mutant("leaving before anybody has heard it", _goes_at_once, "no member knows it", kind=LEAVE),
    Mutant("late ones pass for new", _late_ones_pass_for_new, "as late"),
    Mutant("shown as it came", _shown_as_it_came, "disagree about the order"),
    Mutant("reactions stay", _reactions_stay, "removed reaction"),
    Mutant("the first edit stays", _first_edit_stays, "that its author did not create"),
    Mutant("signing for what waits", _signs_for_what_waits, "lacks a post|counts as delivered"),
    Mutant("one place for all of a stream", _one_place_for_all, "accuse|convict|two messages|after another message"),
    Mutant("a key outlives who goes", _key_outlives_who_goes, "although it knows", play=put_out),
    Mutant("a file left unfinished", _files_unfinished, "lacks a file", kind=ATTACH),
    Mutant("mail that is dropped", _mail_is_dropped, "never joined|lacks a post", play=mediated),
    Mutant("any two checkpoints convict", _any_two_logs_convict, "accuses an honest member", play=play_accountable),
    Mutant("one witness too few", _one_witness_too_few, "two versions|no honest witness", play=play_accountable),
    Mutant("nothing overdue is posted", _overdue_unposted, "has not submitted", play=play_accountable),
    Mutant("only the last of what is lacking", _only_the_last, "lacks a post"),
    Mutant("a reader's word for ever", _stays_unheard, "lacks a post", kind=MUTUAL_REMOVAL),
]
ROOM = [
    Mutant(
        "no fsync",
        lambda patch: None,
        "has shown|goes back|counts as delivered|lacks a post|never wrote",
        sync_every_steps=5,
    ),
    Mutant("speaking before remembering", _speaks_first, "has shown|has not stored|lacks|never wrote|accuses"),
    Mutant("bytes not checked", _bytes_unchecked, "never wrote|accuses|lacks"),
]
