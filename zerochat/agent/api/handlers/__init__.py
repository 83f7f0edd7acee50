"""One table of all methods of the control protocol with their handlers; each subject has its own module."""

from collections.abc import Mapping
from typing import Final

from zerochat.agent.api.handlers import (
    connections,
    delivery,
    evidence,
    groups,
    members,
    messages,
    profile,
    subscriptions,
)
from zerochat.agent.api.handlers.context import Handler

HANDLERS: Final[Mapping[str, Handler]] = (
    profile.HANDLERS
    | groups.HANDLERS
    | members.HANDLERS
    | messages.HANDLERS
    | delivery.HANDLERS
    | evidence.HANDLERS
    | connections.HANDLERS
    | subscriptions.HANDLERS
)
"""By method of `rpc.METHODS`."""
