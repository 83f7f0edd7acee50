"""Listening addresses and ports of an agent: every form of an address, and ports that are in use."""

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from zerochat.agent.api.attach import attach
from zerochat.agent.doctor import CheckContext, run_checks
from zerochat.agent.network.addresses import parse_listen, split_host_port
from zerochat.agent.network.zmq.listener import PortTaken
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.cli.verbs.agent import _ready_line
from zerochat.cli.verbs.profile import _health
from zerochat.rpc import ReplacedPort, Status


@pytest.fixture
def places(tmp_path: Path) -> ProfilePaths:
    found = profile_paths("p", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(found, "Alice", None)
    return found


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


def status_of(places: ProfilePaths, listen: str | None) -> Status:
    with attach(places, listen=listen) as agent:
        return agent.client.get_status()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("::1", ("::1", 0, 0)),
        ("[::1]", ("::1", 0, 0)),
        ("::", ("::", 0, 0)),
        ("[2001:db8::7]:4242", ("2001:db8::7", 4242, 0)),
        ("[::1]:4242:4243", ("::1", 4242, 4243)),
        ("192.0.2.1", ("192.0.2.1", 0, 0)),
        ("192.0.2.1:4242", ("192.0.2.1", 4242, 0)),
        ("192.0.2.1:0:4243", ("192.0.2.1", 0, 4243)),
    ],
)
def test_every_form_of_an_address_is_read(text: str, found: tuple[str, int, int]) -> None:
    assert parse_listen(text) == found


def test_a_proxy_needs_an_address_and_one_port() -> None:
    assert split_host_port("[::1]:9050") == ("::1", 9050)
    for odd in ("::1", "[::1]", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:1:2", "[::1]9050", "example.org:9050"):
        with pytest.raises(ValueError, match=r"such as 127\.0\.0\.1:9050"):
            split_host_port(odd)


def test_a_requested_port_in_use_is_refused(places: ProfilePaths, taken: int) -> None:
    for listen in (f"127.0.0.1:{taken}", f"127.0.0.1:0:{taken}"):
        with pytest.raises(PortTaken, match=f"uses port {taken}") as caught:
            attach(places, listen=listen)
        assert caught.value.exit_code == 6 and "network.port_fallback" in str(caught.value)
    with attach(places, listen="127.0.0.1") as agent:  # what was refused is not remembered
        assert not agent.client.get_status().replaced_ports


def test_a_fallback_that_was_requested_is_reported(places: ProfilePaths, taken: int) -> None:
    places.config.write_text("[network]\nport_fallback = true\n")
    with attach(places, listen=f"127.0.0.1:{taken}") as agent:
        status = agent.client.get_status()
        context = CheckContext(places, {}, partial(unlock, places, None))
        (found,) = run_checks(context, ["ports"]).checks
        assert context.client is not None
        context.client.close()
    (replaced,) = status.replaced_ports
    assert replaced.port == taken and status.pair.endswith(f":{replaced.by}")
    assert _ready_line(status).endswith(f" replaced={taken}:{replaced.by}")
    assert str(taken) in status.warning and _health(status) == 1
    assert found.state == "warn" and str(taken) in found.text
    assert f"port {taken} was in use, listening on port {replaced.by} instead" in places.log.read_text()


def test_a_remembered_port_in_use_is_replaced_for_one_run(places: ProfilePaths) -> None:
    port = int(status_of(places, "127.0.0.1").pair.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        (replaced,) = status_of(places, None).replaced_ports
    assert replaced == ReplacedPort(port, replaced.by)
    again = status_of(places, None)
    assert again.pair.endswith(f":{port}") and not again.replaced_ports and not again.warning
