"""The verbs upgrade and rekey, and what other verbs say about the keys."""

import re

import pytest
from msgspec.structs import replace

from tests.support import cli_harness, cli_members
from tests.support.cli_harness import of
from tests.support.cli_members import CREW
from zerochat.rpc import GroupParams, UpgradeInfo

home, agent, run, crew, two = (
    cli_harness.home,
    cli_harness.agent,
    cli_harness.run,
    cli_members.crew,
    cli_members.two,
)
POSSIBLE = UpgradeInfo(keys="dcgka", votes=0, needed=2)


def serve(crew, before, after):
    crew.answers["list_groups"] = lambda _: [before]
    crew.answers["upgrade_group"] = lambda _: after


def test_an_upgrade_needs_confirmation_and_says_what_it_costs(run, crew) -> None:
    done = replace(CREW, keys="dcgka", upgraded_from="pairwise-multi")
    serve(crew, replace(CREW, upgrade=replace(POSSIBLE, needed=1)), done)
    code, _, err = run("upgrade hikers")
    assert code == 2 and "Upgrading hikers requires confirmation" in err
    code, _, err = run("upgrade hikers", stdin=b"n\n", tty=True)
    assert code == 1 and "Nothing was changed." in err and of(crew, "upgrade_group") == []
    for said in ("from pairwise-multi to dcgka?", "Messages can no longer be denied.", "It cannot be undone."):
        assert said in " ".join(err.split())
    code, out, err = run("upgrade hikers", stdin=b"y\n", tty=True)
    assert (code, out) == (0, "GROUPID\n") and "The upgrade of hikers is done: its keys are dcgka, for good." in err
    assert "Your messages here are signed" in err
    assert run("upgrade hikers --yes")[0] == 0 and of(crew, "upgrade_group") == [GroupParams("GROUPID")] * 2


def test_an_upgrade_of_sender_keys_costs_something_else(run, crew) -> None:
    serve(crew, replace(CREW, keys="sender-key", upgrade=POSSIBLE), CREW)
    _, _, err = run("upgrade hikers", stdin=b"n\n", tty=True)
    assert "Acknowledgements are no longer signed" in err and "denied" not in err


def test_agreement_is_counted(run, crew) -> None:
    agreed = replace(CREW, upgrade=replace(POSSIBLE, votes=1, voted=True, needed=3))
    serve(crew, agreed, agreed)
    code, _, err = run("upgrade hikers")  # once agreed, there is nothing to confirm
    assert code == 0 and "hikers: 1 of 3 members agree, with you; two more needed." in err
    assert re.search(
        r"^upgrade +to dcgka: 1 of 3 members agree, with you; two more needed$", run("info hikers")[1], re.MULTILINE
    )


@pytest.mark.parametrize(("before", "shown"), [("", None), ("sender-key", "upgraded from sender-key, for good")])
def test_info_tells_that_keys_were_upgraded(run, agent, before, shown) -> None:
    info = replace(CREW, keys="dcgka", upgraded_from=before)
    agent(list_groups=lambda _: [info], list_members=lambda _: [])
    out = run("info hikers")[1]
    assert "dcgka: one key per message, which heals after a theft" in out and "you can never deny it" in out
    assert (shown in out) if shown else "upgrade" not in out


def test_new_keys_need_no_confirmation(run, crew) -> None:
    serve(crew, CREW, CREW)
    crew.answers["rekey_group"] = lambda _: CREW
    code, out, err = run("rekey hikers")
    assert (code, out) == (0, "GROUPID\n") and of(crew, "rekey_group") == [GroupParams("GROUPID")]
    assert "New keys for hikers: your messages have them from now on" in err
    assert run("rekey nowhere")[0] == 1 and len(of(crew, "rekey_group")) == 1


@pytest.mark.slow
def test_two_members_upgrade_their_group(two) -> None:
    two("alice", "new hikers --keys pairwise-multi")
    _, link, _ = two("alice", "invite hikers")
    assert two("bob", "join -", stdin=link.encode())[0] == 0
    two("alice", "send hikers -m before --wait all")
    code, _, err = two("alice", "rekey hikers")
    assert code == 1 and "hikers has keys that cannot be renewed" in err and "upgrade --help" in err
    code, _, err = two("alice", "upgrade hikers --yes")
    assert code == 0 and "hikers: 1 of 2 members agree, with you; one more needed." in err
    cli_members.until(lambda: "1 of 2 members agree;" in two("bob", "info hikers")[1], "the agreement")
    code, _, err = two("bob", "upgrade hikers --yes")
    assert code == 0 and "The upgrade of hikers is done: its keys are dcgka, for good." in err
    cli_members.until(lambda: "upgraded from pairwise-multi" in two("alice", "info hikers")[1], "the upgrade")
    assert two("alice", "send hikers -m after --wait all")[0] == 0
    cli_members.until(lambda: "after" in two("bob", "history hikers")[1], "the post")
    history = two("bob", "history hikers")[1]
    assert "alice agrees to upgrade the keys to dcgka" in history
    assert "bob upgraded the keys to dcgka, for good" in history and "before" in history
    code, _, err = two("alice", "upgrade hikers --yes")
    assert code == 0 and "The upgrade of hikers is done: its keys are dcgka, for good." in err, "bob was faster"
    code, _, err = two("bob", "rekey hikers")
    assert code == 0 and "New keys for hikers" in err
    for member in ("bob", "alice"):
        assert two(member, "send hikers -m renewed --wait all")[0] == 0
