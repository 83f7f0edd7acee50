"""The bots of a profile: whether they run, their lag, their dead letters, and their end."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli import bot_state
from zerochat.cli.agent_access import attached, paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import ID_CHARS, name_of, table
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output, narrate
from zerochat.errors import LocalError
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.bot.store import Store, StoreUnusable
    from zerochat.rpc import ConsumerInfo


class NoSuchBot(LocalError):
    """No bot {name} has run in this profile. Give its name, as in `Bot(name=…)`, with --bot."""


class NoBot(LocalError):
    """No bot has run in this profile. `zerochat bot new NAME` writes one."""


class WhichBot(LocalError):
    """Several bots have run in this profile: {names}. Choose one with --bot."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NoSuchDeadLetter(LocalError):
    """The bot {name} has no dead letter {letter}. `zerochat bot dead-letters --bot {name}` lists them."""


def list_bots(options: Options, out: Output) -> ExitCode:
    known, letters = _known(options), bot_state.dead_letters(paths_of(options))
    found = [_state(name, known.get(name), letters.get(name, 0)) for name in sorted({*known, *letters})]
    keys = ("name", "state", "behind", "dead_letters")
    rows = [tuple(key.replace("_", " ").upper() for key in keys)]
    rows += [tuple(_shown(one[key]) for key in keys) for one in found]
    out.data_list(found, table(rows) if found else ())
    if not found:
        narrate(NoBot().sentence())
    for one in letters.values():
        if not isinstance(one, int):
            narrate(one.sentence())
    return ExitCode.OK


def show_status(options: Options, out: Output) -> ExitCode:
    name = _name(options)
    consumer, letters = _known(options).get(name), bot_state.dead_letters(paths_of(options)).get(name)
    if consumer is None and letters is None:
        raise NoSuchBot(name=printable_line(name))
    one = _state(name, consumer, letters or 0)
    out.data(one, table([(key.replace("_", " "), _shown(value)) for key, value in one.items()]))
    if letters is not None and not isinstance(letters, int):
        raise letters
    return ExitCode.REFUSED if one["state"] == "stopped" else ExitCode.OK


def _known(options: Options) -> "dict[str, ConsumerInfo]":
    with attached(options) as agent:
        return {one.consumer: one for one in agent.client.list_consumers()}


def _state(name: str, one: "ConsumerInfo | None", letters: "int | StoreUnusable") -> dict[str, object]:
    """`letters`: unreadable ones are null."""
    found: dict[str, object] = {"name": name, "state": "never connected", "behind": 0}
    found["dead_letters"] = letters if isinstance(letters, int) else None
    if one is None:
        return {**found, "unread": 0, "updated": ""}
    return {
        **found,
        "state": bot_state.state_of(one),
        "behind": one.behind,
        "unread": one.unread,
        "updated": one.updated,
    }


def _shown(value: object) -> str:
    return "?" if value is None else printable_line(str(value))


def _store(options: Options) -> "Store":
    from zerochat.bot.bot import store_path
    from zerochat.bot.store import Store

    name = _name(options)
    path = store_path(paths_of(options), name)
    if not path.exists():
        raise NoSuchBot(name=printable_line(name))
    return Store(path)


def _name(options: Options) -> str:
    """The name of the bot: the given one, or that of the only bot. Raises NoBot and WhichBot."""
    if options.name is not None:
        return options.name
    names = sorted(bot_state.database_files(paths_of(options)))
    if not names:
        raise NoBot
    if len(names) > 1:
        raise WhichBot(names=", ".join(map(printable_line, names)))
    return names[0]


def list_dead_letters(options: Options, out: Output) -> ExitCode:
    with _store(options) as store:
        if options.dead_letter is not None:
            _found(options, store.delete_dead_letters(options.dead_letter or None))
            return ExitCode.OK
        letters, gone = store.dead_letters(), store.dead_letters_dropped()
    if out.jsonl:
        out.data_list(
            [
                {
                    "id": one.id,
                    "event": one.event,
                    "group": one.group,
                    "type": one.type,
                    "handler": one.handler,
                    "error": one.error,
                    "attempts": one.attempts,
                    "at": datetime.fromtimestamp(one.at, UTC).isoformat(),
                }
                for one in letters
            ],
            (),
        )
    else:
        rows = [
            (
                str(one.id),
                f"{datetime.fromtimestamp(one.at):%Y-%m-%d %H:%M}",  # noqa: DTZ006  # local time
                one.handler,
                f"{one.type} {one.event[:ID_CHARS]}",
                printable_line(one.error),
            )
            for one in letters
        ]
        out.data_list([], table(rows))
    if not letters:
        narrate("There are no dead letters.")
    if gone:
        narrate(f"{gone} older dead letters were dropped.")
    return ExitCode.OK


def retry_dead_letters(options: Options, out: Output) -> ExitCode:
    with _store(options) as store:
        wanted = _found(options, store.request_retry(options.dead_letter or None))
    narrate(f"{wanted} queued for retry; the bot handles them when it runs.")
    return ExitCode.OK


def retire_bot(options: Options, out: Output) -> ExitCode:
    from zerochat.bot.bot import store_path

    name = _name(options)
    path = store_path(paths_of(options), name)
    with attached(options) as agent:
        client = agent.client
        known = any(one.consumer == name for one in client.call("list_consumers"))
        if not known and not path.exists():
            raise NoSuchBot(name=printable_line(name))
        if known:
            client.delete_consumer(name)  # refused while it runs
        active = [one for one in client.list_groups() if one.state == "active"]
        withdrawn = [one for one in active if not client.announce_bot(one.id, bot=False, consumer=name).unchanged]
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        file.unlink(missing_ok=True)
    lines = [f"{name} is no longer announced in {name_of(one.name)}." for one in withdrawn]
    out.data({"bot": name, "groups": [one.id for one in withdrawn]}, lines)
    return ExitCode.OK


def _found(options: Options, count: int) -> int:
    if not count and options.dead_letter:
        raise NoSuchDeadLetter(name=_name(options), letter=options.dead_letter)
    return count
