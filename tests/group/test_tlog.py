"""Groups with a transparency log, between cores: terms, overdue messages, recipients."""

import pytest
from msgspec.structs import replace

from tests.support.marks import others_slow
from tests.support.ruled_world import Ruled
from tests.support.signed_world import Signed
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.evidence.handshake import Close, parse_statement
from zerochat.evidence.merkle import Frontier
from zerochat.evidence.note import cosignature, parse_checkpoint, parse_note
from zerochat.evidence.witness import checkpoint, entry_of, is_split_view, parse_entry
from zerochat.group.effects import SendEnvelope
from zerochat.group.inputs import (
    AcceptInvitation,
    CreateGroup,
    CreateInvitation,
    Received,
    RemoveMember,
    SendPost,
    SetTlogTerms,
    StepContext,
    SubmitTlogEntry,
)
from zerochat.group.key_modes.sender_key import is_signed
from zerochat.group.links import rate_limits
from zerochat.group.membership import Policy
from zerochat.group.notifications import TlogExtended, TlogSplit, TlogStalled, TlogTermsChanged
from zerochat.group.signed_streams import statements
from zerochat.group.tlog import follower, messages
from zerochat.group.tlog import terms as terms_of_log
from zerochat.group.tlog.adoption import TLOGS_MAX, current_tlog
from zerochat.group.tlog.witness import may_be_held
from zerochat.group.transaction import Transaction
from zerochat.group.wire.tlog import (
    REQUEST_ENTRIES_MAX,
    TLOG_BLOBS,
    TLOG_COSIGNATURE,
    TLOG_EXTENSION,
    TLOG_REQUEST,
    TLOG_SUBMIT,
    TlogCosignatureBody,
    TlogEntryBody,
    TlogExtensionBody,
    TlogRequestBody,
    TlogSubmitBody,
    pack_blob,
)
from zerochat.sim import SIMULATED_PACKERS
from zerochat.sim.tlog_store import TlogStore

MINUTE = 60_000


class Accountable(Ruled):
    """Members of a group with a transparency log and its terms."""

    def __init__(self, members=4, policy=None, wait=True):
        self.kept = {}
        self.gone = set()
        self.policy = policy or Policy(remove="anyone", quorum=0)
        super().__init__(members, self.policy, keys="sender-key")
        if wait:
            self.run(for_ms=4 * MINUTE)

    def run_command(self, name, command):
        if isinstance(command, CreateGroup):
            command = replace(command, accountability="tlog")
        return super().run_command(name, command)

    def _on_accusation(self, node, notice):
        if not isinstance(notice, TlogSplit):  # what operators do here is up to each test
            super()._on_accusation(node, notice)

    def _frame(self, name, stimulus):
        sender = self.nodes[name].connected.get(stimulus.link, "")
        if name not in self.gone and sender not in self.gone:
            super()._frame(name, stimulus)

    def away(self, *names):
        """Disconnect these nodes; both ends notice."""
        self.gone |= set(names)
        for name in names:
            for other in self.nodes:
                for one, end in ((name, other), (other, name)):
                    for link in [link for link, there in self.nodes[one].connected.items() if there == end]:
                        self._disconnect(self.nodes[one], link)

    def back(self, *names):
        self.gone -= set(names)
        self._connect_all()

    def _ends(self, node, link):
        ends = super()._ends(node, link)
        return None if ends is not None and (node.name in self.gone or ends[0].name in self.gone) else ends

    def did(self, name):
        return self.group(name).me

    def log(self, name):
        return current_tlog(self.group(name))

    def operator(self):
        rules = self.group("n0").view.terms.rules
        return next(name for name in self.nodes if self.did(name) == rules.operator)

    def entries(self, name):
        return [parse_entry(record) for record in self.records(name)]

    def records(self, name):
        log = self.log(name)
        return self.nodes[name].tlogs.entries.get((self.id, log.rules.origin), [])[: log.followed.frontier.size]

    def post(self, name, text):
        self.run_command(name, SendPost(self.id, text))


@pytest.fixture
def four():
    return Accountable(4)


def test_one_member_proposes_terms(four):
    views = [four.group(name).view for name in four.nodes]
    assert len({view.terms for view in views}) == 1 and views[0].terms is not None
    rules = views[0].terms.rules
    assert set(rules.witnesses) == {four.did(name) for name in four.nodes} and rules.quorum.threshold == 3
    said = [event for event in four.group("n0").control.values() if event.type == "terms"]
    assert len(said) <= 2, "one for three, and one for four"
    for name in four.nodes:
        assert four.heard(name, TlogTermsChanged)[-1].origin == rules.origin
        assert {stream.rules for stream in four.group(name).streams.followed.values()} == {rules.digest}
        assert {one.rules for one in four.group(name).streams.subscribers.values()} == {rules.digest}


def test_flat_group_explains_its_witnesses(four):
    three = tuple(four.did(name) for name in ("n0", "n1", "n2"))
    said = four.refuses("n0", SetTlogTerms(four.id, four.did("n1"), three), terms_of_log.InvalidTerms)
    assert said.endswith("witnesses: n0, n1, n2, n3.")


def test_overdue_message_is_found_in_tlog(four):
    four.post("n1", "heard by all")
    four.settle()
    four.away("n3")
    four.post("n1", "one")
    four.run(for_ms=MINUTE)
    four.post("n1", "two")
    four.run(for_ms=11 * MINUTE)
    for name in ("n0", "n1", "n2"):
        assert [one.kind for one in four.entries(name)] == ["message"] * 2
        assert not four.log(name).pending
    kept = [one.message for one in four.nodes["n1"].signed if one.author == four.did("n1")][-2:]
    assert four.entries("n0") == [entry_of("message", four.did("n1"), message) for message in kept]
    assert not any(text in four.texts("n3") for text in ("one", "two")), "it was away"
    four.away("n1")
    four.back("n3")
    four.run(for_ms=2 * MINUTE)
    assert four.texts("n3")[-2:] == ["one", "two"]
    assert four.records("n3") == four.records("n0")
    mine = [one.message for one in four.nodes["n3"].signed if one.author == four.did("n1")][-2:]
    assert mine == kept, "as its author has signed it"


# --- what goes wrong ------------------------------------------------------------------------------------------------


def overdue(world, author="n1", away="n3", texts=("one", "two", "three")):
    """One member is offline while another posts, for so long that the posts must be submitted."""
    world.away(away)
    for text in texts:
        world.post(author, text)
        world.run(for_ms=3_000)


def converged(world, names=None, for_ms=30 * MINUTE):
    """All of these have the same log, and nothing is pending."""

    def done():
        logs = [world.log(name) for name in names or world.nodes]
        if any(log is None or log.pending or log.wanted for log in logs):
            return False
        return len({(log.rules.origin, log.followed.frontier) for log in logs}) == 1

    assert world.run(done, for_ms=for_ms, every_ms=5_000), {
        name: (one and (one.rules.origin[-4:], one.followed.frontier.size, len(one.pending), len(one.wanted)))
        for name in names or world.nodes
        for one in [world.log(name)]
    }


@pytest.mark.parametrize("role", others_slow(["all", "operator", "witness", "author"]))
def test_crash_resumes_protocol(four, role):
    operator = four.operator()
    author = next(name for name in four.nodes if name not in (operator, "n3"))
    witness = next(name for name in four.nodes if name not in (operator, author, "n3"))
    overdue(four, author)
    dying = {"operator": [operator], "witness": [witness], "author": [author], "all": [operator, witness, author]}[role]
    four.run(for_ms=8 * MINUTE + 20_000)
    for _ in range(40):
        four.restart(dying[four.rng.randrange(len(dying))])
        four.run(for_ms=four.rng.choice((40, 400, 4_000)))
    four.run(for_ms=3 * MINUTE)
    four.away(author)
    four.back("n3")
    four.run(for_ms=3 * MINUTE)
    assert four.texts("n3")[-3:] == ["one", "two", "three"]
    four.back(author)
    converged(four)
    assert sorted(four.records("n3")) == sorted(set(four.records("n3"))), "nothing has two places"


def test_lost_cosignatures_are_resent(four):
    four.faults = replace(four.faults, loss=0.4)
    overdue(four, "n1")
    four.run(for_ms=14 * MINUTE)
    four.back("n3")
    converged(four)
    assert len(four.records("n0")) >= 3 and four.texts("n3")[-3:] == ["one", "two", "three"]


def test_tlog_tolerates_one_missing_witness(four):
    operator = four.operator()
    author, other = (name for name in four.nodes if name not in (operator, "n3"))
    four.nodes[other].tlogs.room = 0
    four.post(author, "for all")
    four.settle()
    overdue(four, author, texts=["not for long"])
    four.run(for_ms=20 * MINUTE)
    # n3 is away, and `other` has no room: but what it has heard itself it holds.
    assert len(four.records(author)) == 1
    origin = four.log(author).rules.origin
    blob = b"nobody has heard this"
    assert four.run_command(author, SubmitTlogEntry(four.id, "close", blob)).result
    four.run(for_ms=15 * MINUTE)
    assert four.group(author).tlogs.by_name[origin].pending, "though there may be another log by now"
    assert [one.origin for one in four.heard(author, TlogStalled)] == [origin]
    assert four.nodes[operator].dropped.get("WitnessFull ", 0)
    four.nodes[other].tlogs.room = 1 << 60
    assert four.run(lambda: not four.group(author).tlogs.by_name[origin].pending, for_ms=60 * MINUTE)
    assert blob in [one.blob for one in four.nodes[other].tlogs.blobs.values()]
    converged(four, [name for name in four.nodes if name != "n3"])


def test_next_operator_takes_over(four):
    operator = four.operator()
    author = next(name for name in four.nodes if name != operator)
    four.away(operator)
    four.post(author, "said while the operator is gone")
    assert four.run(lambda: four.group(author).view.terms.rules.operator != four.did(operator), for_ms=30 * MINUTE)
    rest = [name for name in four.nodes if name != operator]
    four.run(for_ms=3 * MINUTE)
    converged(four, rest)
    assert [one.author for one in four.entries(author)] == [four.did(author)]
    assert four.heard(author, TlogStalled)
    four.back(operator)
    four.run(for_ms=3 * MINUTE)
    converged(four)
    assert four.texts(operator)[-1] == "said while the operator is gone"


def test_removed_witness_is_replaced(four):
    before = four.group("n0").view.terms.rules
    four.says("n1", RemoveMember(four.id, four.did("n3")))
    four.run(for_ms=15 * MINUTE)
    rules = four.group("n0").view.terms.rules
    assert len(rules.witnesses) == 3 and rules.origin != before.origin
    assert set(rules.witnesses) == {four.did(name) for name in ("n0", "n1", "n2")}
    for name in ("n0", "n1", "n2"):
        entries = four.nodes[name].tlogs.entries[four.id, before.origin]
        closes = [four.nodes[name].tlogs.blob(four.id, parse_entry(record).hash) for record in entries]
        said = [parse_statement(close) for close in closes]
        assert {one.author for one in said} == {four.did(one) for one in ("n0", "n1", "n2")}, (
            "each ends what n3 heard of it"
        )
        assert all(isinstance(one, Close) for one in said)
    four.nodes["n3"].agent = replace(four.nodes["n3"].agent, groups={})
    invitation = four.run_command("n0", CreateInvitation(four.id, 3600, 1)).result.invitation
    four.run_command("n3", AcceptInvitation(invitation, "n3 again"))
    four.run(for_ms=30 * MINUTE)
    assert len(four.group("n3").view.terms.rules.witnesses) == 4
    overdue(four, "n1", texts=["anew"])
    four.run(for_ms=12 * MINUTE)
    four.away("n1")
    four.back("n3")
    four.run(for_ms=3 * MINUTE)
    assert four.texts("n3")[-1] == "anew"


def test_forgotten_tlog_owes_nothing(four):
    """A member that is offline across several terms is subscribed under old ones; when their log is dropped nothing can
    be submitted there, so its subscription has ended by then, and it receives everything on return."""
    first = four.log("n0").rules
    four.away("n3")
    rest = ["n0", "n1", "n2"]
    names = {four.did(name): name for name in four.nodes}
    for number in range(TLOGS_MAX - 1):
        others = [did for did in first.witnesses if names[did] in rest and did != four.log("n0").rules.operator]
        four.run_command("n0", SetTlogTerms(four.id, others[number % 2], first.witnesses))
        four.run(for_ms=3 * MINUTE)
    for name in rest:
        assert (
            len(four.group(name).tlogs.by_name) == TLOGS_MAX
            and four.did("n3") not in four.group(name).streams.subscribers
        )
    entries = map(parse_entry, four.nodes["n0"].tlogs.entries[four.id, first.origin])
    assert {one.author for one in entries if one.kind == "close"} == {four.did(name) for name in rest}
    assert not [one for one in four.group("n0").tlogs.ended_subscriptions if one.close_key]
    four.post("n0", "by nothing of that")
    others = [did for did in first.witnesses if names[did] in rest and did != four.log("n0").rules.operator]
    four.run_command("n0", SetTlogTerms(four.id, others[0], first.witnesses))
    four.run(for_ms=3 * MINUTE)
    assert first.origin not in four.group("n0").tlogs.by_name
    assert not [one for one in four.group("n0").streams.subscribers.values() if one.rules == first.digest]
    four.back("n3")
    four.run(for_ms=5 * MINUTE)
    four.post("n0", "and heard again")
    four.run(for_ms=MINUTE)
    assert four.texts("n3")[-2:] == ["by nothing of that", "and heard again"]
    hears = four.group("n0").streams.subscribers[four.did("n3")]
    assert hears.rules == four.log("n0").rules.digest and hears.acked == four.group("n0").streams.own.time


def test_messages_before_logged_close_are_owed(four):
    """The subscription ends at the log's time, which an operator without an honest member could delay."""
    rules = four.group("n0").view.terms.rules
    gone = next(name for name in ("n1", "n2") if four.did(name) != rules.operator)
    member = four.did(gone)
    four.run_command("n0", RemoveMember(four.id, member))
    four.post("n0", "right behind that")
    said = four.group("n0").streams.own.time
    four.run(for_ms=2 * MINUTE)
    ended = max(
        (one for one in four.group("n0").tlogs.ended_subscriptions if one.member == member), key=lambda one: one.until
    )
    assert ended.until > said and not ended.close_key
    four.post("n0", "much later")
    four.run(for_ms=13 * MINUTE)
    entries = map(parse_entry, four.nodes["n0"].tlogs.entries[four.id, rules.origin])
    posted = {one.hash for one in entries if (one.kind, one.author) == ("message", four.did("n0"))}
    own = [one for one in four.nodes["n0"].signed if one.author == four.did("n0") and one.time > ended.begun]
    due = {b64url(sha256(one.message)) for one in own if one.time <= ended.until}
    assert b64url(sha256(own[-1].message)) not in posted, "by then it was over"
    assert due and due <= posted
    assert all(one.member != member for one in four.group("n0").tlogs.ended_subscriptions)


def test_restored_profile_retires_from_tlogs(four):
    operator = four.operator()
    name = next(name for name in four.nodes if name != operator)
    for one in (operator, name):
        four.restart(one, restored=True)
        log = four.log(one)
        assert log.retired and log.watched is None and log.operated is None
    four.run(for_ms=10 * MINUTE)
    four.post("n3", "somebody has lost something")
    four.away("n0" if operator != "n0" else "n1")
    four.run(for_ms=40 * MINUTE)
    rules = four.group("n3").view.terms.rules
    assert rules.operator != four.did(operator)
    assert not four.log("n3").pending


def test_all_members_keep_accusations(four):
    accuser, accused = "n1", "n2"
    assert four.run_command(accuser, SubmitTlogEntry(four.id, "accusation", b"accused")).result
    four.run(for_ms=3 * MINUTE)
    defence = b"x" * 150_000
    assert four.run_command(accused, SubmitTlogEntry(four.id, "defence", defence, about="d" * 43)).result
    four.run(for_ms=30 * MINUTE)
    converged(four)
    rules = four.group("n0").view.terms.rules
    for name in four.nodes:
        kinds = [one.kind for one in four.entries(name)]
        assert kinds == ["accusation", "defence"]
        four.entries(name)[1].check()
        for blob in (b"accused", defence):
            assert four.nodes[name].tlogs.blob(four.id, b64url(sha256(blob))) == blob
        notes = [parse_note(note.encode()) for _, _, note in four.nodes[name].tlogs.notes[four.id, rules.origin]]
        filed = rules.quorum.posted_by_ms(notes[0])
        assert max(map(rules.quorum.complete_until_ms, notes)) >= filed + rules.window_ms
        assert len(notes) <= 4
        assert four.heard(name, TlogExtended)
    entry = entry_of("defence", four.did(accused), defence, "d" * 43)
    assert four.entries("n0")[1].hash == entry.hash


def test_joiner_follows_without_old_messages(monkeypatch):
    five = Accountable(5)
    rules = five.group("n0").view.terms.rules
    guest = next(name for name in five.nodes if five.did(name) not in rules.witnesses)
    overdue(five, "n0", away=guest)
    five.run(for_ms=14 * MINUTE)
    assert len(five.records("n0")) == 3
    five.says("n0", RemoveMember(five.id, five.did(guest)))
    five.back(guest)
    five.run(for_ms=5 * MINUTE)
    assert five.group("n0").view.terms.rules == rules, "nobody who witnesses has gone"
    five.nodes[guest].agent = replace(five.nodes[guest].agent, groups={})
    five.nodes[guest].tlogs = TlogStore()
    asked, real = [], follower.want_blobs

    def want(tx, name, origin, records):
        asked.extend(map(parse_entry, records))
        real(tx, name, origin, records)

    monkeypatch.setattr(follower, "want_blobs", want)
    invitation = five.run_command("n0", CreateInvitation(five.id, 3600, 1)).result.invitation
    five.run_command(guest, AcceptInvitation(invitation, "anew"))
    five.run(for_ms=5 * MINUTE)
    converged(five)
    assert len(five.records(guest)) >= 4 and five.log(guest).size_at_join >= 3
    assert [one.kind for one in asked if one.kind == "message"] == []
    assert [one for one in asked if one.kind == "close"], "but what ends a subscription everybody keeps"


# --- who lies -------------------------------------------------------------------------------------------------------


def said(world, name, to, kind, body):
    """A message from this member to another one."""
    tx = Transaction(world.nodes[name].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    assert messages.send_tlog_message(tx, world.id, world.did(to), kind, body)
    (sent,) = (effect for effect in tx.effects if isinstance(effect, SendEnvelope))
    link = world.group(to).links.peers[world.did(name)].link
    return Received(link, sent.envelope)


def tell(world, name, to, kind, body):
    world.process(to, said(world, name, to, kind, body))


def two_logs(world, operator):
    """Two checkpoints of one size by the operator of the current log, with the entry under each."""
    group, log = world.group(operator), world.log(operator)
    found = []
    for number in range(2):
        record = entry_of("close", group.me, b"log %d" % number).record()
        frontier = log.followed.frontier.with_entry(record)
        found.append((record, checkpoint(log.rules.origin, frontier, group.seed)))
    return found


def test_split_view_convicts_operator(four):
    operator = four.operator()
    witness, other, reader = (name for name in four.nodes if name != operator)
    origin = four.log(operator).rules.origin
    (one, first), (two, second) = two_logs(four, operator)
    for name in (witness, other):
        for number in range(2):
            blob = pack_blob(b"log %d" % number)
            body = TlogSubmitBody(four.id, origin, [TlogEntryBody((one, two)[number].decode(), blob)])
            tell(four, operator, name, TLOG_SUBMIT, body)
    tell(
        four,
        operator,
        witness,
        TLOG_EXTENSION,
        TlogExtensionBody(four.id, origin, 0, [one.decode()], first.serialize()),
    )
    tell(
        four, operator, other, TLOG_EXTENSION, TlogExtensionBody(four.id, origin, 0, [two.decode()], second.serialize())
    )
    four.run(for_ms=2_000)
    tell(
        four,
        operator,
        witness,
        TLOG_EXTENSION,
        TlogExtensionBody(four.id, origin, 0, [two.decode()], second.serialize()),
    )
    (told,) = four.heard(witness, TlogSplit)
    assert told.operator == four.did(operator)
    assert is_split_view(parse_note(told.one.encode()), parse_note(told.other.encode()), told.operator)
    assert four.group(witness).tlogs.by_name[origin].split == (told.one, told.other), "and it is kept"
    four.restart(witness)
    assert four.group(witness).tlogs.by_name[origin].split == (told.one, told.other)
    frontier = four.group(witness).tlogs.by_name[origin].watched.frontier
    tell(
        four,
        operator,
        witness,
        TLOG_EXTENSION,
        TlogExtensionBody(four.id, origin, 0, [two.decode()], second.serialize()),
    )
    assert (
        len(four.heard(witness, TlogSplit)) == 1
        and four.group(witness).tlogs.by_name[origin].watched.frontier == frontier
    )
    four.run(for_ms=15 * MINUTE)
    rules = four.group(reader).view.terms.rules
    assert rules.origin != origin and rules.operator != four.did(operator)
    overdue(four, reader, away=other, texts=["a log without that one"])
    four.run(for_ms=14 * MINUTE)
    assert [one.author for one in four.entries(witness)] == [four.did(reader)]


def test_at_most_one_branch_is_accepted(four):
    operator = four.operator()
    others = [name for name in four.nodes if name != operator]
    origin = four.log(operator).rules.origin
    branches = two_logs(four, operator)
    for number, name in enumerate(others):
        record, note = branches[number % 2]
        content = pack_blob(b"log %d" % (number % 2))
        tell(
            four,
            operator,
            name,
            TLOG_SUBMIT,
            TlogSubmitBody(four.id, origin, [TlogEntryBody(record.decode(), content)]),
        )
        tell(
            four,
            operator,
            name,
            TLOG_EXTENSION,
            TlogExtensionBody(four.id, origin, 0, [record.decode()], note.serialize()),
        )
    four.run(for_ms=5_000)
    assert {four.group(name).tlogs.by_name[origin].watched.frontier.root() for name in others} == {
        parse_checkpoint(note.text).root for _, note in branches
    }
    assert {four.group(name).tlogs.by_name[origin].followed.frontier.size for name in others} == {0}
    lines = [cosignature(note.text, four.group(operator).seed, four.now // 1000) for _, note in branches]
    for (record, note), line in zip(branches, lines, strict=True):  # its own line, and nobody else's
        piece = TlogExtensionBody(four.id, origin, 0, [record.decode()], note.with_line(line).serialize())
        tell(four, operator, others[0], TLOG_EXTENSION, piece)
    assert four.group(others[0]).tlogs.by_name[origin].followed.frontier.size == 0


def test_entries_survive_operator_conviction(four):
    """A quorum has one of the two branches, and a member that saw the other one, and is offline then, accepts it
    later."""
    operator = four.operator()
    author, away, _ = (name for name in four.nodes if name != operator)
    four.post(author, "heard by all")
    four.settle()
    origin = four.log(operator).rules.origin
    (record, note), _ = two_logs(four, operator)
    tell(
        four,
        operator,
        away,
        TLOG_SUBMIT,
        TlogSubmitBody(four.id, origin, [TlogEntryBody(record.decode(), pack_blob(b"log 0"))]),
    )
    tell(
        four, operator, away, TLOG_EXTENSION, TlogExtensionBody(four.id, origin, 0, [record.decode()], note.serialize())
    )
    overdue(four, author, away, ["one"])
    four.run(for_ms=12 * MINUTE)
    kept = [one.message for one in four.nodes[author].signed if one.author == four.did(author)][-1]
    assert four.entries(operator) == [entry_of("message", four.did(author), kept)], "as long as the other one"
    four.away(author)
    four.back(away)
    four.run(for_ms=60 * MINUTE)
    (told,) = four.heard(away, TlogSplit)
    log = four.group(away).tlogs.by_name[origin]
    assert told.origin == origin and four.log(away).rules.origin != origin, "it goes by other terms by now"
    assert (
        log.split is not None and log.followed.frontier == four.group(operator).tlogs.by_name[origin].followed.frontier
    )
    assert four.texts(away)[-1] == "one"
    assert [one.message for one in four.nodes[away].signed if one.author == four.did(author)][-1] == kept
    assert parse_checkpoint(note.text).root == log.watched.frontier.root(), "and it cosigns neither any more"


def test_invalid_cosignature_is_ignored(four):
    operator = four.operator()
    liar, author, away = (name for name in four.nodes if name != operator)
    overdue(four, author, away=away)
    four.run(for_ms=14 * MINUTE)
    assert four.records(author), "with the liar and the two others"
    origin, state = four.log(operator).rules.origin, four.log(operator).operated
    elsewhere = checkpoint(origin, Frontier().with_entry(b"x"), four.group(operator).seed)
    for line in (
        cosignature(elsewhere.text, four.group(liar).seed, four.now // 1000),
        cosignature(state.complete.text, four.group(author).seed, four.now // 1000),
        "no line",
        "",
    ):
        tell(four, liar, operator, TLOG_COSIGNATURE, TlogCosignatureBody(four.id, origin, 10**9, line))
        assert four.log(operator).operated == state
    tell(four, liar, author, TLOG_COSIGNATURE, TlogCosignatureBody(four.id, origin, 1, "no line"))
    four.run(for_ms=1_000)
    four.back(away)
    converged(four)


def test_non_witness_cannot_cosign():
    five = Accountable(5)
    rules = five.group("n0").view.terms.rules
    assert len(rules.witnesses) == 4
    outsider = next(name for name in five.nodes if five.did(name) not in rules.witnesses)
    before = five.log(five.operator())
    tell(five, outsider, five.operator(), TLOG_COSIGNATURE, TlogCosignatureBody(five.id, rules.origin, 0, ""))
    assert five.log(five.operator()) == before and five.nodes[five.operator()].dropped["dropped Refused"] == 1
    overdue(five, outsider, away=outsider)
    overdue(five, "n0", away=next(name for name in ("n1", "n2", "n3") if name != five.operator()))
    five.run(for_ms=14 * MINUTE)
    five.back(*five.gone)
    five.run(for_ms=20 * MINUTE)
    converged(five)
    assert five.records(outsider) == five.records("n0")


@pytest.mark.parametrize("to", ["operator", "witness"])
def test_submission_flood_is_bounded(four, to):
    operator = four.operator()
    rogue = next(name for name in four.nodes if name != operator)
    whom = operator if to == "operator" else next(name for name in four.nodes if name not in (operator, rogue))
    origin = four.log(whom).rules.origin
    four.away(*(name for name in four.nodes if name not in (rogue, whom)))
    for number in range(0, 3 * 64, 8):
        posts = []
        for place in range(number, number + 8):
            blob = b"%d" % place
            posts.append(TlogEntryBody(entry_of("message", four.did(rogue), blob).record().decode(), pack_blob(blob)))
        tell(four, rogue, whom, TLOG_SUBMIT, TlogSubmitBody(four.id, origin, posts))
        four.run(for_ms=10)
    log = four.log(whom)
    if log.operated is not None:
        under_way = log.operated.frontier.size
        assert len(log.operated.pending) <= 64 and under_way <= 64
    assert len(log.wanted) <= follower.WANTED_MAX and len(log.pending) == 0
    for record in (
        entry_of("message", four.did(whom), b"in your name").record(),
        entry_of("defence", four.did(rogue), b"no signature", "d" * 43).record(),
    ):
        before = four.log(whom).operated
        tell(four, rogue, whom, TLOG_SUBMIT, TlogSubmitBody(four.id, origin, [TlogEntryBody(record.decode())]))
        four.run(for_ms=10)
        assert before is None or four.log(whom).operated == before
    tell(four, rogue, whom, TLOG_SUBMIT, TlogSubmitBody(four.id, "zerochat/log/none", [TlogEntryBody("{}")]))
    lied = entry_of("message", four.did(rogue), b"short")
    post = TlogSubmitBody(four.id, origin, [TlogEntryBody(lied.record().decode(), pack_blob(b"something else"))])
    tell(four, rogue, whom, TLOG_SUBMIT, post)
    assert four.nodes[whom].tlogs.blob(four.id, lied.hash) is None


@pytest.mark.parametrize("what", ["nowhere", "too long"])
def test_entry_without_blob_is_not_placed(four, what):
    rogue = next(name for name in four.nodes if name != four.operator())
    origin = four.log(rogue).rules.origin
    four.post(rogue, b64url(four.rng.randbytes(4_000)))
    four.settle()
    heard = next(one for one in reversed(four.nodes[rogue].signed) if one.author == four.did(rogue))
    long = entry_of("close", four.did(rogue), heard.message)
    entry = replace(long, hash="A" * 43, size=5) if what == "nowhere" else long
    tell(
        four,
        rogue,
        four.operator(),
        TLOG_SUBMIT,
        TlogSubmitBody(four.id, origin, [TlogEntryBody(entry.record().decode())]),
    )
    four.run(for_ms=10_000)
    author = next(name for name in four.nodes if name not in (four.operator(), rogue))
    assert four.run_command(author, SubmitTlogEntry(four.id, "close", b"something else")).result
    four.run(for_ms=MINUTE)
    assert [one.kind for one in four.entries(rogue)] == ["close"] and four.log(rogue).rules.origin == origin


def test_unrequested_blobs_are_ignored(four):
    operator = four.operator()
    name = next(one for one in four.nodes if one != operator)
    origin = four.log(name).rules.origin
    record = entry_of("close", four.did(operator), b"unasked").record()
    before = four.nodes[name].agent
    tell(
        four,
        operator,
        name,
        TLOG_BLOBS,
        TlogSubmitBody(four.id, origin, [TlogEntryBody(record.decode(), pack_blob(b"unasked"))]),
    )
    assert four.nodes[name].tlogs.blob(four.id, parse_entry(record).hash) is None
    assert four.nodes[name].agent == before


def test_author_serves_its_blobs(four):
    author, asker = (name for name in four.nodes if name not in (four.operator(), "n3"))
    assert four.run_command(author, SubmitTlogEntry(four.id, "close", b"by its author")).result
    four.run(for_ms=3 * MINUTE)
    (record,) = four.records(asker)
    four.nodes[asker].tlogs.blobs.clear()
    origin = four.log(asker).rules.origin
    four.away("n3", four.operator())
    tx = Transaction(four.nodes[asker].agent, StepContext(four.now, four.rng.randbytes), SIMULATED_PACKERS)
    follower.want_blobs(tx, four.id, origin, [record])
    four.nodes[asker].agent = tx.agent
    for effect in tx.effects:
        four._perform(four.nodes[asker], effect)
    before = four.group(author).links.peers[four.did(asker)].rate_limit
    four.run(for_ms=2_000)
    assert four.nodes[asker].tlogs.blob(four.id, parse_entry(record).hash) == b"by its author"
    assert not four.log(asker).wanted
    assert four.group(author).links.peers[four.did(asker)].rate_limit.at > before.at, "nobody else is there to be asked"


def test_submitted_blobs_are_charged(four):
    """A few hundred packed blobs stand for a quarter of a megabyte each, which must be unpacked and written."""
    whom, rogue = four.operator(), next(name for name in four.nodes if name != four.operator())
    blob = bytes(200_000)
    record = entry_of("defence", four.did(rogue), blob, "d" * 43).signed(four.group(rogue).seed).record().decode()
    before = four.group(whom).links.peers[four.did(rogue)].rate_limit.bytes
    body = TlogSubmitBody(four.id, four.log(whom).rules.origin, [TlogEntryBody(record, pack_blob(blob))])
    tell(four, rogue, whom, TLOG_SUBMIT, body)
    assert len(pack_blob(blob)) < 1_000
    assert four.group(whom).links.peers[four.did(rogue)].rate_limit.bytes <= before - len(blob) // 2


def test_tlog_messages_are_charged(four):
    """Each of them costs as much as dozens of posts, and was free."""
    whom, rogue = four.operator(), next(name for name in four.nodes if name != four.operator())
    log = four.log(whom)
    origin, me = log.rules.origin, four.did(rogue)
    records = [entry_of("message", me, b"%d" % number).record().decode() for number in range(16)]
    note = checkpoint(origin, log.followed.frontier, four.group(rogue).seed)
    posts = [TlogEntryBody(record, pack_blob(b"x")) for record in records]
    for kind, body in (
        (TLOG_SUBMIT, TlogSubmitBody(four.id, origin, [TlogEntryBody(record) for record in records])),
        (TLOG_EXTENSION, TlogExtensionBody(four.id, origin, 0, records, note.serialize())),
        (TLOG_COSIGNATURE, TlogCosignatureBody(four.id, origin, 5)),
        (TLOG_BLOBS, TlogSubmitBody(four.id, origin, posts)),
        (TLOG_REQUEST, TlogRequestBody(four.id, origin, 0, records=records)),
    ):
        four.run(for_ms=MINUTE)
        tell(four, rogue, whom, kind, body)
        spent = rate_limits.WORK_US_MAX - four.group(whom).links.peers[me].rate_limit.work
        assert 2_000 <= spent <= 20_000, kind
        for _ in range(1_000):
            tell(four, rogue, whom, kind, body)
        assert four.group(whom).links.peers[me].rate_limit.work <= 0, kind


def test_accusations_are_fetched_first(four):
    """A false accuser could put entries in front that take longer to fetch than the defence period."""
    asker = next(name for name in four.nodes if name != four.operator())
    me, origin = four.did("n3"), four.log(asker).rules.origin
    junk = [entry_of("defence", me, b"%d" % number, "d" * 43).record() for number in range(40)]
    said = entry_of("accusation", me, b"accused")
    tx = Transaction(four.nodes[asker].agent, StepContext(four.now, four.rng.randbytes), SIMULATED_PACKERS)
    follower.want_blobs(tx, four.id, origin, [*junk, said.record()])
    asked = tx.group(four.id).tlogs.by_name[origin].wanted
    assert asked[said.hash].tries == 1 and sum(one.tries for one in asked.values()) == REQUEST_ENTRIES_MAX
    assert may_be_held(said)
    for kind in ("accusation", "close"):
        assert not may_be_held(entry_of(kind, me, bytes(2049))), "it is longer than any statement"


@pytest.mark.parametrize(
    "body",
    [
        TlogRequestBody("g" * 43, "zerochat/log/x"),
        TlogRequestBody("", "zerochat/log/x", after=3),
        TlogRequestBody("", "ORIGIN", after=2**53 - 1),
        TlogRequestBody("", "ORIGIN", records=["{}"]),
        TlogRequestBody("", "ORIGIN", after=0, records=[]),
    ],
    ids=str,
)
def test_malformed_requests_change_nothing(four, body):
    group, origin = body.group or four.id, four.log("n1").rules.origin
    before = four.nodes["n1"].agent
    body = replace(body, group=group, origin=origin if body.origin == "ORIGIN" else body.origin)
    tell(four, "n2", "n1", TLOG_REQUEST, body)
    assert four.nodes["n1"].agent == before


def test_tlog_messages_need_a_tlog():
    world = Ruled(2, keys="sender-key")
    before = world.nodes["n1"].agent
    tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    assert messages.send_tlog_message(
        tx, world.id, world.group("n1").me, TLOG_REQUEST, TlogRequestBody(world.id, "zerochat/log/x", 0)
    )
    (sent,) = (effect for effect in tx.effects if isinstance(effect, SendEnvelope))
    world.process("n1", Received(world.group("n1").links.peers[world.group("n0").me].link, sent.envelope))
    assert world.nodes["n1"].agent == before and world.nodes["n1"].dropped["dropped Refused"] == 1


def test_late_answer_does_not_revert_state(monkeypatch):
    """Found by the search (accountable, seed 183): after new terms a member requests again, and stays subscribed
    meanwhile."""
    two = Signed(2)
    n0, n1 = two.group("n0"), two.group("n1")
    tx = two.tx("n1")
    statements.request_stream(tx, two.id, n0.me)
    two.nodes["n1"].agent = tx.agent
    asked = two.group("n1").streams.requests[n0.me].statement
    real = two._frame
    monkeypatch.setattr(two, "_frame", lambda name, said: is_signed(said.envelope) and real(name, said))
    two.process("n0", Received(n0.links.peers[n1.me].link, two.utter("n1", "n0", statements=[asked])))
    answer = two.group("n0").streams.subscribers[n1.me].accept
    assert answer
    two.run_command("n0", SendPost(two.id, "heard before the answer"))
    two.run(for_ms=1_000)
    before = two.group("n1").streams.followed[n0.me]
    two.process("n1", Received(n1.links.peers[n0.me].link, two.utter("n0", "n1", statements=[answer])))
    after = two.group("n1").streams.followed[n0.me]
    assert after.accept != before.accept and (after.head, after.chain, after.time) == (
        before.head,
        before.chain,
        before.time,
    )
    monkeypatch.undo()
    two.post("n0", "and this one too")
    assert two.texts("n1")[-2:] == ["heard before the answer", "and this one too"]
