"""The evidence that a newcomer is given for a group: what it is on one side, and what follows from it on the other.

It is the event that brings the newcomer in, with all its past: signed by everybody who has done something to who is a
member, and the same however often it is asked for. With it come the members' signed words (`agreement.py`).
"""

from collections.abc import Mapping, Sequence

from zerochat.crypto.encoding import compact_json
from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, Event
from zerochat.group.membership import add_of, ancestors, attestation, check_all, genesis_of, heads_of, resolve_view
from zerochat.group.state import Chain, Group, Join, Profile
from zerochat.group.wire.event_runs import RUNS_MAX, Run, read_runs, unpacked
from zerochat.group.wire.messages import WELCOME_BYTES_MAX, WelcomeBody, WordBody

WORDS_EACH = 2
"""A newcomer is given so many of the other members' words for each, if there are as many."""
WORD_HEADS_MAX = 8


# --- giving ---------------------------------------------------------------------------------------------------------


def entry_of(group: Group, member: str) -> str | None:
    """The event with which we have brought somebody in."""
    events = group.control.items()
    mine = (name for name, one in events if one.type == ADD and one.author == group.me and add_of(one).member == member)
    return next(mine, None)


def words(group: Group, member: str, entry: str, past: Mapping[str, Event]) -> list[dict[str, object]]:
    """Our own word that this is all, and as much of what the others have signed as it takes to confirm each of them,
    those who came first before the others."""
    said: list[dict[str, object]] = [
        {"member": group.me, "heads": [entry], "word": attestation.sign_heads(group.seed, group.id, (entry,))}
    ]
    adds = {add_of(event).member: event for event in past.values() if event.type == ADD}
    confirmed = dict.fromkeys(adds, 0)
    for did in sorted(group.view.members, key=lambda did: (group.view.members[did].joined, did)):
        word = group.words.get(did)
        if word is None or did == member or len(word.heads) > WORD_HEADS_MAX:
            continue
        covered = ancestors(past, (head for head in word.heads if head in past))
        for other, event in adds.items():
            if confirmed[other] < WORDS_EACH and event.id in covered and did not in (other, event.author):
                if said[-1]["member"] != did:
                    said.append({"member": did, "heads": list(word.heads), "word": word.sig})
                confirmed[other] += 1
    return said


def parts(past: Mapping[str, Event], said: Sequence[Mapping[str, object]]) -> list[list[Event]]:
    """These events, causes first, in pieces that fit a message; the first one leaves room for these words."""
    size = sum(len(compact_json(one)) for one in said)
    found: list[list[Event]] = [[]]
    for event in sorted(past.values(), key=lambda e: (e.lamport, e.author, e.id)):
        size += len(event.record)
        if found[-1] and (size > WELCOME_BYTES_MAX or len(found[-1]) == RUNS_MAX):
            found.append([])
            size = len(event.record)
        found[-1].append(event)
    return found


# --- taking ---------------------------------------------------------------------------------------------------------


def told(body: WelcomeBody) -> tuple[list[Event], Sequence[WordBody]]:
    """The events and the words in a part of a welcome. Raises Malformed."""
    runs, said = body.runs, body.words
    if body.packed:
        runs, said = unpacked(body.packed, tuple[list[Run], list[WordBody]])
    return list(read_runs(body.group, runs)), said


def founded(join: Join, events: list[Event], since: int) -> Group:
    """The group that we are in by this evidence. Raises RemoteError where it does not hold.

    It is the event that brings us in with all its past and nothing else, so whoever accepts that event has all of it.
    """
    assert join.contact is not None
    inviter = join.relationship.member
    if any(event.group_id != join.group for event in events):
        raise Refused(why="a welcome whose evidence is of several groups")
    control = check_all(events)
    entries = [
        name
        for name, one in control.items()
        if one.type == ADD and one.author == inviter and add_of(one).member == join.me
    ]
    if join.group not in control or len(entries) != 1 or ancestors(control, entries) != control.keys():
        raise Refused(why="a welcome to another group, or without us, or with more than that")
    view = resolve_view(control)
    if join.me not in view.members or inviter not in view.members:
        raise Refused(why="a welcome of or by somebody who is not a member")
    words = {}
    for member, word in join.words.items():
        if member in view.members and member != join.me:
            attestation.check_heads(member, join.group, word.heads, word.sig)
            words[member] = word
    if inviter not in words or words[inviter].heads != tuple(entries):
        raise Refused(why="a welcome whose author does not sign for it")
    genesis = control[join.group]
    founding = genesis_of(genesis)
    if founding.envelope != join.invitation.envelope:
        raise Refused(why="an invitation that promised other envelopes")
    return Group(
        id=join.group,
        name=founding.name,
        profile=Profile(founding.keys, founding.path, founding.accountability, founding.envelope),
        state="active",
        me=join.me,
        seed=join.seed,
        contact=join.contact,
        control=control,
        view=view,
        created=genesis.time,
        chains={inviter: Chain.after(since)},
        lamport=max(event.lamport for event in events),
        relationships={inviter: join.relationship},
        heads=heads_of(control),
        entry=entries[0],
        words=words,
    )
