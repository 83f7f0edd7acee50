"""The stream of whole agents over real sockets: named consumers, acknowledgements, credit, happenings and keys."""

import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.agent import test_agent
from tests.agent.test_agent import Person, meet, until
from zerochat.agent.api.client import AgentError, Client, connect
from zerochat.rpc import Item, Overflow, Taken

people = test_agent.people


class Reader:
    """A client that reads as a consumer, and notes what it is told."""

    opened: ClassVar[list[Client]] = []

    def __init__(self, person: Person, name: str, **options: Any) -> None:
        self.name, self.client = name, connect(person.places, name)
        self.opened.append(self.client)
        self.options = options
        self.items: list[Item] = []
        self.other: list[Any] = []
        self.subscribed = self.client.subscribe(consumer=name, **options)

    def read(self, wanted: Any, within_s: float = test_agent.DEADLINE_S) -> list[Item]:
        """Until `wanted(items)`."""
        while not wanted(self.items):
            news = self.client.next_news(within_s)
            assert news is not None, [(one.seq, one.type) for one in self.items]
            if isinstance(news.item, Item):
                self.items.append(news.item)
            else:
                self.other.append(news.item)
        return self.items

    def texts(self, count: int) -> list[str]:
        self.read(lambda items: sum(one.type == "message" for one in items) >= count)
        return [one.body["text"] for one in self.items if one.type == "message"]

    def ack(self) -> int:
        return self.client.ack(self.name, self.items[-1].seq).acked

    def close(self) -> None:
        self.client.close()


@pytest.fixture(autouse=True)
def _all_closed() -> Iterator[None]:
    yield
    while Reader.opened:
        Reader.opened.pop().close()


def quiet(client: Client) -> bool:
    """Nothing more comes: the agent has answered something that was asked later."""
    client.status()
    client.status()
    return client.next_news(0.0) is None


def test_a_consumer_goes_on_where_it_has_acknowledged(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    first = Reader(bob, "ci", types=["message"])
    assert first.subscribed.consumer is not None and first.subscribed.consumer.connected
    for n in range(6):
        alice.client.send("friends", f"a{n}")
    assert first.texts(6) == [f"a{n}" for n in range(6)]
    seqs = [one.seq for one in first.items]
    assert seqs == sorted(set(seqs)) and not any(one.replayed or one.redelivered or one.self for one in first.items)
    assert all(one.complete and one.attempt == 1 and one.author is not None for one in first.items)
    assert first.client.ack("ci", seqs[2]).acked == seqs[2]
    assert first.client.ack("ci", seqs[0]).acked == seqs[2], "it never goes back"
    with pytest.raises(AgentError) as refused:
        first.client.ack("ci", seqs[-1] + 1_000)
    assert refused.value.code == "NeverTold" and refused.value.retry == "never"
    first.close()

    # What was not acknowledged comes again, also from another agent process; the rest does not.
    again = Reader(bob, "ci", types=["message"])
    assert again.texts(3) == ["a3", "a4", "a5"]
    assert all(one.redelivered and one.attempt == 2 and one.replayed for one in again.items)
    again.close()
    until(lambda: not any(one.connected for one in bob.client.consumers()), "the end of the connection")
    bob.sleep()
    bob.wake()
    third = Reader(bob, "ci", types=["message"])
    assert third.texts(3) == ["a3", "a4", "a5"] and {one.attempt for one in third.items} == {3}
    assert third.ack() >= seqs[-1]
    alice.client.send("friends", "new")
    assert third.texts(4)[-1] == "new" and not third.items[-1].redelivered
    (info,) = bob.client.consumers()
    assert (info.consumer, info.connected, info.credit) == ("ci", True, 256)
    third.close()


def test_credit_bounds_what_is_on_its_way(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.new("friends")
    reader = Reader(alice, "slow", types=["message"], credit=2)
    for n in range(5):
        alice.client.send("friends", f"{n}")
    assert reader.texts(2) == ["0", "1"] and quiet(reader.client)
    reader.client.ack("slow", reader.items[0].seq)
    assert reader.texts(3) == ["0", "1", "2"] and quiet(reader.client)
    reader.ack()
    assert reader.texts(5) == ["0", "1", "2", "3", "4"]
    for wrong in (0, 4097):
        with pytest.raises(AgentError, match="1 to 4096 items"):
            reader.client.subscribe(consumer="slow", credit=wrong)
    reader.close()


def test_a_consumer_has_one_reader(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.new("friends")
    first = Reader(alice, "ci", types=["message"])
    alice.client.send("friends", "one")
    assert first.texts(1) == ["one"]
    with pytest.raises(AgentError) as refused:
        Reader(alice, "ci")
    assert (refused.value.code, refused.value.retry, refused.value.retry_after_s) == ("ConsumerBusy", "later", 1)
    with pytest.raises(AgentError, match="in use"):
        alice.client.forget_consumer("ci")
    second = Reader(alice, "ci", types=["message"], take=True)
    assert second.texts(1) == ["one"] and second.items[0].attempt == 2
    alice.client.send("friends", "two")
    assert second.texts(2) == ["one", "two"]
    news = first.client.next_news(test_agent.DEADLINE_S)
    assert news is not None and news.item == Taken("ci") and quiet(first.client)
    second.close()
    until(lambda: not alice.client.consumers()[0].connected, "the end of the connection")
    alice.client.forget_consumer("ci")
    assert alice.client.consumers() == []
    for name in ("", "CI", "a b", "ü", "x" * 65, "a/b"):
        with pytest.raises(AgentError, match="no name for a consumer"):
            alice.client.subscribe(consumer=name)
    with pytest.raises(AgentError, match="no consumer called"):
        alice.client.ack("ci", 1)
    for n in range(64):
        alice.client.subscribe(consumer=f"c{n}")
    with pytest.raises(AgentError, match="64 consumers already"):
        alice.client.subscribe(consumer="c64")


def test_where_a_consumer_begins(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.new("friends")
    for text in ("old", "older"):
        alice.client.send("friends", text)
    new = Reader(alice, "new", types=["message"])
    alice.client.send("friends", "now")
    assert new.texts(1) == ["now"]
    new.close()
    start = Reader(alice, "new", since="start", types=["message"], take=True)
    assert start.texts(3) == ["old", "older", "now"]
    assert [one.replayed for one in start.items] == [True] * 3
    at = start.items[1].seq
    start.close()
    behind = Reader(alice, "new", since=at, types=["message"], take=True)
    assert behind.texts(1) == ["now"]
    behind.close()
    end = Reader(alice, "new", since="now", types=["message"], take=True)
    alice.client.send("friends", "last")
    assert end.texts(1) == ["last"]
    end.close()


def test_what_happens_besides_the_log_is_in_the_stream(people: Any) -> None:
    alice, bob = people("alice", "bob")
    alice.client.new("friends")
    reader = Reader(alice, "ci")
    bob.client.subscribe()
    invitation = alice.client.invite("friends")
    bob.client.join(invitation.url)
    until(lambda: any(g.state == "active" for g in bob.client.groups()), "joining")
    sent = alice.client.send("friends", "hello")
    alice.client.wait("friends", sent.id)

    def delivered(items: list[Item]) -> bool:
        found = [one for one in items if one.type == "delivery"]
        return any({"id": sent.id, "position": sent.position} in one.body["events"] for one in found)

    items = reader.read(delivered)
    used = next(one for one in items if one.type == "invite_used")
    assert used.body == {"nick": "bob", "uses_left": 0, "invitation": invitation.id}
    assert used.id == f"h{used.seq}" and used.author is None
    delivery = [one for one in items if one.type == "delivery"][-1]
    assert delivery.body["nick"] == "bob" and delivery.body["upto"] >= sent.position <= delivery.body["all"]
    assert next(one for one in items if one.id == sent.id).self
    seqs = [one.seq for one in items]
    assert seqs == sorted(set(seqs))
    told = [(one.seq, one.id) for one in items]
    reader.close()
    # The same comes again, in the same order, for it is on disk.
    alice.sleep()
    alice.wake()
    again = Reader(alice, "ci")
    assert [(one.seq, one.id) for one in again.read(lambda items: len(items) >= len(told))][: len(told)] == told
    again.ack()
    again.close()
    assert not [one for one in again.other if isinstance(one, Overflow)]


def test_errors_say_whether_to_ask_again(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (alice,) = people("alice")
    alice.client.new("friends")
    monkeypatch.setattr("zerochat.agent.api.delivery_waits.WAITS_MAX", 0)
    for method, params, hint in (
        ("wait", {"group": "friends", "id": alice.client.send("friends", "x").id}, ("Overloaded", "later", 1)),
        ("send", {"group": "nobody", "text": "x"}, ("UnknownGroup", "never", 0)),
    ):
        with pytest.raises(AgentError) as refused:
            alice.client.call(method, **params)
        assert (refused.value.code, refused.value.retry, refused.value.retry_after_s) == hint


def test_a_key_is_used_once(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.new("friends")
    alice.client.new("others")
    first = alice.client.send("friends", "deploy", key="k1")
    again = alice.client.send("friends", "deploy", key="k1")
    assert not first.again and again.again and (again.id, again.position) == (first.id, first.position)
    assert alice.client.send("others", "deploy", key="k1").id != first.id
    with pytest.raises(AgentError) as refused:
        alice.client.send("friends", "something else", key="k1")
    assert refused.value.code == "KeyReused" and refused.value.data["id"] == first.id
    for wrong in ("", "ü", "x" * 129, "a\nb"):
        with pytest.raises(AgentError, match="1 to 128 printable ASCII"):
            alice.client.send("friends", "x", key=wrong)
    # One that was refused is still to be had, and so it is with everything that can be said.
    with pytest.raises(AgentError):
        alice.client.edit("friends", "zzzzzzzz", "y", key="k2")
    edited = alice.client.edit("friends", first.id, "deploy!", key="k2")
    assert alice.client.edit("friends", first.id, "deploy!", key="k2").id == edited.id
    reacted = alice.client.react("friends", first.id, "👍", key="k3")
    assert alice.client.react("friends", first.id, "👍", key="k3").id == reacted.id
    topic = alice.client.topic("friends", "t", key="k4")
    alice.sleep()
    alice.wake()
    assert alice.client.topic("friends", "t", key="k4").id == topic.id
    assert alice.client.send("friends", "deploy", key="k1").again
    assert alice.texts() == ["deploy!"] and alice.texts("others") == ["deploy"]


def test_a_file_under_a_key_is_sent_once_by_all_who_ask_at_once(people: Any, tmp_path: Any) -> None:
    (alice,) = people("alice")
    alice.client.new("friends")
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(3_000_000))
    answers = []

    def ask() -> None:
        with connect(alice.places, "one of them") as client:
            answers.append(client.attach("friends", [str(path)], "file", key="f"))

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for one in asking:
        one.start()
    for one in asking:
        one.join(test_agent.DEADLINE_S)
    assert len({one.id for one in answers}) == 1 and sorted(one.again for one in answers) == [False, True, True, True]
    assert alice.texts() == ["file"]
