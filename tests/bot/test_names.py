"""Groups with the same name: no command or handler acts in the wrong one."""

import asyncio
import io
import os
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest

from tests.support.agents import meet, until
from tests.support.bot_processes import environment, running
from zerochat import Bot, Message
from zerochat.agent.api.client_protocol import AgentError
from zerochat.bot.api import BotApi
from zerochat.bot.connection import KnownGroups
from zerochat.cli import formatting, main
from zerochat.errors import AmbiguousGroup, unique_prefixes


def test_ambiguous_group_names_are_refused(
    people,
    monkeypatch,
    tmp_path,
):
    alice, bob, mallory = people("alice", "bob", "mallory")
    meet(alice, bob)
    [true] = [one.id for one in bob.client.list_groups()]
    mallory.client.create_group("friends")
    bob.client.join_group(mallory.client.create_invitation("friends").url)
    until(lambda: [one.state for one in bob.client.list_groups()] == ["active"] * 2, "joining")
    ids = [one.id for one in bob.client.list_groups()]
    short = unique_prefixes(ids)
    ours = next(one for one in short if true.startswith(one))

    def verb(*words):
        with (
            patch.dict(os.environ, environment(bob, tmp_path), clear=True),
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
        ):
            code = main(words)
        return code, out.getvalue(), err.getvalue()

    for refused in (
        lambda: bob.client.send_message("friends", "hello"),
        lambda: bob.client.call("set_topic", group="friends", text="bread"),
        lambda: bob.client.call("forget_group", group="friends"),
        lambda: bob.client.subscribe(groups=["friends"], consumer="ci"),
    ):
        with pytest.raises(AgentError) as error:
            refused()
        assert error.value.code == "AmbiguousGroup" and (error.value.data or {})["ids"] == " ".join(short)
        assert all(one in error.value.sentence() for one in short)
    for words in (["send", "friends", "-m", "hello"], ["members", "friends"], ["tail", "friends", "--since", "0"]):
        code, _, said = verb(*words)
        assert code == 1 and all(one in said for one in short), said
    assert verb("__complete", "groups")[1].split() == [one for one in short if not one.startswith("-")]
    assert verb("send", "-m", "by the beginning of an id", "--", ours)[0] == 0
    until(lambda: "by the beginning of an id" in alice.texts(), "that alice hears it")

    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    careless, careful, heard = Bot(profile="bob", name="careless"), Bot(profile="bob", name="careful"), []

    @careless.on_message(group="friends")
    async def never(m: Message):
        raise AssertionError(m.text)

    @careful.on_message(group=ours)
    async def hear(m: Message):
        heard.append((m.text, m.group.id))
        await careful.send(ours, "heard")

    with pytest.raises(AmbiguousGroup) as unclear:
        asyncio.run(careless.serve())
    assert unclear.value.fields["ids"] == " ".join(short)
    with running(careful) as failed:
        mallory.client.send_message("friends", "from the wrong one")
        alice.client.send_message("friends", "from the right one")
        until(lambda: "heard" in alice.texts(), "an answer")
        assert not failed
    assert heard == [("from the right one", true)]
    assert "heard" not in mallory.texts()


def test_a_name_does_not_take_the_prefix_of_another_groups_id(people):
    alice, bob, mallory = people("alice", "bob", "mallory")
    meet(alice, bob)
    [true] = [one.id for one in bob.client.list_groups()]
    wanted = true[:8]
    mallory.client.create_group(wanted)
    bob.client.join_group(mallory.client.create_invitation(wanted).url)
    until(lambda: [one.state for one in bob.client.list_groups()] == ["active"] * 2, "joining")
    with pytest.raises(AgentError) as error:
        bob.client.send_message(wanted, "for friends only")
    assert error.value.code == "AmbiguousGroup"
    infos = bob.client.list_groups()
    with pytest.raises(AmbiguousGroup):
        formatting.find_group(infos, wanted)
    assert formatting.find_group(infos, true[:12]).id == true
    groups = KnownGroups()
    groups.update(infos, BotApi.__new__(BotApi))
    assert [one.id for one in groups.groups.values() if one.matches(wanted)] == [true]
    assert bob.client.send_message(true[:12], "for friends only")
    until(lambda: "for friends only" in alice.texts(), "that alice hears it")
    assert mallory.texts(wanted) == []
