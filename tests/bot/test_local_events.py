"""Timers that are set at run time, and webhooks."""

import asyncio
import hashlib
import hmac
import json
import urllib.error
import urllib.request

import pytest

from tests.support.agents import until
from tests.support.bot_processes import running
from zerochat import Bot, Message
from zerochat.bot import Failure, TimerEvent, WebhookEvent
from zerochat.bot import local_events as module
from zerochat.bot.bot import BadBot
from zerochat.bot.local_events import BadTimer, LocalEvents, TooManyLocalEvents
from zerochat.bot.store import BadValue, Store
from zerochat.bot.webhook_address import BadWebhook
from zerochat.bot.webhooks import read_secret
from zerochat.testing import Group, run


def test_timers_survive_a_kill_and_send_once():
    bot = Bot("robo", retries=("1s",))
    heard: list[tuple[str, object, int]] = []

    @bot.command
    async def remind(m: Message, when: str, *, text: str):
        bot.set_timer(text, when, data=m.group.id)

    @bot.on_timer
    async def due(t: TimerEvent):
        heard.append((t.name, t.data, t.attempt))
        if t.name == "tick":
            return
        await bot.send(t.data, f"⏰ {t.name}")
        if t.attempt == 1:
            raise RuntimeError("once")

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "!remind 20m bread")
            await group.send("alice", "!remind 2h milk")
            await group.settle()
            assert [one.name for one in bot.timers] == ["bread", "milk"]
            bot.set_timer("tick", "10m", every="30m")
            await group.advance("21m")
            await group.kill("robo")
            await group.advance("3h")
            await group.start("robo")
            await group.advance("10s")
            await group.settle()
            assert await group.texts(by="robo") == ["⏰ bread", "⏰ milk"]
            assert [one.name for one in bot.timers] == ["tick"]
            assert bot.cancel_timer("tick") and not bot.cancel_timer("tick")
            ticks = len(heard)
            bot.set_timer("tick", "1h")
            bot.set_timer("tick", "2h")
            await group.advance("90m")
            assert len(heard) == ticks
            await group.advance("31m")
            assert len(heard) == ticks + 1 and not bot.timers

    run(scenario())
    assert [name for name, *_ in heard].count("tick") == 1 + 1 + 1, "one for those that were missed"
    assert [attempt for name, _, attempt in heard if name == "milk"] == [1, 2]


def test_timers_are_bounded_and_checked(monkeypatch):
    monkeypatch.setattr(module, "LOCAL_EVENTS_MAX", 2)
    with Store(None) as store:
        stored = LocalEvents(store)
        for name in ("a", "b", "a"):
            stored.put(name, "timer", 1.0, 1.0, 0.0, {"name": name, "data": None})
        with pytest.raises(TooManyLocalEvents):
            stored.put("c", "timer", 1.0, 1.0, 0.0, {})
        with pytest.raises(BadValue):
            stored.put("a", "timer", 1.0, 1.0, 0.0, {"data": object()})
        first, second = stored.rows()
        stored.put("a", "timer", 5.0, 1.0, 0.0, {"name": "a", "data": 1})
        stored.handled(first, 0.0)
        stored.handled(second, 0.0)
        assert [(one.id, one.due) for one in stored.rows()] == [("a", 5.0)], "it was replaced while it ran"


def test_repeated_deliveries_are_forgotten_last(monkeypatch):
    monkeypatch.setattr(module, "DELIVERIES_MAX", 2)
    with Store(None) as store:
        put = LocalEvents(store).put
        assert [put(one, "webhook", 0.0, 0.0, 0.0, {}, delivery=one) for one in "abbacb"] == [1, 1, 0, 0, 1, 0]
        monkeypatch.setattr(module, "LOCAL_EVENTS_MAX", 3)
        with pytest.raises(TooManyLocalEvents):
            put("d", "webhook", 0.0, 0.0, 0.0, {}, delivery="d")
        assert not put("c", "webhook", 0.0, 0.0, 0.0, {}, delivery="c"), "it is here, although no more fit"
        monkeypatch.setattr(module, "LOCAL_EVENTS_MAX", 4)
        assert put("d", "webhook", 0.0, 0.0, 0.0, {}, delivery="d"), "it was not stored"
        assert put("b", "webhook", 0.0, 0.0, 0.0, {}, delivery="b"), "forgotten"


def post(address, path: str, body: bytes, **headers: str) -> int:
    request = urllib.request.Request(f"http://{address[0]}:{address[1]}/{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_webhooks_become_events(people, monkeypatch, tmp_path):
    (bob,) = people("bob")
    bob.client.create_group("friends")
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    secret.chmod(0o600)
    bot = Bot("ci", profile="bob", retries=(), webhooks="127.0.0.1:0", webhook_secret=secret)
    failures: list[Failure] = []

    @bot.on_webhook("build")
    async def build(w: WebhookEvent):
        await bot.send("friends", f"build {w.json()['number']} of {w.headers['content-type']}")

    @bot.on_webhook("deploy")
    async def deploy(w: WebhookEvent): ...

    @bot.on_dead_letter
    async def failed(f: Failure):
        failures.append(f)

    with running(bot) as ended:
        until(lambda: bot.webhook_address, "the listener")
        address, body = bot.webhook_address, json.dumps({"number": 7}).encode()
        bearer = {"Authorization": "Bearer 0123456789abcdef", "Content-Type": "text/x"}
        for wrong in ({}, {"Authorization": "Bearer 0123456789abcdeX"}, {"X-Hub-Signature-256": "sha256=é"}):
            assert post(address, "build", body, **wrong) == 401
        assert post(address, "other", body, **bearer) == 404
        assert post(address, "build", b"\xff", **bearer) == 400
        assert post(address, "build", b"x" * 70_000, **bearer) == 413
        assert post(address, "build", b"not JSON", **bearer) == 202
        assert post(address, "build", body, **bearer) == 202
        until(lambda: "build 7 of text/x" in bob.texts(), "the message")
        body = b'{"number": 8}'
        signature = "sha256=" + hmac.new(b"0123456789abcdef", body, hashlib.sha256).hexdigest()
        assert post(address, "build", body, **{"X-Hub-Signature-256": signature, "Content-Type": "a/b"}) == 202
        until(lambda: "build 8 of a/b" in bob.texts(), "the signed one")
        until(lambda: failures, "the dead letter")
        for number, name in enumerate(("X-GitHub-Delivery", "Idempotency-Key", "webhook-id", "X-Request-Id"), 9):
            body = json.dumps({"number": number}).encode()
            answers = [post(address, "build", body, **bearer, **{name: "é 1"}) for _ in range(2)]
            assert answers == ([202, 202] if name == "X-Request-Id" else [202, 200])
            assert post(address, "build", body, **bearer, **{name: "2"}) == 202, "another delivery"
        until(lambda: bob.texts().count("build 12 of text/x") == 3, "the last ones")
        assert [bob.texts().count(f"build {number} of text/x") for number in (9, 10, 11)] == [2, 2, 2]
        assert post(address, "deploy", body, **bearer, **{"webhook-id": "2"}) == 202, "the same name on another path"
        monkeypatch.setattr(module, "LOCAL_EVENTS_MAX", 0)
        assert post(address, "build", body, **bearer) == 503
    assert not ended and failures[0].event.text == "not JSON"


def test_webhooks_without_a_safe_secret_or_address_are_refused(tmp_path):
    secret = tmp_path / "secret"
    with pytest.raises(BadBot, match="needs a file with a secret"):
        Bot(webhooks="127.0.0.1:80")
    for address in ("0.0.0.0:80", "example.org:80", "127.0.0.1", "127.0.0.1:99999", "[2001:db8::1]:80"):
        with pytest.raises(BadWebhook, match="loopback"):
            Bot(webhooks=address, webhook_secret=secret)
    with pytest.raises(BadWebhook, match=r"no such file or directory\. To make a secret"):
        read_secret(secret)
    secret.write_text("0123456789abcdef")
    secret.chmod(0o644)
    with pytest.raises(BadWebhook, match="chmod 600"):
        read_secret(secret)
    secret.chmod(0o600)
    secret.write_text("short")
    with pytest.raises(BadWebhook, match="16 to 4096 bytes"):
        read_secret(secret)


def test_webhooks_need_an_address():
    bot = Bot("robo")

    @bot.on_webhook("build")
    async def build(w: WebhookEvent): ...

    async def scenario():
        async with Group(2, bots=[bot]):
            await asyncio.sleep(1)

    with pytest.raises(BadBot, match="needs an address"):
        run(scenario())


def test_a_timer_due_while_the_bot_stops_is_handled_later():
    bot, heard = Bot("robo", retries=()), []

    @bot.command
    async def slow(m: Message):
        bot.set_timer("soon", "3s")
        await asyncio.sleep(8)

    @bot.on_timer
    async def due(t: TimerEvent):
        heard.append(t.name)

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "!slow")
            await group.advance("1s")
            await group.stop("robo")
            assert heard == []
            await group.start("robo")
            await group.advance("10s")
            assert heard == ["soon"] and not bot.timers

    run(scenario())


def test_a_cancelled_timer_set_again_has_its_new_time():
    bot, heard = Bot("robo", retries=()), []

    @bot.on_timer
    async def due(t: TimerEvent):
        heard.append(t.data)
        if t.data == "old":
            bot.cancel_timer("one")
            bot.set_timer("one", "10s", data="from its handler")

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            bot.set_timer("one", "1h", data="never")
            await group.advance("1s")
            assert bot.cancel_timer("one")
            bot.set_timer("one", "10s", data="old")
            await group.advance("11s")
            assert heard == ["old"]
            await group.advance("11s")
            assert heard == ["old", "from its handler"] and not bot.timers

    run(scenario())


def test_local_events_do_not_wait_for_a_thread_in_their_timeout():
    bot, running, most, heard = Bot("robo", retries=(), timeout="5s"), set(), [0], []

    @bot.on_timer
    async def due(t: TimerEvent):
        running.add(t.name)
        most[0] = max(most[0], len(running))
        await asyncio.sleep(4)
        running.discard(t.name)
        heard.append(t.name)

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            for number in range(20):
                bot.set_timer(f"{number:02}", "1s")
            await group.advance("1m")
            assert sorted(heard) == [f"{number:02}" for number in range(20)] and most[0] == module.RUNNING_MAX

    run(scenario())
    with pytest.raises(BadTimer, match="Invalid timer: 'soon' is not a duration"):
        bot.set_timer("late", "soon")
    with pytest.raises(BadValue, match="once a second"):
        bot.set_timer("fast", "1s", every=0.001)
    with pytest.raises(BadValue, match="larger than"):
        bot.set_timer("long", "1s", data="x" * 70_000)
