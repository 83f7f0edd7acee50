"""Joining a group between two whole agents."""

from tests.support.agents import until


def join(host, guest, **invitation):
    guest.client.subscribe()
    guest.client.join_group(host.client.create_invitation("friends", **invitation).url)
    until(
        lambda: guest.client.list_groups() and guest.client.list_groups()[0].history_start.state != "fetching",
        "fetching it",
    )
