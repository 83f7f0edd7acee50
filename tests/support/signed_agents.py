"""Whole agents in a group with sender keys."""

from tests.support.agents import Person, until


def meet(host: Person, *guests: Person) -> None:
    host.client.create_group("friends", keys="sender-key")
    for guest in guests:
        guest.client.subscribe()
        guest.client.join_group(host.client.create_invitation("friends").url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.list_groups()), "joining")
