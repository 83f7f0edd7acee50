"""`zerochat invite` and `zerochat join` over real agents: pictures, listing, revocation."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.support import cli_harness, cli_members
from tests.support.cli_members import until

home, agent, run, two = cli_harness.home, cli_harness.agent, cli_harness.run, cli_members.two


def test_an_invitation_picture_leads_to_membership(two, tmp_path: Path) -> None:
    pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    pytest.importorskip("PIL", reason="Pillow is not installed")
    _, group, _ = two("alice", "new hikers")
    picture = tmp_path / "code.png"
    assert two("alice", f"invite hikers --image {picture} --uses 3")[0] == 0
    (listed,) = [json.loads(line) for line in two("alice", "invite hikers --list --format jsonl")[1].splitlines()]
    assert (listed["uses"], listed["invitees"]) == (3, [])
    assert (
        "0/3 joined" in two("alice", "invite hikers --list")[1]
        and "not used" in two("alice", "invite hikers --list")[1]
    )
    code, joined, err = two("bob", f"join --image {picture}")
    assert (code, joined) == (0, group), err
    until(lambda: "bob joined" in two("alice", "invite hikers --list")[1], "bob in the list")
    assert "1/3 joined" in two("alice", "invite hikers --list")[1]
    code, _, err = two("alice", f"invite hikers --image {picture}")
    assert code == 1 and "code.png: File exists" in err

    first = listed["id"]
    assert two("alice", f"invite hikers --revoke {first}")[:2] == (0, group)
    assert first not in two("alice", "invite hikers --list")[1]
    code, _, err = two("alice", f"invite hikers --revoke {first}")
    assert code == 1 and "No open invitation of yours to hikers is named" in err
    assert "bob" in two("alice", "members hikers")[1], "a revocation removes no member"


def test_an_invitation_picture_is_private(two, tmp_path: Path) -> None:
    """Its holder can join. The mode holds from the creation on, whatever the umask."""
    two("alice", "new hikers")
    picture, before = tmp_path / "code.png", os.umask(0)
    try:
        assert two("alice", f"invite hikers --image {picture}")[0] == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(picture.stat().st_mode) == 0o600


def test_a_named_read_only_invitation(two) -> None:
    """In a group without admins it does not bind: its inviter is told before it is handed out."""
    two("alice", "new hikers")
    code, out, err = two("alice", "invite hikers --read-only --name Bob")
    assert code == 0 and "no admins, so a reader can become a writer" in err, err
    assert out.startswith("name     Bob\n")
    assert "Bob" in two("alice", "invite hikers --list")[1]
    two("alice", "new council --roles admins")
    code, out, err = two("alice", "invite council --read-only --format short")
    assert code == 0 and "become a writer" not in err and "full one" in err and out.startswith("https://"), err


def test_an_unreadable_picture_is_refused(two, tmp_path: Path) -> None:
    pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    pytest.importorskip("PIL", reason="Pillow is not installed")
    (tmp_path / "no.png").write_text("no picture")
    for file, why in (("no.png", "is not a JPEG, PNG"), ("nothing.png", "No such file")):
        code, _, err = two("bob", f"join --image {tmp_path / file}")
        assert code == 2 and why in err, err


def test_conflicting_options_are_refused(run) -> None:
    for line in ("invite g --list --revoke abcd", "invite g --image x --list", "join ZC:X --image x"):
        code, _, err = run(line)
        assert code == 2 and "not allowed with" in err, line
