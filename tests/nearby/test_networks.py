"""The networks of this machine, and the table of what is known of them."""

from zerochat.agent.nearby import networks as module
from zerochat.agent.nearby.networks import networks


def test_the_loopback_network_is_there_and_last():
    found = networks()
    assert [one.is_loopback for one in found] == sorted(one.is_loopback for one in found)
    last = found[-1]
    assert (last.interface, last.range, last.name) == ("lo", "127.0.0.0/8", "lo (127.0.0.0/8)")
    assert networks() == found, "the ids are stable"


def test_a_network_is_known_by_its_gateway_and_not_by_its_range(monkeypatch):
    before = {one.interface: one.id for one in networks()}
    monkeypatch.setattr(module, "_gateways", lambda: {"lo": "02:00:00:00:00:01"})
    home = {one.interface: one.id for one in networks()}
    monkeypatch.setattr(module, "_gateways", lambda: {"lo": "02:00:00:00:00:02"})
    away = {one.interface: one.id for one in networks()}
    assert len({before["lo"], home["lo"], away["lo"]}) == 3
    assert all(home[one] == away[one] for one in home if one != "lo")
