"""Fuzz targets of a transparency log: the messages of its protocol, as operator and witness receive them.

Hostile bytes reach the code for a dishonest member, operator or quorum: mutated entries are placed under a checkpoint
that covers them, signed by the operator and cosigned by all.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from random import Random

import msgspec

from fuzzing.group import NOW
from fuzzing.nodes import Object, Part, as_text, dissect, utf8
from fuzzing.people import dice
from fuzzing.run import Form
from zerochat.crypto.encoding import b64url, canonical_json
from zerochat.crypto.primitives import sha256
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message, dump, parse
from zerochat.errors import Malformed, RemoteError
from zerochat.evidence.merkle import Frontier
from zerochat.evidence.note import cosignature
from zerochat.evidence.witness import checkpoint, entry_of
from zerochat.group.effects import CommandDone, GroupCreated, InvitationCreated, QueryTlog
from zerochat.group.inputs import (
    AcceptInvitation,
    CreateGroup,
    CreateInvitation,
    StepContext,
    SubmitTlogEntry,
    TlogQueried,
)
from zerochat.group.membership import Policy
from zerochat.group.state import Agent, Group, TransparencyLog
from zerochat.group.tlog import dispatch
from zerochat.group.tlog.adoption import current_tlog
from zerochat.group.transaction import Transaction
from zerochat.group.wire import tlog
from zerochat.sim import SIMULATED_PACKERS, Faults, World
from zerochat.sim.relayed_checks import check_bounds
from zerochat.sim.tlog_store import TlogStore

LOOKS_MAX = 4
"""The number of journal queries for one message and its response."""


@dataclass(frozen=True)
class Here:
    """A group of three whose log has two entries: its operator, another witness, and the sender to both."""

    agents: tuple[Agent, Agent]
    books: tuple[TlogStore, TlogStore]
    group: Group
    """As the speaker has it."""
    seeds: dict[str, bytes]


@cache
def here() -> Here:
    """The same at every start."""
    world = World(1, 3, Faults(loss=0, duplication=0, delay_ms_max=5), "didcomm/v2")
    rules = Policy(remove="anyone", quorum=0)
    founded = world.run_command("n0", CreateGroup("court", "n0", "didcomm/v2", "sender-key", rules, "tlog"))
    assert isinstance(founded, CommandDone) and isinstance(founded.result, GroupCreated)
    name = founded.result.group
    for newcomer in ("n1", "n2"):
        invited = world.run_command("n0", CreateInvitation(name, 3600, 1))
        assert isinstance(invited, CommandDone) and isinstance(invited.result, InvitationCreated)
        world.run_command(newcomer, AcceptInvitation(invited.result.invitation, newcomer))
        world.run(for_ms=5_000)
    world.run(for_ms=120_000)
    for number in range(2):
        world.run_command("n2", SubmitTlogEntry(name, "close", b"close %d" % number))
        world.run(for_ms=60_000)
    groups = {node: world.group(node) for node in world.nodes}
    log = current_tlog(groups["n2"])
    assert log is not None and log.followed.frontier.size == 2
    operator = next(node for node, group in groups.items() if group.me == log.rules.operator)
    speaker = "n2" if operator != "n2" else "n1"
    witness = next(node for node in world.nodes if node not in (operator, speaker))
    names = operator, witness
    return Here(
        (world.nodes[operator].agent, world.nodes[witness].agent),
        (world.nodes[operator].tlogs, world.nodes[witness].tlogs),
        groups[speaker],
        {groups[node].me: groups[node].seed for node in (*names, speaker)},
    )


def _log() -> TransparencyLog:
    log = current_tlog(here().group)
    assert log is not None
    return log


def _messages() -> list[Message]:
    place = here()
    group, log = place.group, _log()
    entries = list(place.books[0].entries[group.id, log.rules.origin])
    mine, blob = entry_of("close", group.me, b"another"), b"another"
    said = entry_of("message", group.me, blob)
    defence = entry_of("defence", group.me, blob, "d" * 43).signed(group.seed)
    posts = [tlog.TlogEntryBody(one.record().decode(), tlog.pack_blob(blob)) for one in (mine, said, defence)]
    texts = [record.decode() for record in entries]
    head = group.id, log.rules.origin
    note = log.followed.note
    assert note is not None
    bodies: list[tuple[str, msgspec.Struct]] = [
        (tlog.TLOG_SUBMIT, tlog.TlogSubmitBody(*head, posts)),
        (tlog.TLOG_SUBMIT, tlog.TlogSubmitBody(*head, [tlog.TlogEntryBody(mine.record().decode())])),
        (tlog.TLOG_BLOBS, tlog.TlogSubmitBody(*head, posts[:1])),
        (tlog.TLOG_EXTENSION, tlog.TlogExtensionBody(*head, 0, texts, note.serialize())),
        (tlog.TLOG_EXTENSION, tlog.TlogExtensionBody(*head, 2, [mine.record().decode()], note.serialize())),
        (tlog.TLOG_COSIGNATURE, tlog.TlogCosignatureBody(*head, 2, cosignature(note.text, group.seed, NOW // 1000))),
        (tlog.TLOG_COSIGNATURE, tlog.TlogCosignatureBody(*head, 1, full=True)),
        (tlog.TLOG_REQUEST, tlog.TlogRequestBody(*head, 0)),
        (tlog.TLOG_REQUEST, tlog.TlogRequestBody(*head, records=texts)),
    ]
    return [
        Message(type=kind, id=f"log-{number}", body=msgspec.to_builtins(body))
        for number, (kind, body) in enumerate(bodies)
    ]


class Logs:
    """The messages of a log as its operator and as a witness receive them, and their effects."""

    name = "log"
    form: Form = "sealed"
    size_max = MESSAGE_BYTES_MAX

    def seeds(self) -> list[bytes]:
        return [dump(message) for message in _messages()]

    def seal(self, tree: Part, dice: Random) -> Part:
        """With a checkpoint that leads where the entries of a piece do, mostly."""
        body = tree.get("body") if isinstance(tree, Object) else None
        if not isinstance(tree, Object) or not isinstance(body, Object) or dice.random() < 0.3:
            return tree
        with suppress(ValueError, TypeError, RemoteError, msgspec.MsgspecError, RecursionError):
            if body.get("records") is not None and body.get("note") is not None:
                records = msgspec.json.decode(utf8(as_text(body.get("records"))), type=list[str])
                note = dissect(json.dumps(_note([record.encode() for record in records], dice), ensure_ascii=False))
                return tree.put("body", body.put("note", note))
            if body.get("entries") is not None:
                posts = msgspec.json.decode(utf8(as_text(body.get("entries"))), type=list[tlog.TlogEntryBody])
                made = json.dumps([msgspec.to_builtins(_fitting(one)) for one in posts], ensure_ascii=False)
                return tree.put("body", body.put("entries", dissect(made)))
        return tree

    def parse(self, data: bytes) -> object:
        """A refused message changes nothing; accepted state is bounded, and can be read from disk again."""
        message = parse(data)
        found = [self._heard(number, message) for number in range(2)]
        if not any(found):
            raise Malformed(why="nothing that is said of a log")
        return found

    def _heard(self, number: int, message: Message) -> bool:
        place = here()
        agent, book, sender = place.agents[number], place.books[number], place.group.me
        tx = Transaction(agent, StepContext(NOW, dice("moment")), SIMULATED_PACKERS)
        try:
            if message.type not in tlog.TLOG_MESSAGES:
                raise Malformed(why="no message of a log")
            dispatch.receive_tlog_message(tx, place.group.id, sender, message)
        except RemoteError:
            return False
        done = 0
        for effect in tx.effects:  # which grow meanwhile
            if isinstance(effect, QueryTlog) and done < LOOKS_MAX:
                done += 1
                answer = book.answer(effect.group, effect.origin, effect.query, ())
                dispatch.handle_query_result(tx, TlogQueried(effect.group, effect.origin, effect.query, answer))
        group = tx.group(place.group.id)
        check_bounds("the fuzzer", group)
        log = group.tlogs.by_name[_log().rules.origin]
        assert log.followed.frontier.size >= 2
        if tx.agent is not agent:
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(tx.agent), type=Agent) == tx.agent
        return True


def _fitting(one: tlog.TlogEntryBody) -> tlog.TlogEntryBody:
    """An entry that names the bytes beside it, signed if it can be read at all."""
    place = here()
    entry = msgspec.json.decode(one.record.encode())
    blob = tlog.unpacked_blob(one.blob) if one.blob else b""
    if not isinstance(entry, dict) or not blob:
        return one
    made = entry_of(entry.get("kind"), str(entry.get("author")), blob, str(entry.get("about")))  # type: ignore[arg-type]
    assert b64url(sha256(blob)) == made.hash
    if made.kind == "defence":
        made = made.signed(place.group.seed)
    record = canonical_json({**entry, **msgspec.json.decode(made.record())})
    return tlog.TlogEntryBody(record.decode(), one.blob)


def _note(records: list[bytes], dice: Random) -> str:
    """A checkpoint that extends the two common entries, or starts from none."""
    place, log = here(), _log()
    frontier = dice.choice((log.followed.frontier, Frontier()))
    for record in records:
        frontier = frontier.with_entry(record)
    note = checkpoint(log.rules.origin, frontier, place.seeds[log.rules.operator])
    for witness in log.rules.witnesses if dice.random() < 0.7 else ():
        note = note.with_line(cosignature(note.text, place.seeds[witness], NOW // 1000))
    return note.serialize()
