"""Handlers of subscriptions and named consumers."""

from typing import Final

from zerochat import rpc
from zerochat.agent.api.handlers.context import Context, Handler


def subscribe(context: Context[rpc.SubscribeParams]) -> rpc.Subscribed:
    return context.services.subscriptions.subscribe(context.call.client, context.params, context.agent)


def acknowledge(context: Context[rpc.AcknowledgeParams]) -> None:
    """Answered by the commit that writes the acknowledgement."""
    context.services.subscriptions.consumers.acknowledge(context.call, context.params.consumer, context.params.seq)


def list_consumers(context: Context[rpc.NoParams]) -> list[rpc.ConsumerInfo]:
    return context.services.subscriptions.consumers.infos()


def delete_consumer(context: Context[rpc.ConsumerParams]) -> rpc.NoParams:
    context.services.subscriptions.consumers.delete(context.params.consumer)
    return rpc.NoParams()


HANDLERS: Final[dict[str, Handler]] = {
    "subscribe": subscribe,
    "acknowledge": acknowledge,
    "list_consumers": list_consumers,
    "delete_consumer": delete_consumer,
}
