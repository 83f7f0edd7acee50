"""Event streams of whole agents: named consumers, acknowledgements, credit, idempotency keys."""

import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.support import agents
from tests.support.agents import Person, meet, until
from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_protocol import AgentError
from zerochat.rpc import ConsumerTakenNotification, Item, OverflowNotification

people = agents.people


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

    def read(self, wanted: Any, within_s: float = agents.DEADLINE_S) -> list[Item]:
        """Until `wanted(items)`."""
        while not wanted(self.items):
            news = self.client.next_notification(within_s)
            assert news is not None, [(one.seq, one.type) for one in self.items]
            if isinstance(news.params, Item):
                self.items.append(news.params)
            else:
                self.other.append(news.params)
        return self.items

    def texts(self, count: int) -> list[str]:
        self.read(lambda items: sum(one.type == "message" for one in items) >= count)
        return [one.body["text"] for one in self.items if one.type == "message"]

    def ack(self) -> int:
        return self.client.acknowledge(self.name, self.items[-1].seq).acked

    def close(self) -> None:
        self.client.close()


@pytest.fixture(autouse=True)
def _all_closed() -> Iterator[None]:
    yield
    while Reader.opened:
        Reader.opened.pop().close()


def quiet(client: Client) -> bool:
    """Nothing more comes: the agent has answered something that was asked later."""
    client.get_status()
    client.get_status()
    return client.next_notification(0.0) is None


def test_a_consumer_resumes_after_its_last_acknowledgement(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    first = Reader(bob, "ci", types=["message"])
    assert first.subscribed.consumer is not None and first.subscribed.consumer.connected
    for n in range(6):
        alice.client.send_message("friends", f"a{n}")
    assert first.texts(6) == [f"a{n}" for n in range(6)]
    seqs = [one.seq for one in first.items]
    assert seqs == sorted(set(seqs)) and not any(one.replayed or one.redelivered or one.self for one in first.items)
    assert all(one.complete and one.attempt == 1 and one.author is not None for one in first.items)
    assert first.client.acknowledge("ci", seqs[2]).acked == seqs[2]
    assert first.client.acknowledge("ci", seqs[0]).acked == seqs[2], "it never goes back"
    with pytest.raises(AgentError) as refused:
        first.client.acknowledge("ci", seqs[-1] + 1_000)
    assert refused.value.code == "NeverSent" and refused.value.retry == "never"
    first.close()

    # What was not acknowledged comes again, also from another agent process; the rest does not.
    again = Reader(bob, "ci", types=["message"])
    assert again.texts(3) == ["a3", "a4", "a5"]
    assert all(one.redelivered and one.attempt == 2 and one.replayed for one in again.items)
    again.close()
    until(lambda: not any(one.connected for one in bob.client.list_consumers()), "the end of the connection")
    bob.sleep()
    bob.wake()
    third = Reader(bob, "ci", types=["message"])
    assert third.texts(3) == ["a3", "a4", "a5"] and {one.attempt for one in third.items} == {3}
    assert third.ack() >= seqs[-1]
    alice.client.send_message("friends", "new")
    assert third.texts(4)[-1] == "new" and not third.items[-1].redelivered
    (info,) = bob.client.list_consumers()
    assert (info.consumer, info.connected, info.credit) == ("ci", True, 256)
    third.close()


def test_credit_bounds_items_in_flight(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.create_group("friends")
    reader = Reader(alice, "slow", types=["message"], credit=2)
    for n in range(5):
        alice.client.send_message("friends", f"{n}")
    assert reader.texts(2) == ["0", "1"] and quiet(reader.client)
    reader.client.acknowledge("slow", reader.items[0].seq)
    assert reader.texts(3) == ["0", "1", "2"] and quiet(reader.client)
    reader.ack()
    assert reader.texts(5) == ["0", "1", "2", "3", "4"]
    for wrong in (0, 4097):
        with pytest.raises(AgentError, match="between 1 and 4096"):
            reader.client.subscribe(consumer="slow", credit=wrong)
    reader.close()


def test_a_consumer_has_one_reader(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.create_group("friends")
    first = Reader(alice, "ci", types=["message"])
    alice.client.send_message("friends", "one")
    assert first.texts(1) == ["one"]
    with pytest.raises(AgentError) as refused:
        Reader(alice, "ci")
    assert (refused.value.code, refused.value.retry, refused.value.retry_after_s) == ("ConsumerBusy", "later", 1)
    with pytest.raises(AgentError, match="Another program uses"):
        alice.client.delete_consumer("ci")
    second = Reader(alice, "ci", types=["message"], take_over=True)
    assert second.texts(1) == ["one"] and second.items[0].attempt == 2
    alice.client.send_message("friends", "two")
    assert second.texts(2) == ["one", "two"]
    news = first.client.next_notification(agents.DEADLINE_S)
    assert news is not None and news.params == ConsumerTakenNotification("ci") and quiet(first.client)
    for write in (
        lambda: first.client.acknowledge("ci", first.items[0].seq),
        lambda: first.client.send_message("friends", "from the past", key="k"),
        lambda: first.client.call("set_topic", group="friends", text="from the past"),
        lambda: first.client.send_files("friends", ["/nowhere"]),
        lambda: alice.client.acknowledge("ci", second.items[0].seq),
    ):
        with pytest.raises(AgentError) as refused:
            write()
        assert refused.value.code == "ConsumerTaken"
    assert first.client.list_groups() and second.client.list_consumers()[0].acked < second.items[0].seq
    second.close()
    until(lambda: not alice.client.list_consumers()[0].connected, "the end of the connection")
    alice.client.delete_consumer("ci")
    assert alice.client.list_consumers() == []
    for name in ("", "CI", "a b", "ü", "x" * 65, "a/b"):
        with pytest.raises(AgentError, match="not a valid consumer name"):
            alice.client.subscribe(consumer=name)
    with pytest.raises(AgentError, match="no consumer called"):
        alice.client.acknowledge("ci", 1)
    for n in range(64):
        alice.client.subscribe(consumer=f"c{n}")
    with pytest.raises(AgentError, match="already 64 consumers"):
        alice.client.subscribe(consumer="c64")


def test_where_a_consumer_begins(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.create_group("friends")
    for text in ("old", "older"):
        alice.client.send_message("friends", text)
    new = Reader(alice, "new", types=["message"])
    alice.client.send_message("friends", "now")
    assert new.texts(1) == ["now"]
    new.close()
    start = Reader(alice, "new", since="start", types=["message"], take_over=True)
    assert start.texts(3) == ["old", "older", "now"]
    assert [one.replayed for one in start.items] == [True] * 3
    at = start.items[1].seq
    start.close()
    behind = Reader(alice, "new", since=at, types=["message"], take_over=True)
    assert behind.texts(1) == ["now"]
    behind.close()
    end = Reader(alice, "new", since="now", types=["message"], take_over=True)
    alice.client.send_message("friends", "last")
    assert end.texts(1) == ["last"]
    end.close()


def test_notifications_outside_the_log_are_in_the_stream(people: Any) -> None:
    alice, bob = people("alice", "bob")
    alice.client.create_group("friends")
    reader = Reader(alice, "ci")
    bob.client.subscribe()
    invitation = alice.client.create_invitation("friends")
    bob.client.join_group(invitation.url)
    until(lambda: any(g.state == "active" for g in bob.client.list_groups()), "joining")
    sent = alice.client.send_message("friends", "hello")
    alice.client.wait_for_delivery("friends", sent.id)

    def delivered(items: list[Item]) -> bool:
        found = [one for one in items if one.type == "delivery"]
        return any({"id": sent.id, "position": sent.position} in one.body["events"] for one in found)

    items = reader.read(delivered)
    used = next(one for one in items if one.type == "invitation_used")
    assert used.body == {"nick": "bob", "uses_left": 0, "invitation": invitation.id, "name": ""}
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
    assert not [one for one in again.other if isinstance(one, OverflowNotification)]


def test_errors_indicate_whether_to_retry(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (alice,) = people("alice")
    alice.client.create_group("friends")
    monkeypatch.setattr("zerochat.agent.api.delivery_waits.WAITS_MAX", 0)
    for method, params, hint in (
        (
            "wait_for_delivery",
            {"group": "friends", "id": alice.client.send_message("friends", "x").id},
            ("Overloaded", "later", 1),
        ),
        ("send_message", {"group": "nobody", "text": "x"}, ("UnknownGroup", "never", 0)),
    ):
        with pytest.raises(AgentError) as refused:
            alice.client.call(method, **params)
        assert (refused.value.code, refused.value.retry, refused.value.retry_after_s) == hint


def test_a_key_is_used_once(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.create_group("friends")
    alice.client.create_group("others")
    first = alice.client.send_message("friends", "deploy", key="k1")
    again = alice.client.send_message("friends", "deploy", key="k1")
    assert not first.duplicate and again.duplicate and (again.id, again.position) == (first.id, first.position)
    assert alice.client.send_message("others", "deploy", key="k1").id != first.id
    counted = alice.client.call("send_message", group="friends", text="deploy", key="k1", hops=3)
    assert counted.duplicate, "the same message, as the answer to another event"
    with pytest.raises(AgentError) as refused:
        alice.client.send_message("friends", "something else", key="k1")
    assert refused.value.code == "KeyReused" and refused.value.data["id"] == first.id
    for wrong in ("", "ü", "x" * 129, "a\nb"):
        with pytest.raises(AgentError, match="1 to 128 printable ASCII"):
            alice.client.send_message("friends", "x", key=wrong)
    # One that was refused is still to be had, and so it is with everything that can be said.
    with pytest.raises(AgentError):
        alice.client.edit_message("friends", "zzzzzzzz", "y", key="k2")
    edited = alice.client.edit_message("friends", first.id, "deploy!", key="k2")
    assert alice.client.edit_message("friends", first.id, "deploy!", key="k2").id == edited.id
    reacted = alice.client.react("friends", first.id, "👍", key="k3")
    assert alice.client.react("friends", first.id, "👍", key="k3").id == reacted.id
    topic = alice.client.set_topic("friends", "t", key="k4")
    alice.sleep()
    alice.wake()
    assert alice.client.set_topic("friends", "t", key="k4").id == topic.id
    assert alice.client.send_message("friends", "deploy", key="k1").duplicate
    assert alice.texts() == ["deploy!"] and alice.texts("others") == ["deploy"]


def test_a_file_with_an_idempotency_key_is_sent_once(people: Any, tmp_path: Any) -> None:
    (alice,) = people("alice")
    alice.client.create_group("friends")
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(3_000_000))
    answers = []

    def ask() -> None:
        with connect(alice.places, "one of them") as client:
            answers.append(client.send_files("friends", [str(path)], "file", key="f"))

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for one in asking:
        one.start()
    for one in asking:
        one.join(agents.DEADLINE_S)
    assert len({one.id for one in answers}) == 1 and sorted(one.duplicate for one in answers) == [
        False,
        True,
        True,
        True,
    ]
    assert alice.texts() == ["file"]
