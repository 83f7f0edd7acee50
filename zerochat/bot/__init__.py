"""SDK for bots with at-least-once delivery. Manual: `zerochat/manual/bots.md`.

bot              `Bot`: registration, lifecycle, actions
events           event objects passed to handlers
sync             blocking variants (script: `SyncBot`)
registry         the registered handlers
decorators       decorators of handlers of events (command_decorator: commands; timer_decorators: timers)
handlers         matching of events, authorisation of commands
arguments        command arguments from a signature
members          members as arguments, moderation
schedule         durations, times of day, rate limits
runner           tasks and shutdown of one run
connection       reconnection, subscription, known groups
dispatcher       items in, handler calls, acknowledgements out
queues           queues per group that spill to disk
acknowledgement  cumulative acknowledgement
invoke           handler calls with time limits
cpu_watchdog     interrupts handlers that block the event loop
timers           scheduled calls
local_events     timers set at run time, stored webhooks
webhooks         the HTTP listener of webhooks (webhook_address: its address)
loops            limits against loops between bots
dead_letters     dead-letter queue
failures         calls handlers of failures
api              requests to the agent, idempotency keys
store            database: values, dead letters, timers
agent_link       interface to the agent (socket_link: control socket; console: terminal)
launch           loads a bot from a file
reload           restarts a bot when its file changes
examples         ready-made bots
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerochat.bot.api import FilesMissing
    from zerochat.bot.bot import Bot
    from zerochat.bot.events import (
        Author,
        Deleted,
        Delivered,
        Edited,
        Event,
        Group,
        Joined,
        JoinRequest,
        Left,
        Message,
        PrivateInvitation,
        Quoted,
        Reaction,
        Receipts,
        Sent,
        TimerEvent,
        WebhookEvent,
    )
    from zerochat.bot.handlers import Failure
    from zerochat.bot.invoke import HandlerTimeout
    from zerochat.bot.local_events import SetTimer, TooManyLocalEvents
    from zerochat.bot.members import Member
    from zerochat.bot.script import SyncBot
    from zerochat.bot.store import BadValue, DeadLetter, KeyValues
    from zerochat.bot.sync import (
        SyncApi,
        SyncEdited,
        SyncJoined,
        SyncJoinRequest,
        SyncMember,
        SyncMessage,
        SyncPrivateInvitation,
        SyncReaction,
        SyncSent,
    )

__all__ = [
    "Author",
    "BadValue",
    "Bot",
    "DeadLetter",
    "Deleted",
    "Delivered",
    "Edited",
    "Event",
    "Failure",
    "FilesMissing",
    "Group",
    "HandlerTimeout",
    "JoinRequest",
    "Joined",
    "KeyValues",
    "Left",
    "Member",
    "Message",
    "PrivateInvitation",
    "Quoted",
    "Reaction",
    "Receipts",
    "Sent",
    "SetTimer",
    "SyncApi",
    "SyncBot",
    "SyncEdited",
    "SyncJoinRequest",
    "SyncJoined",
    "SyncMember",
    "SyncMessage",
    "SyncPrivateInvitation",
    "SyncReaction",
    "SyncSent",
    "TimerEvent",
    "TooManyLocalEvents",
    "WebhookEvent",
]

_HOMES = {
    "BadValue": "zerochat.bot.store",
    "Bot": "zerochat.bot.bot",
    "DeadLetter": "zerochat.bot.store",
    "Failure": "zerochat.bot.handlers",
    "FilesMissing": "zerochat.bot.api",
    "HandlerTimeout": "zerochat.bot.invoke",
    "KeyValues": "zerochat.bot.store",
    "SetTimer": "zerochat.bot.local_events",
    "TooManyLocalEvents": "zerochat.bot.local_events",
    "Member": "zerochat.bot.members",
    "SyncBot": "zerochat.bot.script",
    **dict.fromkeys(
        (
            "SyncApi",
            "SyncEdited",
            "SyncJoinRequest",
            "SyncJoined",
            "SyncMember",
            "SyncMessage",
            "SyncPrivateInvitation",
            "SyncReaction",
            "SyncSent",
        ),
        "zerochat.bot.sync",
    ),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "zerochat.bot.events")), name)
