"""Small faults of our own, as switches that only the tests can set: a search that does not find them finds nothing.

Each takes something away, or puts it in the wrong order, that one of the promises needs, and says which promise must be
seen to be broken: to stumble over something is not enough. `MUTANTS` are faults of the product. Those of the `ROOM` are
not: they break what the simulator has in the place of a disk, a process and a cipher, and show that it would notice if
the real ones (`agent/`, `crypto/`) did less than they must.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from zerochat.didcomm.packer import Unpacked
from zerochat.errors import Malformed
from zerochat.evidence.witness import Quorum
from zerochat.group import engine
from zerochat.group.effects import Recall, Receipt, Remember, Remembered
from zerochat.group.event_log import lamport, log
from zerochat.group.files import download
from zerochat.group.links import mediator_mail, outbox, peers
from zerochat.group.membership import resolve_view
from zerochat.group.messages import current
from zerochat.group.signed_streams import publisher, receiver
from zerochat.group.state import Limbo
from zerochat.group.sync import acknowledgements, backfill, history_requests, reinstated_posts
from zerochat.group.tlog import submission, witness
from zerochat.group.transaction import Turn
from zerochat.sim.byzantine import play_byzantine
from zerochat.sim.episode import ATTACH, CLOCK, FEUD, GO
from zerochat.sim.fault_schedule import Ordeal, moment_of_death
from zerochat.sim.history import MEDIATED_EVERY, play
from zerochat.sim.null_packer import TransparentPacker
from zerochat.sim.tlog_histories import play_accountable

Patch = pytest.MonkeyPatch


def mediated(seed: int) -> object:
    """A history in which some members only dial out."""
    return play(MEDIATED_EVERY * (seed + 1) - 1)


def put_out(seed: int) -> object:
    """A history in which somebody who was put out goes on listening."""
    return play_byzantine(seed, attacks=["after the end"])


@dataclass(frozen=True)
class Mutant:
    """One of them."""

    name: str
    apply: Callable[[Patch], object]
    seen: str
    """What a search has to say that finds it: a regular expression."""
    kind: str = ""
    """What has to go wrong for it to matter; empty: nothing in particular."""
    lazy_turns: int = 0
    """For the disks of `play_episode`."""
    play: Callable[[int], object] | None = None
    """The kind of history in which it can be found; None: an episode."""


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
    patch.setattr(acknowledgements, "repair", lambda turn, name: None)
    patch.setattr(history_requests, "seek", lambda turn, name: None)
    patch.setattr(backfill, "fetch", lambda turn, name: None)


def _wrong_comparison(patch: Patch) -> None:
    """A new event may have the time of one that its author has read, or an earlier one."""
    patch.setattr(lamport, "tick", lambda latest, now: now)


def _last_first(patch: Patch) -> None:
    """A repair begins with the newest of what is lacking, and there is room for one."""
    recalled = acknowledgements.recalled

    def last(turn, name, member, records, messages):
        recalled(turn, name, member, records[-1:], messages[-1:])

    patch.setattr(acknowledgements, "recalled", last)


def _speaks_first(patch: Patch) -> None:
    """What a turn says goes out before the turn is remembered."""

    def hear(world, name, stimulus):
        node, machine = world.nodes[name], world.machines[name]
        dying = machine.dies is not None and moment_of_death(machine.dies, 0) == -1
        if dying and not machine.off:
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
    patch.setattr(acknowledgements, "have", have)


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
    patch.setattr(acknowledgements, "reconcile", lambda turn, name, member, heads: None)
    patch.setattr(acknowledgements, "compare_views", lambda turn, name: None)


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
    acknowledged = acknowledgements.acknowledged

    def all_of_it(turn, name, member, reported):
        said = len(turn.effects)
        acknowledged(turn, name, member, reported)
        seq = turn.group(name).seq
        turn.effects[said:] = [
            replace(one, upto=seq) if isinstance(one, Receipt) and one.member == member else one
            for one in turn.effects[said:]
        ]

    patch.setattr(acknowledgements, "acknowledged", all_of_it)


def _forgets_its_last_word(patch: Patch) -> None:
    """Whoever starts again goes on from before the last that it has said."""
    start = engine._start

    def back(turn, reach, web):
        start(turn, reach, web)
        for name, group in turn.agent.groups.items():
            chain = group.chain(group.me)
            if chain.seq > 1:
                turn.edit(name, chains={**group.chains, group.me: replace(chain, seq=chain.seq - 1)})

    patch.setattr(engine, "_start", back)


def _told_and_not_kept(patch: Patch) -> None:
    """Faces are told of what comes late, and it is not put on the disk."""
    remember = log.remember

    def tell(turn, name, event, late, by=""):
        said = len(turn.effects)
        remember(turn, name, event, late, by)
        if late:
            turn.effects[said:] = [one for one in turn.effects[said:] if not isinstance(one, Remember)]

    patch.setattr(log, "remember", tell)


def _late_ones_pass_for_new(patch: Patch) -> None:
    """Nobody is told that what stands above newer messages has come late."""
    remember = log.remember
    patch.setattr(log, "remember", lambda turn, name, event, late, by="": remember(turn, name, event, False, by))


def _shown_as_it_came(patch: Patch) -> None:
    """Everybody sees what was said in the order in which it has come there."""
    patch.setattr(lamport, "place", lambda row: getattr(row, "received", 0))


def _reactions_stay(patch: Patch) -> None:
    """Whoever takes a reaction back is still shown with it."""
    reactions = current._reactions
    patch.setattr(
        current, "_reactions", lambda said: reactions([(event, replace(what, on=True)) for event, what in said])
    )


def _first_edit_stays(patch: Patch) -> None:
    """A message that was edited twice is shown as it was in between."""
    patch.setattr(current, "reversed", iter, raising=False)


def _signs_for_what_waits(patch: Patch) -> None:
    """Whoever hears a stream signs for the last message that has come, whatever is missing before it."""
    hold = receiver._hold

    def ahead(turn, name, sender, message, written):
        hold(turn, name, sender, message, written)
        stream = turn.group(name).streams.get(sender)
        if stream is not None and message.alias == stream.alias and message.time > stream.time:
            known = turn.group(name).streams
            turn.edit(name, streams={**known, sender: replace(stream, time=message.time, head=message.signature)})

    patch.setattr(receiver, "_hold", ahead)


def _one_place_for_all(patch: Patch) -> None:
    """What is said in a stream always follows its beginning."""
    say = publisher._say

    def again(turn, name, sealed, upto, key, span=None):
        stream = publisher.current(turn, name)
        turn.edit(name, stream=replace(stream, head=stream.start))
        say(turn, name, sealed, upto, key, span)

    patch.setattr(publisher, "_say", again)


def _key_outlives_who_goes(patch: Patch) -> None:
    """A stream goes on under its key where somebody has gone who has it."""
    patch.setattr(publisher, "somebody_went", lambda turn, name: None)


def waits(turn: Turn, name: str) -> bool:
    """Whether anybody was asked for a file."""
    return any(one.haul is not None for one in turn.group(name).files.values())


def _files_unfinished(patch: Patch) -> None:
    """Whoever does not bring a part of a file is waited for for ever."""
    patch.setattr(
        download, "seek", lambda turn, name, seek=download.seek: None if waits(turn, name) else seek(turn, name)
    )


def _mail_is_dropped(patch: Patch) -> None:
    """What a mediator has kept for a member is acknowledged, and not opened."""
    patch.setattr(mediator_mail, "open_forward", lambda *_: [])


def _any_two_logs_convict(patch: Patch) -> None:
    """A witness takes two checkpoints of one log, of which one leads on from the other, for two logs."""
    patch.setattr(witness, "is_split", lambda one, other, operator: one.text != other.text)


def _one_witness_too_few(patch: Patch) -> None:
    """A log is believed though one cosignature is missing."""
    enough = vars(Quorum)["needed"].fget
    patch.setattr(Quorum, "needed", property(lambda self: enough(self) - 1))


def _goes_at_once(patch: Patch) -> None:
    """Whoever leaves does not stay until somebody has heard it."""
    patch.setattr(
        acknowledgements,
        "lacks",
        lambda group, member, lacks=acknowledgements.lacks: group.state != "leaving" and lacks(group, member),
    )


def _overdue_unposted(patch: Patch) -> None:
    patch.setattr(submission, "look", lambda turn, name, origin: None)


def _only_the_last(patch: Patch) -> None:
    """Of what somebody lacks no more is repeated than goes into one repair, and of that the last."""
    repair, recall, said = acknowledgements.repair, Recall, [0]

    def last(turn, name):
        said[0] = turn.group(name).seq
        repair(turn, name)

    def few(name, member, author, after, most, *rest):
        return recall(name, member, author, max(after, said[0] - most), most, *rest)

    patch.setattr(acknowledgements, "repair", last)
    patch.setattr(acknowledgements, "Recall", few)


def _stays_unheard(patch: Patch) -> None:
    """What was left out as a reader's word stays so, whatever becomes of that role."""
    patch.setattr(reinstated_posts, "seek", lambda turn, name: 0)


MUTANTS = [
    Mutant("no dedupe", _no_dedupe, "twice"),
    Mutant("no retransmission", _no_retransmission, "lacks a post"),
    Mutant("told and not kept", _told_and_not_kept, "what it has not kept"),
    Mutant(
        "wrong comparison in the clock", _wrong_comparison, "before its cause|disagree about the order|lacks a post"
    ),
    Mutant("repair in the wrong order", _last_first, "lacks a post|has not signed"),
    Mutant("no waiting for causes", _no_causes, "before a cause"),
    Mutant("no waiting for what is missing", _no_gaps, "lacks a post|accuses"),
    Mutant("acknowledging what waits", _acknowledges_too_much, "has what it has not"),
    Mutant("losing what waits", _limbo_is_lost, "lacks a post|has what it has not"),
    Mutant("views not compared", _views_are_not_compared, "views differ"),
    Mutant("a view from labels", _view_from_labels, "views differ|lacks a post"),
    Mutant("events dated by a wrong clock", _believes_its_clock, "lacks a post|views differ", kind=CLOCK),
    Mutant("not dialling after a start", _dials_once, "lacks a post|has not signed"),
    Mutant("nothing when a link comes up", _nothing_when_a_link_comes_up, "lacks a post|has not signed|views differ"),
    Mutant(
        "reading without a trace in the clock", _reads_without_a_trace, "before its cause|that it is late", kind=CLOCK
    ),
    Mutant("receipts for more than was acknowledged", _receipts_for_more, "has what it has not"),
    Mutant("forgetting one's last word at a start", _forgets_its_last_word, "goes back"),
    Mutant("leaving before anybody has heard it", _goes_at_once, "nobody knows of it", kind=GO),
    Mutant("late ones pass for new", _late_ones_pass_for_new, "that it is late"),
    Mutant("shown as it came", _shown_as_it_came, "disagree about the order"),
    Mutant("reactions stay", _reactions_stay, "has taken back"),
    Mutant("the first edit stays", _first_edit_stays, "as its author has not said"),
    Mutant("signing for what waits", _signs_for_what_waits, "lacks a post|has what it has not"),
    Mutant("one place for all of a stream", _one_place_for_all, "accuse|convict|two messages|behind another"),
    Mutant("a key outlives who goes", _key_outlives_who_goes, "knows that it is out", play=put_out),
    Mutant("a file left unfinished", _files_unfinished, "lacks a file", kind=ATTACH),
    Mutant("mail that is dropped", _mail_is_dropped, "never got|lacks a post", play=mediated),
    Mutant("any two checkpoints convict", _any_two_logs_convict, "accuses a member", play=play_accountable),
    Mutant("one witness too few", _one_witness_too_few, "two logs|no honest witness", play=play_accountable),
    Mutant("nothing overdue is posted", _overdue_unposted, "has not posted", play=play_accountable),
    Mutant("only the last of what is lacking", _only_the_last, "lacks a post"),
    Mutant("a reader's word for ever", _stays_unheard, "lacks a post", kind=FEUD),
]
ROOM = [
    Mutant(
        "no fsync", lambda patch: None, "has shown|goes back|has what it has not|lacks a post|never said", lazy_turns=5
    ),
    Mutant("speaking before remembering", _speaks_first, "has shown|what it has not|lacks|never said|accuses"),
    Mutant("bytes not checked", _bytes_unchecked, "never said|accuses|lacks"),
]
