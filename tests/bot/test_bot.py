"""The parts of a bot that need no agent: arguments, times, what may be acknowledged, who may ask, what is kept."""

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
from zerochat.bot.acknowledgement import Intake
from zerochat.bot.arguments import BadArguments, BadHandler, parameters_of, read_arguments, usage_of
from zerochat.bot.bot import BadBot, NotRunning
from zerochat.bot.dispatcher import Work
from zerochat.bot.events import Event, Group, event_of
from zerochat.bot.handlers import Call
from zerochat.bot.outgoing import shortened
from zerochat.bot.schedule import Rate, schedule_of, seconds_of
from zerochat.bot.store import DEAD_MAX, BadValue, DeadLetter, Store, StoreUnusable
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
def test_words_become_arguments(handler, line, expected):
    assert read_arguments(parameters_of(handler), line) == expected


@pytest.mark.parametrize(
    ("handler", "line", "why"),
    [
        (deploy, "", "env is missing"),
        (deploy, "prod", "env is one of test, live, and not prod"),
        (deploy, "test x", "count is a whole number, and not x"),
        (deploy, "test 1 perhaps", "dry is yes or no, and not perhaps"),
        (deploy, "test 1 yes more", "there is more than it takes"),
        (tell, "bob", "text is missing"),
        (add, "nan", "numbers is a number, and not nan"),
        (add, "1" * 10_000, "numbers is a number, and not "),
    ],
)
def test_what_does_not_fit_is_said(handler, line, why):
    with pytest.raises(BadArguments) as error:
        read_arguments(parameters_of(handler), line)
    assert error.value.sentence().startswith(why) and len(error.value.sentence()) < 120


def test_a_usage_is_read_off_a_signature():
    assert usage_of(parameters_of(deploy)) == "test|live [COUNT] [DRY]"
    assert usage_of(parameters_of(tell)) == "WHO TEXT..."
    assert usage_of(parameters_of(add)) == "[NUMBERS...]"


@pytest.mark.slow
@given(st.text(max_size=200))
def test_whatever_is_typed_is_read_or_refused(line):
    for handler in (deploy, tell, add, maybe):
        with contextlib.suppress(BadArguments):
            args, named = read_arguments(parameters_of(handler), line)
            assert all(isinstance(one, str | int | float | None) for one in (*args, *named.values()))


def takes_list(m, names: list[str]): ...
def takes_more(m, *words: str, last: str): ...
def takes_anything(m, **options: str): ...
def takes_unknown(m, thing: "Nowhere"): ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("handler", [takes_list, takes_more, takes_anything, takes_unknown, lambda: None])
def test_a_handler_that_nobody_could_call_is_refused_where_it_is_written(handler):
    with pytest.raises(BadHandler):
        Bot().command("x")(handler)


MISTAKES = [
    lambda bot: bot.command("Not OK")(maybe),
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
]


def test_a_mistake_in_a_decorator_is_said_at_once():
    for mistake in MISTAKES:
        with pytest.raises(BadHandler):
            mistake(Bot())


def test_a_bot_that_cannot_be_is_refused():
    for mistake in ({"name": "My Bot"}, {"name": ""}, {"prefix": ""}, {"retries": ["soon"]}):
        with pytest.raises(BadBot):
            Bot(**mistake)


def test_what_needs_an_agent_says_so():
    with pytest.raises(NotRunning):
        _ = Bot().sync


# --- times ------------------------------------------------------------------------------------------------------------


def test_spans():
    assert [seconds_of(one) for one in ("30s", "5m", "1.5h", "2d", 7)] == [30, 300, 5400, 172_800, 7]
    for bad in ("", "5 parsecs", "-1s", "0s", "1000000d"):
        with pytest.raises(ValueError, match=r"is not"):
            seconds_of(bad)


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
    assert schedule_of(**schedule).after(utc_ms(moment), None) == utc_ms(due)


def test_what_was_missed_again_and_again_is_due_once():
    every = schedule_of("10m")
    assert every.after(1_000, None) == 1_600
    assert every.after(1_000, 1_000) == 1_600
    assert every.after(5_000, 1_000) == 5_200


def test_a_rate_is_for_each_author_and_an_event_is_counted_once():
    rate = Rate.parse("2/min")
    assert [rate.wait_s("a", event, 0) for event in ("1", "2", "2", "1")] == [0, 0, 0, 0]
    assert rate.wait_s("b", "9", 0) == 0
    assert rate.wait_s("a", "3", 20) == 40 and rate.tells("a", "3", 20, 40)
    assert not rate.tells("a", "4", 30, 30), "told once"
    assert rate.tells("a", "3", 20, 40), "and the same event is answered alike when it comes again"
    assert rate.wait_s("a", "5", 60) == 0
    for number in range(5_000):
        rate.wait_s(f"author {number}", "x", 100)
    assert len(rate._taken) <= 1_000


# --- what may be acknowledged -----------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
def test_nothing_is_acknowledged_before_it_is_handled(dice: random.Random):
    """Over lost connections and lost acknowledgements, in any order of handling."""
    intake, handled, acked, at_work, given_out = Intake(), set[int](), 0, set[int](), list[int]()
    told = acked
    for _ in range(200):
        match dice.randrange(5):
            case 0 | 1 if told < 60:
                told += 1
                if intake.told(told):
                    assert told not in handled, "nothing is handled twice in one process"
                    at_work.add(told)
                    given_out.append(told)
            case 2 | 3 if at_work:
                one = dice.choice(sorted(at_work))
                at_work.discard(one)
                handled.add(one)
                intake.handled(one)
            case 4:
                if dice.random() < 0.3:
                    intake.reconnected()
                    told = acked
        if (upto := intake.ready()) is not None:
            assert set(range(1, upto + 1)) <= handled
            if dice.random() < 0.7:  # else it gets lost, and the line with it
                acked = upto
                intake.acknowledged(upto)
            else:
                intake.reconnected()
                told = acked
    assert len(given_out) == len(set(given_out))


# --- views of items ---------------------------------------------------------------------------------------------------


NOBODY: Any = None


def item(kind: str, **more) -> Item:
    known = {"seq": 1, "type": kind, "group": "g", "id": "e", "body": {}, "received_at": "2026-03-02T08:00:00.000Z"}
    return Item(**{**known, **more})


def test_an_item_of_a_kind_or_a_body_that_nobody_knows_is_an_event():
    there = Group("g", "friends", NOBODY)
    found = event_of(item("telepathy", body={"thought": 1}), there, NOBODY)
    assert type(found) is Event and found.body == {"thought": 1} and str(found.group) == "friends"
    for kind in ("message", "reacted", "member_joined", "delivery", "request"):
        assert event_of(item(kind), there, NOBODY).type == kind, "what is missing is empty"


def matched(bot: Bot, text: str, **more) -> list[str]:
    author = SchemaAuthor("did:key:a", "alice", bot=more.pop("by_bot", False))
    told = {"body": {"text": text}, "author": author, **more}
    event = event_of(item("message", **told), Group("g", "friends", NOBODY), NOBODY)
    return [one.name for one in bot._plan().handlers if one.match(event) is not None]


def test_who_is_called_for_what():
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
def test_nobody_can_be_made_to_have_asked_for_what_not_all_may_ask(who):
    bot = Bot()
    bot.command("go", **who)(maybe)
    author = SchemaAuthor("did:key:a", "alice", verified=True)
    asked = {"body": {"text": "!go"}, "author": author}
    own, handed = (
        event_of(item("message", **asked, vouched=by), Group("g", "friends", NOBODY), NOBODY)
        for by in (None, SchemaAuthor("did:key:m", "mallory"))
    )
    go = bot._commands.known["go"]
    assert go.refused(own, "admin", 0.0) is None and not own.vouched
    assert handed.vouched and "Say it again" in (go.refused(handed, "admin", 0.0) or "")


def test_who_could_not_write_is_given_no_answer_by_a_command():
    """Not even how it is used, or that it was a while ago."""
    bot = Bot()
    bot.command("go", max_age="1m")(maybe)
    void = event_of(item("message", body={"text": "!go"}, void=True), Group("g", "friends", NOBODY), NOBODY)
    nothing = cast("Work", SimpleNamespace())  # it has nothing to answer with, nor anything to do
    asyncio.run(Work._call(nothing, bot._commands.known["go"], Call(void, answer="Usage: !go")))


def test_keys_are_what_the_agent_takes():
    assert shortened("ci:event:handler:1") == "ci:event:handler:1"
    long = shortened("x" * 129)
    assert len(long) <= 128 and long != shortened("x" * 130) and shortened("ä").isascii()


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_values_are_on_disk_for_nobody_else_and_bounded(tmp_path):
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


def test_what_is_no_store_is_left_alone(tmp_path):
    path = tmp_path / "ci.db"
    path.write_text("something else")
    with pytest.raises(StoreUnusable):
        Store(path)
    assert path.read_text() == "something else"
    (tmp_path / "link.db").symlink_to(path)
    with pytest.raises(StoreUnusable):
        Store(tmp_path / "link.db")


def test_dead_letters_are_kept_once_and_their_number_is_bounded(monkeypatch):
    letter = DeadLetter(0, "e1", "g", "message", "deploy", "ValueError: no", 4, 1.0, "")
    with Store(None) as store:
        store.bury(letter)
        store.bury(letter)
        assert [one.event for one in store.dead()] == ["e1"] and not store.dead(again=True)
        assert store.want(None) == 1 and store.dead(again=True)
        monkeypatch.setattr("zerochat.bot.store.DEAD_MAX", 10)
        for number in range(30):
            store.bury(DeadLetter(0, f"f{number}", "g", "message", "deploy", "x" * 9_000, 4, 1.0, ""))
        assert [one.event for one in store.dead()] == [f"f{number}" for number in range(20, 30)]
        assert store.gone() == 21 and len(store.dead()[0].error) == 2_000 < DEAD_MAX
        assert store.forget(None) == 10 and not store.dead()
