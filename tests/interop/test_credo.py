"""zerochat and credo-ts: ours driven through the command line, theirs through its API."""

from collections.abc import Iterator

import pytest

from tests.interop.credo import Credo, running
from tests.interop.our_agent import Mediator, Zerochat

pytestmark = [pytest.mark.conformance, pytest.mark.slow]

TEXT = "naïve – 日本語 ✓"
BASIC = "https://didcomm.org/basicmessage/1.0"
"""credo discloses no trust ping, which it has."""


@pytest.fixture(scope="module")
def credo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Credo]:
    with running(tmp_path_factory.mktemp("credo")) as agent:
        yield agent


@pytest.fixture(scope="module")
def zerochat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zerochat]:
    agent = Zerochat(tmp_path_factory.mktemp("zerochat"))
    yield agent
    agent.stop()


def talk(zerochat: Zerochat, credo: Credo, name: str, connection: str) -> None:
    """Trust ping, discover features and basic message, begun by either side."""
    (pong,) = zerochat.said("ping", name)
    assert pong["their_key"]
    assert BASIC in {entry["id"] for entry in zerochat.said("features", name)}
    exchange_texts(zerochat, credo, name, connection)
    thread = credo("ping", connection=connection)
    credo.told("pong", connection=connection, thread=thread)
    for version in ("v1", "v2"):
        assert BASIC in credo("features", connection=connection, version=version)


def exchange_texts(zerochat: Zerochat, credo: Credo, name: str, connection: str) -> None:
    zerochat("message", name, TEXT)
    credo.told("message", connection=connection, text=TEXT)
    credo("message", connection=connection, text=TEXT)
    zerochat.hears(TEXT)


def accept(zerochat: Zerochat, credo: Credo, name: str) -> str:
    """zerochat accepts credo's invitation; returns credo's id of the connection."""
    invited = credo("invite")
    (connection,) = zerochat.said("connect", invited["url"], "--name", name)
    assert (connection["state"], connection["envelope"]) == ("established", "didcomm/v1")
    return str(credo.told("connection", invitation=invited["invitation"], state="completed")["connection"])


def test_zerochat_accepts_their_invitation(zerochat, credo):
    talk(zerochat, credo, "inviter", accept(zerochat, credo, "inviter"))


def test_they_accept_zerochats_invitation(zerochat, credo):
    (offer,) = zerochat.said("connect", "--invite", "--envelope", "didcomm/v1", "--name", "invitee")
    connection = credo("accept", url=offer["url"])
    talk(zerochat, credo, offer["connection"], connection)


def test_both_rotate(zerochat, credo):
    connection = accept(zerochat, credo, "rotates")
    for _ in range(2):
        zerochat("rotate", "rotates")
        credo.told("rotated", connection=connection, who="peer")
        exchange_texts(zerochat, credo, "rotates", connection)
        credo("rotate", connection=connection)
        credo.told("rotated", connection=connection, who="credo")
        exchange_texts(zerochat, credo, "rotates", connection)


@pytest.fixture(scope="module")
def mediator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mediator]:
    mediator = Mediator(tmp_path_factory.mktemp("mediator"))
    yield mediator
    mediator.stop()


@pytest.mark.parametrize("strategy", ["PickUpV2LiveMode", "PickUpV2", "PickUpV1"])
def test_credo_behind_zerochats_mediator(zerochat, mediator, tmp_path, strategy):
    with running(tmp_path, "Miner", hidden=True) as miner:
        miner("mediate", url=mediator.link, strategy=strategy)
        talk(zerochat, miner, strategy, accept(zerochat, miner, strategy))
        (offer,) = zerochat.said("connect", "--invite", "--envelope", "didcomm/v1", "--name", f"{strategy}-invited")
        talk(zerochat, miner, offer["connection"], miner("accept", url=offer["url"]))


def test_zerochat_behind_credos_mediator(credo, tmp_path):
    hidden = Zerochat(tmp_path / "hidden", web=False)
    try:
        hidden("route", "add", credo("invite")["url"])
        with running(tmp_path, "Peer") as peer:
            (offer,) = hidden.said("connect", "--invite", "--envelope", "didcomm/v1", "--name", "invited")
            talk(hidden, peer, offer["connection"], peer("accept", url=offer["url"]))
            talk(hidden, peer, "accepts", accept(hidden, peer, "accepts"))
    finally:
        hidden.stop()
