"""Bot modules that need no agent: arguments, schedules, acknowledgements, authorisation, storage."""

import asyncio
import contextlib
import random
import stat
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerochat import Bot, Message
from zerochat.bot.acknowledgement import AckTracker
from zerochat.bot.api import valid_key
from zerochat.bot.arguments import BadArguments, BadHandler, parameters_of, parse_arguments, usage_of
from zerochat.bot.bot import BadBot, NotRunning
from zerochat.bot.dispatcher import Dispatcher
from zerochat.bot.events import Event, Group, PrivateInvitation, event_from
from zerochat.bot.handlers import Call
from zerochat.bot.schedule import RateLimit, make_schedule, parse_duration
from zerochat.bot.store import DEAD_LETTERS_MAX, BadValue, DeadLetter, Store, StoreUnusable
from zerochat.rpc import Author as SchemaAuthor
from zerochat.rpc.subscriptions import Item

# --- arguments --------------------------------------------------------------------------------------------------------


def deploy(m, env: Literal["test", "live"], count: int = 1, dry: bool = False): ...
def tell(m, who: str, *, text: str): ...
def add(m, *numbers: float): ...
def maybe(m, name: str | None = None): ...


@pytest.mark.parametrize(
    ("handler", "line", "expected"),
    [
        (deploy, "test", (["test", 1, False], {})),
        (deploy, "live 3 yes", (["live", 3, True], {})),
        (tell, "bob  come  here ", (["bob"], {"text": "come  here"})),
        (tell, '"bob b." come', (["bob b."], {"text": "come"})),
        (add, "1 2.5", ([1.0, 2.5], {})),
        (add, "", ([], {})),
        (maybe, "", ([None], {})),
        (maybe, "'a b'", (["a b"], {})),
    ],
)
def test_words_are_converted_to_arguments(handler, line, expected):
    assert parse_arguments(parameters_of(handler), line) == expected


@pytest.mark.parametrize(
    ("handler", "line", "why"),
    [
        (deploy, "", "env is missing"),
        (deploy, "prod", "env must be one of test, live, not prod"),
        (deploy, "test x", "count must be a whole number, not x"),
        (deploy, "test 1 perhaps", "dry must be yes or no, not perhaps"),
        (deploy, "test 1 yes more", "there are too many arguments"),
        (tell, "bob", "text is missing"),
        (add, "nan", "numbers must be a number, not nan"),
        (add, "1" * 10_000, "numbers must be a number, not "),
    ],
)
def test_invalid_arguments_are_explained(handler, line, why):
    with pytest.raises(BadArguments) as error:
        parse_arguments(parameters_of(handler), line)
    assert error.value.sentence().startswith(why) and len(error.value.sentence()) < 120


def test_usage_follows_from_the_signature():
    assert usage_of(parameters_of(deploy)) == "test|live [COUNT] [DRY]"
    assert usage_of(parameters_of(tell)) == "WHO TEXT..."
    assert usage_of(parameters_of(add)) == "[NUMBERS...]"


@pytest.mark.slow
@given(st.text(max_size=200))
def test_any_input_is_parsed_or_refused(line):
    for handler in (deploy, tell, add, maybe):
        with contextlib.suppress(BadArguments):
            args, named = parse_arguments(parameters_of(handler), line)
            assert all(isinstance(one, str | int | float | None) for one in (*args, *named.values()))


def takes_list(m, names: dict[str, int]): ...
def takes_list_then_word(m, names: list[str], last: str): ...
def takes_more(m, *words: str, last: str): ...
def takes_anything(m, **options: str): ...
def takes_unknown(m, thing: "Nowhere"): ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    "handler", [takes_list, takes_list_then_word, takes_more, takes_anything, takes_unknown, lambda: None]
)
def test_unusable_handlers_are_refused(handler):
    with pytest.raises(BadHandler):
        Bot().command("x")(handler)


MISTAKES = [
    lambda bot: bot.command("Not+OK")(maybe),
    lambda bot: bot.command("x", rate="often")(maybe),
    lambda bot: bot.command("x", allow=["alice"])(maybe),
    lambda bot: bot.command("x", allow="did:key:z6Mk")(maybe),
    lambda bot: bot.command("x", role="boss")(maybe),
    lambda bot: bot.command("x", help="two\nlines")(maybe),
    lambda bot: bot.command("x", include="self")(maybe),
    lambda bot: bot.on_message(text="(")(maybe),
    lambda bot: bot.every("never")(lambda: None),
    lambda bot: bot.every("7h", at="03:00")(lambda: None),
    lambda bot: bot.at("25:00")(lambda: None),
    lambda bot: bot.at("09:00", days="sunny")(lambda: None),
    lambda bot: bot.at("09:00", zone="Mars/Base")(lambda: None),
    lambda bot: bot.at("09:00")(maybe),
    lambda bot: (bot.command("x")(maybe), bot.command("x")(maybe)),
    lambda bot: bot.command("one two three four")(maybe),
    lambda bot: bot.command("x", aliases="y")(maybe),
    lambda bot: (bot.command("x", aliases=("y",))(maybe), bot.command("y")(maybe)),
    lambda bot: bot.on_leave(max_age="soon")(maybe),
    lambda bot: bot.every(maybe),
    lambda bot: bot.at(maybe),
    lambda bot: bot.on(maybe),
    lambda bot: bot.on()(maybe),
    lambda bot: bot.on("mesage")(maybe),
    lambda bot: bot.on("message", "typing")(maybe),
]


def test_decorator_errors_are_raised_at_once():
    for mistake in MISTAKES:
        with pytest.raises(BadHandler):
            mistake(Bot())


def test_decorators_without_parentheses():
    bot = Bot("greeter")

    @bot.command
    def hello(m: Message, name: str = "") -> None: ...

    @bot.on_start()
    def begin() -> None: ...

    spec = bot._spec()
    assert [one.name for one in spec.announced_commands] == ["hello", "help"] and spec.announced_commands[0].usage
    assert [one.call for one in spec.start_handlers] == [begin]
    with pytest.raises(BadHandler, match=r"write it with parentheses: @bot.every\("):
        bot.every(hello)  # type: ignore[arg-type]
    with pytest.raises(BadHandler, match=r"'mesage' is not an event type\. Use one of: message"):
        bot.on("mesage")


def test_invalid_bots_are_refused():
    for mistake in ({"name": "My Bot"}, {"name": ""}, {"prefix": ""}, {"retries": ["soon"]}):
        with pytest.raises(BadBot):
            Bot(**mistake)


def test_calls_without_an_agent_raise():
    with pytest.raises(NotRunning):
        _ = Bot().sync


# --- times ------------------------------------------------------------------------------------------------------------


def test_durations():
    assert [parse_duration(one) for one in ("30s", "5m", "1.5h", "2d", 7)] == [30, 300, 5400, 172_800, 7]
    for bad in ("", "5 parsecs", "-1s", "0s", "1000000d"):
        with pytest.raises(ValueError, match=r"is not|must be"):
            parse_duration(bad)


def utc_ms(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "moment", "due"),
    [
        ({"at": "09:00"}, "2026-03-02 08:59", "2026-03-02 09:00"),
        ({"at": "09:00"}, "2026-03-02 09:00", "2026-03-03 09:00"),
        ({"at": "09:00", "days": "mon-fri"}, "2026-03-06 09:00", "2026-03-09 09:00"),
        ({"at": "09:00", "days": "sat,sun"}, "2026-03-02 08:00", "2026-03-07 09:00"),
        ({"every": "6h", "at": "03:00"}, "2026-03-02 03:00", "2026-03-02 09:00"),
        ({"every": "6h", "at": "21:00"}, "2026-03-02 21:30", "2026-03-03 03:00"),
        # Clocks go forward in Berlin on 29 March 2026: nine there is eight UTC before, and seven from then on.
        ({"at": "09:00", "zone": "Europe/Berlin"}, "2026-03-27 08:30", "2026-03-28 08:00"),
        ({"at": "09:00", "zone": "Europe/Berlin"}, "2026-03-28 08:30", "2026-03-29 07:00"),
    ],
)
def test_times_of_day(utc, schedule, moment, due):
    assert make_schedule(**schedule).next_after(utc_ms(moment), None) == utc_ms(due)


def test_missed_calls_are_due_once():
    every = make_schedule("10m")
    assert every.next_after(1_000, None) == 1_600
    assert every.next_after(1_000, 1_000) == 1_600
    assert every.next_after(5_000, 1_000) == 5_200


def test_rate_limit_counts_events_per_author():
    rate = RateLimit.parse("2/min")
    assert [rate.acquire("a", event, 0) for event in ("1", "2", "2", "1")] == [0, 0, 0, 0]
    assert rate.acquire("b", "9", 0) == 0
    assert rate.acquire("a", "3", 20) == 40 and rate.should_notify("a", "3", 20, 40)
    assert not rate.should_notify("a", "4", 30, 30), "told once"
    assert rate.should_notify("a", "3", 20, 40), "and the same event is answered alike when it comes again"
    assert rate.acquire("a", "5", 60) == 0
    for number in range(5_000):
        rate.acquire(f"author {number}", "x", 100)
    assert len(rate._used) <= 1_000


# --- what may be acknowledged -----------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
def test_no_acknowledgement_before_handling(dice: random.Random):
    """Over lost connections and lost acknowledgements, in any order of handling."""
    intake, handled, acked, at_work, given_out = AckTracker(), set[int](), 0, set[int](), list[int]()
    told = acked
    for _ in range(200):
        match dice.randrange(5):
            case 0 | 1 if told < 60:
                told += 1
                if intake.received(told):
                    assert told not in handled, "nothing is handled twice in one process"
                    at_work.add(told)
                    given_out.append(told)
            case 2 | 3 if at_work:
                one = dice.choice(sorted(at_work))
                at_work.discard(one)
                handled.add(one)
                intake.mark_handled(one)
            case 4:
                if dice.random() < 0.3:
                    intake.reset()
                    told = acked
        if (upto := intake.take_ackable()) is not None:
            assert set(range(1, upto + 1)) <= handled
            if dice.random() < 0.7:  # else it gets lost, and the line with it
                acked = upto
                intake.mark_acknowledged(upto)
            else:
                intake.reset()
                told = acked
    assert len(given_out) == len(set(given_out))


# --- views of items ---------------------------------------------------------------------------------------------------


NOBODY: Any = None


def item(kind: str, **more) -> Item:
    known = {"seq": 1, "type": kind, "group": "g", "id": "e", "body": {}, "received_at": "2026-03-02T08:00:00.000Z"}
    return Item(**{**known, **more})


def test_unknown_items_are_plain_events():
    there = Group("g", "friends", NOBODY)
    found = event_from(item("telepathy", body={"thought": 1}), there, NOBODY)
    assert type(found) is Event and found.body == {"thought": 1} and str(found.group) == "friends"
    for kind in ("message", "reacted", "member_joined", "delivery", "join_request", "private_invitation"):
        assert event_from(item(kind), there, NOBODY).type == kind, "what is missing is empty"


def test_a_private_invitation_is_accepted_only_by_the_handler():
    answers = []

    class Api:
        async def answer_private_invitation(self, invitation, *, accept):
            answers.append((invitation.member.did, accept))

    bot = Bot()

    @bot.on_private_invitation
    async def invited(i: PrivateInvitation) -> None: ...

    told = {"body": {"member": "did:key:a", "nick": "alice", "state": "asked"}}
    event = event_from(item("private_invitation", **told), Group("g", "friends", NOBODY), cast(Any, Api()))
    assert isinstance(event, PrivateInvitation) and event.member.nick == "alice" and event.state == "asked"
    assert [one.name for one in bot._spec().handlers if one.match(event) is not None] == ["invited"] and not answers
    asyncio.run(event.accept())
    asyncio.run(event.decline())
    assert answers == [("did:key:a", True), ("did:key:a", False)]


def matched(bot: Bot, text: str, **more) -> list[str]:
    author = SchemaAuthor("did:key:a", "alice", bot=more.pop("by_bot", False))
    told = {"body": {"text": text}, "author": author, **more}
    event = event_from(item("message", **told), Group("g", "friends", NOBODY), NOBODY)
    return [one.name for one in bot._spec().handlers if one.match(event) is not None]


def test_event_matching():
    bot = Bot()

    @bot.command("go")
    async def go(m: Message): ...

    @bot.on_message
    async def every(m: Message): ...

    @bot.on_message(text="(?i)ping", group="friends")
    async def ping(m: Message): ...

    @bot.on_message(group="ops")
    async def elsewhere(m: Message): ...

    @bot.on_message(include=("self", "bots"))
    async def all_of_them(m: Message): ...

    everybody = ["every", "all_of_them"]
    assert matched(bot, "hello") == everybody
    assert matched(bot, "a PING") == ["every", "ping", "all_of_them"]
    assert matched(bot, "!go") == matched(bot, "!GO") == ["go"], "a command is for its handler alone"
    assert matched(bot, "!other") == matched(bot, "! go") == matched(bot, "!") == everybody
    assert matched(bot, "hello", by_bot=True) == ["all_of_them"]
    assert matched(bot, "hello", self=True) == ["all_of_them"]
    assert matched(bot, "", deleted=True) == []


@pytest.mark.parametrize("who", [{"role": "admin"}, {"allow": ["did:key:a"]}, {"verified": True}])
def test_unconfirmed_restricted_commands_are_refused(who):
    bot = Bot()
    bot.command("go", **who)(maybe)
    author = SchemaAuthor("did:key:a", "alice", verified=True)
    asked = {"body": {"text": "!go"}, "author": author}
    own, handed = (
        event_from(item("message", **asked, relayed_by=by), Group("g", "friends", NOBODY), NOBODY)
        for by in (None, SchemaAuthor("did:key:m", "mallory"))
    )
    go = bot._commands.by_name["go"]
    assert go.refusal(own, {own.author.did: "admin"}, 0.0) is None and not own.unconfirmed
    assert handed.unconfirmed and "send it again" in (go.refusal(handed, {handed.author.did: "admin"}, 0.0) or "")


def test_void_commands_are_not_answered():
    """Neither with the usage nor because they are too old."""
    bot = Bot()
    bot.command("go", max_age="1m")(maybe)
    void = event_from(item("message", body={"text": "!go"}, void=True), Group("g", "friends", NOBODY), NOBODY)
    nothing = cast("Dispatcher", SimpleNamespace())  # it has nothing to answer with, nor anything to do
    asyncio.run(Dispatcher._call(nothing, bot._commands.by_name["go"], Call(void, refusal="Usage: !go")))


def test_idempotency_keys_are_valid():
    assert valid_key("ci:event:handler:1") == "ci:event:handler:1"
    long = valid_key("x" * 129)
    assert len(long) <= 128 and long != valid_key("x" * 130) and valid_key("ä").isascii()


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_values_are_private_and_bounded(tmp_path):
    path = tmp_path / "bots" / "ci.db"
    with Store(path) as store:
        store.values["a"] = {"b": [1, None, "ä"]}
        store.values["n"] = 1
        del store.values["n"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for key, value in (("x" * 257, 1), ("", 1), ("x", "y" * 70_000), ("x", {1, 2}), ("x", float("nan"))):
            with pytest.raises(BadValue):
                store.values[key] = value
        with pytest.raises(KeyError):
            del store.values["n"]
    with Store(path) as store:
        assert dict(store.values) == {"a": {"b": [1, None, "ä"]}}
        with pytest.raises(KeyError):
            store.values["b"]


def test_foreign_files_are_not_overwritten(tmp_path):
    path = tmp_path / "ci.db"
    path.write_text("something else")
    with pytest.raises(StoreUnusable):
        Store(path)
    assert path.read_text() == "something else"
    (tmp_path / "link.db").symlink_to(path)
    with pytest.raises(StoreUnusable):
        Store(tmp_path / "link.db")


def test_dead_letters_are_unique_and_bounded(monkeypatch):
    letter = DeadLetter(0, "e1", "g", "message", "deploy", "ValueError: no", 4, 1.0, "")
    with Store(None) as store:
        store.add_dead_letter(letter)
        store.add_dead_letter(letter)
        assert [one.event for one in store.dead_letters()] == ["e1"] and not store.dead_letters(retry_only=True)
        assert store.request_retry(None) == 1 and store.dead_letters(retry_only=True)
        monkeypatch.setattr("zerochat.bot.store.DEAD_LETTERS_MAX", 10)
        for number in range(30):
            store.add_dead_letter(DeadLetter(0, f"f{number}", "g", "message", "deploy", "x" * 9_000, 4, 1.0, ""))
        assert [one.event for one in store.dead_letters()] == [f"f{number}" for number in range(20, 30)]
        assert store.dead_letters_dropped() == 21 and len(store.dead_letters()[0].error) == 2_000 < DEAD_LETTERS_MAX
        assert store.delete_dead_letters(None) == 10 and not store.dead_letters()
