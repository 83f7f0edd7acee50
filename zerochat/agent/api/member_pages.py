"""Requests whose answers come in pages: the members of a group, the recipients of a message."""

from msgspec.structs import replace

from zerochat.agent.api.client_connection import ClientConnection
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc import DeliveryReport, MemberInfo


def members_in_pages(
    client: ClientConnection, group: str, query: str, after: str, limit: int | None, within_s: float
) -> list[MemberInfo]:
    """As `Client.list_members`. `within_s`: the time limit of each page."""
    found: list[MemberInfo] = []
    while limit is None or len(found) < limit:
        wanted = MEMBER_PAGE_MAX if limit is None else min(limit - len(found), MEMBER_PAGE_MAX)
        page: list[MemberInfo] = client.call(
            "list_members", within_s=within_s, group=group, query=query, after=after, limit=wanted
        )
        found += page
        if len(page) < wanted or page[-1].did == after:
            break
        after = page[-1].did
    return found


def recipients_in_pages(
    client: ClientConnection, group: str, event_id: str, query: str, limit: int | None
) -> DeliveryReport:
    """As `Client.get_delivery`."""
    page: DeliveryReport = client.call("get_delivery", group=group, id=event_id, query=query, limit=_page(limit))
    first, members = page, list(page.members)
    while page.next and (limit is None or len(members) < limit):
        wanted = _page(None if limit is None else limit - len(members))
        page = client.call("get_delivery", group=group, id=first.id, query=query, after=page.next, limit=wanted)
        members += page.members
    return replace(first, members=members, next=page.next)


def _page(limit: int | None) -> int:
    return MEMBER_PAGE_MAX if limit is None else min(limit, MEMBER_PAGE_MAX)
