"""Whether what a newcomer was told of a group is what its members say: signed words, and what follows from them.

Everything that a newcomer gets from whoever lets it in is signed by those who did it, so nothing can be made up; but
something may be kept from the others, or be said differently to each. So members sign which membership events they have
(the *heads* of that graph, which stand for all before them), and tell so with every `sync`. Whoever lets somebody in
hands on what the others have signed.

The event that brings the newcomer in names all that its author knew, and is the end of what the newcomer is told
(`Group.entry`). A member who talks to the newcomer at all has accepted an event that brings it in; so it has the whole
of this past too, unless whoever made that event has made two. That is why honest members are never accused, however
late anything comes: only a signed word that does not cover the entry contradicts it.

So where two members contradict each other, whoever has let the newcomer in has made two events of which neither had
seen the other. Those who have only one of the two are shown both (`proof.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, did_key_bytes
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify
from zerochat.errors import Malformed
from zerochat.group.effects import Notify
from zerochat.group.event_log.event import ADD, CONTROL, Event, load_event, parse_event
from zerochat.group.membership import add_of, ancestors, heads_of, resolve_view
from zerochat.group.notifications import Disagreement
from zerochat.group.recent_cache import Latest
from zerochat.group.state import Contradiction, Difference, Group, Join, Word
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import HEADS_MAX

RECORDS_MAX = 16
"""Membership events in one piece of evidence."""
EVIDENCE_TYPE = "https://zerochat.org/disagreement/1.0"

A = TypeVar("A")

_answers: Latest[tuple[int, ...], tuple[tuple[object, ...], Any]] = Latest()
"""By what they are about, which stands beside them: what is kept is the only thing with its identity."""


# --- words ----------------------------------------------------------------------------------------------------------


def _heads_bytes(group: str, heads: Iterable[str]) -> bytes:
    return canonical_json(["zerochat/heads/1", group, list(heads)])


@lru_cache(maxsize=256)
def sign_heads(seed: bytes, group: str, heads: tuple[str, ...]) -> str:
    """The word of the member with this seed that these are the heads of the membership events that it has (base64url,
    Ed25519). Anybody can check it who knows the member's group key."""
    return b64url(ed25519_sign(seed, _heads_bytes(group, heads)))


def check_heads(member: str, group: str, heads: Iterable[str], signature: str) -> None:
    """Raise Unauthentic unless the member has signed these heads; Malformed for what is no signature."""
    ed25519_verify(did_key_bytes(member), _heads_bytes(group, heads), b64url_bytes(signature))


# --- what follows from them -----------------------------------------------------------------------------------------


def acceptor_of(group: Group) -> str:
    """Who has let us in; empty where we have founded the group."""
    return group.control[group.entry].author if group.entry else ""


def covers(control: Mapping[str, Event], heads: Iterable[str], event: str) -> bool:
    """Whether these heads, as far as they are known here, stand for this event too."""
    return event in ancestors(control, (head for head in heads if head in control))


def _as_before(about: tuple[object, ...], ask: Callable[[], A]) -> A:
    """What `ask` gives, or has given about the very same things, none of which is ever changed in place: while somebody
    joins, the same is asked with every envelope, and takes a step for each membership event, for each member."""
    answer: A = _answers.answer(tuple(map(id, about)), lambda: (about, ask()))[1]
    return answer


def contradicting(group: Group, *, certain: bool = True) -> tuple[str, ...]:
    """The members who have told us that they have something else than what we began with.

    `certain`: what they have is all known here; otherwise it may still turn out to come after what we have.
    """
    about = group.words, group.control, group.entry, certain
    return _as_before(about, lambda: tuple(_contradicting(group, certain)))


def _contradicting(group: Group, certain: bool) -> Iterator[str]:
    for member, word in sorted(group.words.items()):
        if word.at == 0 or word.agrees or len(word.heads) >= HEADS_MAX:
            continue
        known = all(head in group.control for head in word.heads)
        if (known or not certain) and not covers(group.control, word.heads, group.entry):
            yield member


def unconfirmed(group: Group, *, late: bool) -> tuple[str, ...]:
    """The members of whom nobody but their adder, and whoever let us in, has told us, although somebody could have.

    The founder needs nobody's word, because the group is named by how it began. Whoever has made a membership event has
    signed for all before it. Where nobody is left who could tell, the members are believed one by one, first the one of
    whom most members have said something, then the one who came first; each can then speak for the others. `late`:
    whoever has not talked to us by now is not waited for.
    """
    about = group.control, group.words, group.view, group.entry, group.me, late
    return _as_before(about, lambda: _unconfirmed(group, late))


def _unconfirmed(group: Group, late: bool) -> tuple[str, ...]:
    adds: dict[str, list[Event]] = {}
    for name in ancestors(group.control, [group.entry]):
        if (event := group.control[name]).type == ADD:
            adds.setdefault(add_of(event).member, [])
    for event in group.control.values():  # whoever signs two histories may bring somebody in once in each
        if event.type == ADD and add_of(event).member in adds:
            adds[add_of(event).member].append(event)
    acceptor, view = acceptor_of(group), group.view.members
    vouches = _pasts(group)
    rest = [did for did in sorted(adds) if did in view and did not in (group.me, acceptor)]
    # Whoever alone has brought a member in is no confirmation of that, nor is the member, nor whoever let us in.
    barred = {one: {one, acceptor, *_only({event.author for event in adds[one]})} for one in rest}
    confirmers = {
        one: {
            other
            for other, past in vouches.items()
            if other not in barred[one] and any(event.id in past and other != event.author for event in adds[one])
        }
        for one in rest
    }
    silent = {did for did in view if late and (did not in group.words or group.words[did].at == 0)}
    trusted = {did for did in view if did == acceptor or (did not in adds and view[did].added_by is None)}
    while rest:
        found = [one for one in rest if not confirmers[one].isdisjoint(trusted)]
        if not found:
            alone = [one for one in rest if trusted - silent <= barred[one]]
            if not alone:
                break
            known = {one: len(confirmers[one]) + bool(vouches[one]) for one in alone}
            found = [min(alone, key=lambda one: (-known[one], view[one].joined, one))]
        trusted.update(found)
        rest = [one for one in rest if one not in found]
    return tuple(sorted(rest))


def _only(authors: set[str]) -> set[str]:
    """These, if it is one."""
    return authors if len(authors) == 1 else set()


def _pasts(group: Group) -> dict[str, set[str]]:
    """The membership events that each other member has signed for: by its word, and by its own events."""
    said: dict[str, set[str]] = {member: set() for member in group.view.members if member != group.me}
    for name, event in group.control.items():
        if event.author in said:
            said[event.author].add(name)
    for member, word in group.words.items():
        if member in said:
            said[member].update(head for head in word.heads if head in group.control)
    known: dict[frozenset[str], set[str]] = {}  # nearly all say the same
    for names in map(frozenset, said.values()):
        if names not in known:
            known[names] = ancestors(group.control, names)
    return {member: known[frozenset(names)] for member, names in said.items()}


def withheld(group: Group) -> frozenset[str]:
    """The membership events that we do not hand on: those that bring in whoever is in quarantine, and what follows. But
    what we have named ourselves we cannot take back: to leave it out would give us two histories."""
    if not group.quarantine:
        return frozenset()
    named = ancestors(group.control, [name for name, event in group.control.items() if event.author == group.me])
    held: set[str] = set()
    for name, event in sorted(group.control.items(), key=lambda item: (item[1].lamport, item[0])):
        brings = event.type == ADD and add_of(event).member in group.quarantine and name not in named
        if brings or not held.isdisjoint(event.deps):
            held.add(name)
    return frozenset(held)


def vouched(group: Group) -> Mapping[str, Event]:
    """The membership events that we vouch for."""
    held = withheld(group)
    return {name: event for name, event in group.control.items() if name not in held} if held else group.control


def ground(group: Group, kind: str, about: object = None) -> Mapping[str, Event]:
    """The membership events that a new event of ours may name: those that we vouch for, so that everybody can have
    them; or all, where it says something of the membership that does not hold by those alone: we are not even a member,
    or it is `about` somebody in quarantine."""
    found = vouched(group)
    if found is group.control or kind not in CONTROL:
        return found
    alone = about not in group.quarantine and group.me in resolve_view(found).members
    return found if alone else group.control


def own_word(group: Group) -> tuple[tuple[str, ...], str]:
    """The heads that we vouch for, and our signature; nothing as long as we know more than we vouch for, or it would
    look as if we contradicted somebody."""
    heads = heads_of(vouched(group))[:HEADS_MAX]
    return heads, "" if group.quarantine else sign_heads(group.seed, group.id, heads)


def accuse(turn: Turn, name: str, before: Mapping[str, tuple[str, str]]) -> None:
    """Say whom the membership events show to have signed two histories, but for those of whom that was known before."""
    group = turn.group(name)
    for author in group.view.forked:
        if author not in before and author not in group.accused:
            turn.say(Notify(Disagreement(name, author, forked_sentence(group, author))))


# --- saying so ------------------------------------------------------------------------------------------------------


class Doubt(Struct, frozen=True):
    """What a person should know before believing the members."""

    name: str
    about: str
    """Whom it has come up with."""
    member: str
    """Who says something else than the others; empty: that cannot be told."""
    text: str


def doubts(group: Group) -> list[Doubt]:
    """What casts doubt on what we were told of a group, as long as we are in it and nobody here has dismissed it."""
    if group.state != "active":
        return []
    found = [Doubt(f"forked {did}", did, did, forked_sentence(group, did)) for did in forked(group)]
    found += [Doubt(f"disputed {did}", did, "", disputed_sentence(group, did)) for did in group.disputed]
    found += [
        Doubt(f"differs {one.author} {one.member}", one.author, "", differs_sentence(group, one))
        for one in group.differences
    ]
    return [one for one in found if one.name not in group.dismissed]


def forked(group: Group) -> list[str]:
    """Those of whom there is proof here that they have signed two histories, sorted."""
    return sorted({*group.view.forked, *group.accused})


def forked_sentence(group: Group, author: str) -> str:
    return f"{_label(group, author)} has signed two different histories: what it says of others is in doubt."


def differs_sentence(group: Group, found: Difference) -> str:
    author, member = _label(group, found.author), _label(group, found.member)
    if found.author == group.me:
        return (
            f"{member} has something else than you from number {found.seq} of your own chain on: either another copy "
            f"of your profile has spoken, or {member}, or whoever it has it from, shows what is not so."
        )
    if found.by:
        return (
            f"{member} has something else in place {found.seq} of {author}'s chain than {_label(group, found.by)} has "
            "handed over: one of these three, or whoever they have it from, shows what is not so, and nobody can prove "
            "which."
        )
    return (
        f"{member} has something else than you from number {found.seq} of {author}'s chain on: either {author} has "
        f"said two different things, or {member}, or whoever it has it from, shows what is not so, and nobody can "
        "prove which."
    )


def disputed(group: Group, member: str) -> str:
    """That a member has signed something else than whoever let us in, without a full stop."""
    both = f"{_label(group, member)} and {_label(group, acceptor_of(group))}"
    return f"{both} do not say the same about who is in {group.name}"


def disputed_sentence(group: Group, member: str) -> str:
    doubted = "Whoever only one of them knows of gets nothing from you until somebody else confirms it."
    return f"{disputed(group, member)}. {doubted}"


def _label(group: Group, did: str) -> str:
    known = group.view.known(did)
    return known.label if known is not None else did


# --- evidence -------------------------------------------------------------------------------------------------------


def contradiction_of(group: Group, accepted: Word, member: str) -> Contradiction:
    """That a member has signed something else than whoever let us in; `accepted` is what that one has signed."""
    word, control = group.words[member], group.control
    begun = ancestors(control, [group.entry])
    theirs = ancestors(control, (head for head in word.heads if head in control))
    apart = sorted((begun ^ theirs) - {group.entry}, key=lambda name: (control[name].lamport, name))
    names = [group.entry, *apart][:RECORDS_MAX]
    words = ((acceptor_of(group), accepted), (member, word))
    return Contradiction(group.id, words, tuple(control[name].record for name in names))


def fork_in(control: Mapping[str, Event], group: str, forked: Mapping[str, tuple[str, str]]) -> Contradiction:
    """That somebody has signed two histories: two membership events in one place of its chain, or of which neither had
    seen the other."""
    names = [name for _, both in sorted(forked.items()) for name in both][:RECORDS_MAX]
    return Contradiction(group, (), tuple(control[name].record for name in names))


def evidence_of(join: Join) -> dict[str, Any]:
    """What a join has shown of members who do not say the same, as JSON that anybody can check with nothing else
    (`check_evidence`); empty where it has shown nothing."""
    found = join.contradiction
    if found is None:
        return {}
    words = [{"member": member, "heads": list(word.heads), "word": word.sig} for member, word in found.words]
    events = [load_event(record).wire for record in found.records]
    return {"type": EVIDENCE_TYPE, "group": found.group, "words": words, "events": events}


def check_evidence(evidence: Mapping[str, Any]) -> None:
    """Raise Unauthentic unless everything in it is signed by whom it names; Malformed where it is no evidence."""
    try:
        if evidence["type"] != EVIDENCE_TYPE:
            raise Malformed(why="evidence of another kind")
        for one in evidence["words"]:
            check_heads(one["member"], evidence["group"], one["heads"], one["word"])
        events = [parse_event(one) for one in evidence["events"]]
    except (KeyError, TypeError, AttributeError):
        raise Malformed(why="evidence of another shape") from None
    for event in events:
        event.check_signature()
        if event.group_id != evidence["group"]:
            raise Malformed(why="evidence about several groups")
