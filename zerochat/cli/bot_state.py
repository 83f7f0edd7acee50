"""The bots and other consumers of a profile as rows: whether they run, their lag, their dead letters."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zerochat.agent.storage.paths import ProfilePaths
from zerochat.cli.formatting import near_time
from zerochat.rpc import ConsumerInfo
from zerochat.rpc.subscriptions import NOTIFICATIONS_MAX, OVERFLOW_PERCENT
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.bot.store import StoreUnusable

COUNTED_MAX: Final = 10_000
"""`ConsumerInfo.behind` counts up to this."""


def consumer_rows(consumers: Iterable[ConsumerInfo]) -> list[tuple[str, ...]]:
    head = ("CONSUMER", "STATE", "BEHIND", "LAST ACTIVE")
    return [head, *(_row(one) for one in consumers)]


def _row(one: ConsumerInfo) -> tuple[str, ...]:
    return printable_line(one.consumer), state_of(one), behind_of(one), near_time(one.updated)


def state_of(one: ConsumerInfo) -> str:
    if at_risk(one):
        return "losing events soon"
    return "running" if one.connected else "stopped"


def behind_of(one: ConsumerInfo) -> str:
    return f"{one.behind}+" if one.behind >= COUNTED_MAX else str(one.behind)


def at_risk(one: ConsumerInfo) -> bool:
    """Whether so many notifications are unread that the oldest will soon be dropped."""
    return one.unread * 100 >= NOTIFICATIONS_MAX * OVERFLOW_PERCENT


def dead_letters(paths: ProfilePaths) -> "dict[str, int | StoreUnusable]":
    """The number of dead letters of each bot that has run in the profile, by name; or why its database cannot be
    read."""
    from zerochat.bot.store import Store, StoreUnusable

    found: dict[str, int | StoreUnusable] = {}
    for name, path in database_files(paths).items():
        try:
            with Store(path) as store:
                found[name] = len(store.dead_letters())
        except StoreUnusable as error:
            found[name] = error
    return found


def database_files(paths: ProfilePaths) -> dict[str, Path]:
    """The databases of the bots that have run in the profile, by name."""
    from zerochat.bot.bot import store_path

    folder = store_path(paths, "x").parent
    return {path.stem: path for path in sorted(folder.glob("*.db"))} if folder.is_dir() else {}
