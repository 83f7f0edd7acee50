"""What agents of all makers ask each other, in a group and outside of one: are you there, what do you speak.

Answers go back the way on which everything goes to that peer. What we asked is remembered until it is answered, so that
an answer can say how long it took; nothing waits for one.
"""

from msgspec.structs import replace

from zerochat.crypto.encoding import compact_json
from zerochat.didcomm.did import resolve, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer, Profile
from zerochat.didcomm.protocols import STANDARD, basic, empty, exchange, features, ping, problem, standard_answer
from zerochat.didcomm.protocols.features import Features
from zerochat.didcomm.protocols.problem import Breaker
from zerochat.didcomm.uri import parse_type
from zerochat.errors import LocalError, PostTooLong
from zerochat.group.effects import Notify
from zerochat.group.event_log.event import POST_BYTES_MAX, RECORD_BYTES_MAX
from zerochat.group.external import connections, mediators
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import Relationship, own_keys, pack
from zerochat.group.notifications import FeaturesDisclosed, Pong, ProblemReported, Told, Way
from zerochat.group.state import Letter, Question, Whom
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import PROTOCOL as GROUP_PROTOCOL

QUESTIONS_MAX = 256
QUESTION_MS_MAX = 600_000
"""An answer that comes later than this answers nobody."""
FEATURES_SHOWN_MAX = 256
LETTERS_MAX, LETTERS_CHARS_MAX = 200, 256 * 1024
"""Lines of text that are kept of one connection: it is a mailbox for notes, and no archive."""
UNSUPPORTED = "e.m.msg.unsupported"

TO_STRANGERS = STANDARD | Features(protocols=((basic.PROTOCOL, ()), (basic.PROTOCOL_V1, ())))
"""What a connection may know of us: what it could find out by trying."""
TO_MEMBERS = STANDARD | Features(
    protocols=((exchange.PROTOCOL.rstrip("/"), ()), (GROUP_PROTOCOL.rstrip("/"), ("member",)))
)
"""What somebody in the same group may know of us: nothing that would link it to other groups or connections."""


class NotConnected(LocalError):
    """There is no way to {peer} now: a member has to be connected (`zerochat members GROUP` says who is), and a
    connection that takes nothing in itself hears you only in answer to what it says."""


# --- asking ---------------------------------------------------------------------------------------------------------


def ask_ping(turn: Turn, whom: Whom) -> str:
    """Ping a peer. Returns the thread under which the answer comes. Raises NotConnected."""
    message = ping.ping(turn.moment.random, _profile(turn, whom))
    return _ask(turn, whom, message, Question("ping", whom, turn.now))


def ask_features(turn: Turn, whom: Whom, match: str) -> str:
    """Ask a peer what it speaks. Returns the thread under which the answer comes. Raises NotConnected."""
    if _profile(turn, whom) == "didcomm/v1":
        message = features.query_v1(turn.moment.random, match)
    else:
        message = features.queries(turn.moment.random, features.Query("protocol", match))
    return _ask(turn, whom, message, Question("features", whom, turn.now))


def tell(turn: Turn, name: str, text: str) -> str:
    """A line of text to a connection. Returns the message's id. Raises NotConnected or PostTooLong."""
    whom = Whom(connection=name)
    size = len(text.encode())
    if size > POST_BYTES_MAX or len(compact_json(text)) > RECORD_BYTES_MAX:  # as JSON, control characters take six
        raise PostTooLong(size=size, limit=POST_BYTES_MAX)
    if not _reachable(turn, whom):
        raise NotConnected(peer=label_of(turn, whom))
    message = basic.basic(text, turn.now // 1000, turn.moment.random, _profile(turn, whom))
    _send(turn, whom, message)
    _keep(turn, name, Letter(message.id, turn.now, mine=True, text=text))
    return message.id


def _keep(turn: Turn, name: str, letter: Letter) -> bool:
    """Keep a line of text that was sent or has come; the oldest go. False: it was there already."""
    one = turn.agent.connections[name]
    if any(letter.id == known.id and letter.mine == known.mine for known in one.letters):
        return False
    letters = [*one.letters, letter][-LETTERS_MAX:]
    while sum(len(each.text) for each in letters) > LETTERS_CHARS_MAX:
        del letters[0]
    turn.change(connections={**turn.agent.connections, name: replace(one, letters=tuple(letters))})
    return True


def _ask(turn: Turn, whom: Whom, message: Message, question: Question) -> str:
    if not _reachable(turn, whom):
        raise NotConnected(peer=label_of(turn, whom))
    kept = {k: one for k, one in turn.agent.questions.items() if turn.now - one.at < QUESTION_MS_MAX}
    for name in list(kept)[: max(0, len(kept) + 1 - QUESTIONS_MAX)]:
        del kept[name]
    turn.change(questions={**kept, message.id: question})
    _send(turn, whom, message)
    return message.id


def _send(turn: Turn, whom: Whom, message: Message, handle: int | None = None) -> None:
    if whom.connection:
        connections.send(turn, whom.connection, message, handle)
        return
    relationship = turn.group(whom.group).relationships[whom.member]
    envelope = pack(relationship, message, turn.packer_of(whom.group), turn.moment.random)
    mediator_mail.send(turn, whom.group, whom.member, envelope)


def _reachable(turn: Turn, whom: Whom) -> bool:
    if whom.connection:
        return connections.reachable(turn, whom.connection)
    group = turn.group(whom.group)
    relationship = group.relationships.get(whom.member)
    return (
        relationship is not None and relationship.established and mediator_mail.reachable(turn, whom.group, whom.member)
    )


def _packer(turn: Turn, whom: Whom) -> Packer:
    return (
        turn.packer(turn.agent.connections[whom.connection].envelope) if whom.connection else turn.packer_of(whom.group)
    )


def _profile(turn: Turn, whom: Whom) -> Profile:
    """Which generation of messages a peer understands."""
    return "didcomm/v1" if _packer(turn, whom).name == "didcomm/v1" else "didcomm/v2"


def label_of(turn: Turn, whom: Whom) -> str:
    """What a peer is called."""
    if whom.connection:
        return turn.agent.connections[whom.connection].label
    group = turn.group(whom.group)
    member = group.view.members.get(whom.member) or group.view.former.get(whom.member)
    return member.label if member else whom.member


# --- hearing --------------------------------------------------------------------------------------------------------


def hear(turn: Turn, whom: Whom, message: Message, relationship: Relationship, handle: int | None = None) -> None:
    """An authentic message that belongs to no other protocol of ours. Raises RemoteError.

    What nobody here knows changes nothing: it may be a word of a later version, and its sender is told so.
    """
    if ping.is_response(message):
        _hear_pong(turn, whom, message, relationship)
    elif features.is_disclosure(message):
        _hear_features(turn, whom, message)
    elif problem.is_problem(message):
        _hear_problem(turn, whom, message, handle)
    elif whom.connection and basic.is_basic(message):
        text = basic.read_basic(message).content
        if _keep(turn, whom.connection, Letter(message.id, turn.now, mine=False, text=text)):
            turn.say(Notify(Told(whom.connection, text)))
    else:
        disclosed = TO_STRANGERS if whom.connection else TO_MEMBERS
        reply = standard_answer(message, disclosed=disclosed, random=turn.moment.random, profile=_profile(turn, whom))
        if reply is not None:
            _answer(turn, whom, reply, handle)
        elif not _is_known(message):
            _report(turn, whom, message, handle)


def _answer(turn: Turn, whom: Whom, reply: Message, handle: int | None) -> None:
    if handle is not None or _reachable(turn, whom):
        _send(turn, whom, reply, handle)


# --- problems -------------------------------------------------------------------------------------------------------


def _is_known(message: Message) -> bool:
    """Whether somebody here understands a message, or has before: late copies are no problem."""
    if empty.is_empty(message) or ping.is_ping(message) or not problem.may_report(message):
        return True
    return parse_type(message.type).protocol == "didexchange" or message.type.startswith(GROUP_PROTOCOL)


def _report(turn: Turn, whom: Whom, about: Message, handle: int | None) -> None:
    """Tell a peer that nobody here understands a message, as long as there are not too many problems between us."""
    breaker, code = _breaker(turn, whom).sending(UNSUPPORTED, turn.now // 1000)
    _put_breaker(turn, whom, breaker)
    if code is not None:
        _say_problem(turn, whom, about, code, handle)


def _hear_problem(turn: Turn, whom: Whom, message: Message, handle: int | None) -> None:
    """A peer reports a problem. That is never answered with another one, but with the last word when it goes on so."""
    report, before = problem.read_problem(message), _breaker(turn, whom)
    if before.is_broken:
        return
    breaker, code = before.hearing(turn.now // 1000)
    _put_breaker(turn, whom, breaker)
    turn.say(Notify(ProblemReported(label_of(turn, whom), report.code, report.text)))
    if code is not None:
        _say_problem(turn, whom, message, code, handle)
    elif whom.connection and problem.begins_with(report.code, "e.p.req"):
        mediators.refused(turn, whom.connection)


def _say_problem(turn: Turn, whom: Whom, about: Message, code: str, handle: int | None) -> None:
    random = turn.moment.random
    if _profile(turn, whom) == "didcomm/v1":
        report = problem.problem_v1(code, about, problem.COMMENTS[code], random)
    else:
        report = problem.problem(code, about, random)
    _answer(turn, whom, report, handle)


def _breaker(turn: Turn, whom: Whom) -> Breaker:
    """How many problems there have been with a peer. A friendship outlasts them: after an hour they are forgotten."""
    if whom.connection:
        breaker = turn.agent.connections[whom.connection].breaker
    else:
        breaker = turn.group(whom.group).peers[whom.member].breaker
    return breaker if turn.now // 1000 - breaker.since_s < problem.ERRORS_WINDOW_S else Breaker()


def _put_breaker(turn: Turn, whom: Whom, breaker: Breaker) -> None:
    if whom.connection:
        one = replace(turn.agent.connections[whom.connection], breaker=breaker)
        turn.change(connections={**turn.agent.connections, one.id: one})
    else:
        turn.edit_peer(whom.group, whom.member, breaker=breaker)


# --- answers --------------------------------------------------------------------------------------------------------


def _answered(turn: Turn, whom: Whom, message: Message, about: str) -> Question | None:
    """The question that a message answers, which is answered with it."""
    question = turn.agent.questions.get(message.thid or "")
    late = question is not None and turn.now - question.at >= QUESTION_MS_MAX
    if question is None or late or question.about != about or question.whom != whom:
        return None
    turn.change(questions={k: one for k, one in turn.agent.questions.items() if k != message.thid})
    return question


def _hear_pong(turn: Turn, whom: Whom, message: Message, relationship: Relationship) -> None:
    question = _answered(turn, whom, message, "ping")
    if question is None or message.thid is None:
        return
    packer = _packer(turn, whom)
    theirs = packer.their_key(resolve(relationship.theirs), short_form(relationship.theirs)).kid
    mine = next(iter(own_keys(packer, relationship.mine)))
    if whom.connection:
        way: Way = "web"
    else:
        way = "mediator" if mediator_mail.by_mail(turn, whom.group, whom.member) else "direct"
    protection = ENVELOPES.get(packer.name, packer.name)
    turn.say(Notify(Pong(message.thid, label_of(turn, whom), turn.now - question.at, protection, theirs, mine, way)))


ENVELOPES = {
    "didcomm/v2": "didcomm/v2 authcrypt (ECDH-1PU+A256KW, A256CBC-HS512)",
    "didcomm/v1": "didcomm/v1 authcrypt (RFC 0019: XSalsa20-Poly1305, ChaCha20-Poly1305)",
}
"""How what comes in such an envelope was protected: there is one way only, each."""


def _hear_features(turn: Turn, whom: Whom, message: Message) -> None:
    if message.thid is None or _answered(turn, whom, message, "features") is None:
        return
    found = features.read_disclosure(message)
    listed = [("protocol", name) for name, _ in found.protocols]
    listed += [("goal-code", code) for code in found.goal_codes] + [("header", header) for header in found.headers]
    told = tuple(sorted(listed)[:FEATURES_SHOWN_MAX])
    turn.say(Notify(FeaturesDisclosed(message.thid, label_of(turn, whom), told)))
