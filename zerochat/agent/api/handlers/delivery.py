"""Handlers of delivery: reports, message status and waiting for delivery."""

import time
from functools import partial
from typing import Final

from zerochat import rpc
from zerochat.agent.api.handlers.context import Context, Handler, Services
from zerochat.agent.storage.journal import Row
from zerochat.agent.views import delivery, event_pages
from zerochat.group.state import Agent, Group


def wait_for_delivery(context: Context[rpc.WaitParams]) -> None:
    services = context.services
    services.waits.add(context.call, context.agent, context.params, time.monotonic())
    services.waits.review(context.agent, time.monotonic())


def get_delivery(context: Context[rpc.EventParams]) -> rpc.DeliveryReport:
    return reported(context.services, context.agent, context.group, context.params)[1]


def get_message_status(context: Context[rpc.EventParams]) -> rpc.MessageStatus:
    group, services = context.group, context.services
    row, report = reported(services, context.agent, group, context.params)
    receipts = partial(services.journal.receipts_of, group.id, row.author, row.position)
    return delivery.message_status(group, row, receipts, services.names(group), report)


def reported(services: Services, agent: Agent, group: Group, params: rpc.EventParams) -> tuple[Row, rpc.DeliveryReport]:
    """An event with a page of its delivery report and the signatures of those who have it. Raises BadPage, or as
    `find_row`."""
    row, names = event_pages.find_row(services.journal, group, params.id), services.names(group)
    receipts = partial(services.journal.receipts_of, group.id, row.author, row.position)
    shown = services.messages.event(group, row, names)
    report = delivery.report(agent, group, row, receipts, names, shown, params)
    if group.mode.signs and not report.signed:
        from zerochat.agent.proofs import signatures  # most groups have none

        report = signatures.with_signatures(services.journal, group, row, report)
    return row, report


HANDLERS: Final[dict[str, Handler]] = {
    "wait_for_delivery": wait_for_delivery,
    "get_delivery": get_delivery,
    "get_message_status": get_message_status,
}
