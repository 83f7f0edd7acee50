"""The SDK: a bot in ten lines, which never loses an event. `README.md` in this folder is its manual.

bot         `Bot`: decorators, and how it is run
events      what a handler is given
sync        the same without `await`
plan        what a bot is, for whoever runs it
runner      a bot at work: what runs side by side, and how it ends
connection  its connection with the agent, made again as often as it ends (known: the groups, and what a name means)
work        items in, handlers called, acknowledgements out
queues      what waits for each group, in memory and put aside (intake: what may be acknowledged)
calling     calls of handlers, and how long they may take
watch       interrupts what computes and never waits
letters     dead letters
handlers    which handlers an event is for, and who may have a command done
arguments   the arguments of a command, read off a signature
times       spans, times of day, rates
voice       what is said, and its idempotency keys
store       what a bot keeps on disk: values, dead letters, timers
line        what a bot needs of its agent (wire: the control socket; console: a terminal)
launch      finds the bot in a file
reload      runs a file, and runs it again when it changes
examples    bots that are useful by themselves
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerochat.bot.bot import Bot
    from zerochat.bot.events import (
        Author,
        Delivered,
        Event,
        Group,
        Joined,
        JoinRequest,
        Message,
        Reaction,
        Receipts,
        Sent,
    )
    from zerochat.bot.script import SyncBot
    from zerochat.bot.store import DeadLetter
    from zerochat.bot.sync import SyncJoined, SyncJoinRequest, SyncMessage, SyncReaction, SyncSent

__all__ = [
    "Author",
    "Bot",
    "DeadLetter",
    "Delivered",
    "Event",
    "Group",
    "JoinRequest",
    "Joined",
    "Message",
    "Reaction",
    "Receipts",
    "Sent",
    "SyncBot",
    "SyncJoinRequest",
    "SyncJoined",
    "SyncMessage",
    "SyncReaction",
    "SyncSent",
]

_HOMES = {
    "Bot": "zerochat.bot.bot",
    "DeadLetter": "zerochat.bot.store",
    "SyncBot": "zerochat.bot.script",
    **dict.fromkeys(("SyncJoinRequest", "SyncJoined", "SyncMessage", "SyncReaction", "SyncSent"), "zerochat.bot.sync"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "zerochat.bot.events")), name)
