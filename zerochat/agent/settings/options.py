"""Every setting that there is: what it is called, what it means, what it can be, and what holds when nobody says so.

From this one table come the commented file, the check of a file, the completion of `/set`, and the sheet behind it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from zerochat.agent.settings.client_preferences import (
    FACE_CHECKS,
    GROUPS,
    KEYMAPS,
    KEYS,
    LEVELS,
    THEMES,
    TRIGGERS,
    WAYS,
    is_empty,
    is_group,
    keys_of,
    level_of,
    preferences,
)
from zerochat.agent.settings.config_file import (
    BadSettings,
    flat,
    from_environment,
    of_profile,
    read_config,
    read_tables,
    value_of,
    variable_of,
)
from zerochat.agent.settings.reader import CHECKS, FACE, LOG_LEVELS, TOGETHER, checked, stopped, unknown
from zerochat.agent.storage.paths import Places

_FLAG: Final = ("true", "false")


class Option(Struct, frozen=True):
    name: str
    meaning: str
    """A sentence without its full stop."""
    default: object = None
    """None: nothing, which the meaning explains."""
    values: tuple[str, ...] = ()
    """What it can be, where that is a few words."""
    example: object = None

    @property
    def section(self) -> str:
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        return self.name.partition(".")[2]

    @property
    def is_flag(self) -> bool:
        return self.values == _FLAG

    @property
    def check(self) -> Callable[[object], Any]:
        return CHECKS[self.name] if self.name in CHECKS else FACE_CHECKS[self.name]


OPTIONS: Final[Mapping[str, Option]] = {
    one.name: one
    for one in (
        Option("chat.theme", "the colours; the first four are our own", "dark", THEMES),
        Option("chat.keymap", "which keys do what", "default", KEYMAPS),
        Option("chat.markdown", "whether *emphasis* and `code` in messages are shown as such", True, _FLAG),
        Option("chat.folded", "whether joins, leaves and new names in a row stand in one line", True, _FLAG),
        Option("chat.mouse", "whether the chat takes the mouse; without it the terminal selects", True, _FLAG),
        Option(
            "chat.read_trigger",
            "the open conversation counts as read while the window has the focus, whenever it is visible, or only once"
            " you have sent something there",
            "focused",
            TRIGGERS,
        ),
        Option("chat.notify", "what to be told about while you do not look", "mentions", LEVELS),
        Option("chat.notify_how", "how: one of these, or several with commas", "bell", WAYS),
        Option(
            "chat.notify_command",
            "the program for `command`, with its arguments, never through a shell; it gets JSON on its input",
            [],
            example=["notify-send", "zerochat"],
        ),
        Option("chat.tour", "whether the first start of a profile shows what is where", True, _FLAG),
        Option(
            "network.listen",
            "where peers connect; with it, --listen and --advertise are for one run",
            example="0.0.0.0:4242:4243",
        ),
        Option("network.advertise", "under which IP address they reach it", example="203.0.113.7"),
        Option("network.socks", "a SOCKS5 proxy for everything that is dialled", example="127.0.0.1:9050"),
        Option("network.hidden", "tell nobody an address", False, _FLAG),
        Option("network.cover", "send something that says nothing every 20 s or so", False, _FLAG),
        Option("network.web", "take envelopes in over HTTP and WebSocket here", example="0.0.0.0:8080"),
        Option("network.web_public", "under which URI others reach that", example="https://chat.example.org"),
        Option("network.web_certificate", "for https and wss, a PEM file, with network.web_key", example="chain.pem"),
        Option("network.web_key", "the key of that certificate, a PEM file", example="key.pem"),
        Option("network.web_authorities", "a PEM file of authorities to trust besides the system's", example="ca.pem"),
        Option(
            "agent.lock_after",
            "minutes without a key until the chat locks, where a passphrase was typed; 0: never",
            0,
        ),
        Option("agent.log_level", "what is written to the log: this, and what is worse", "info", LOG_LEVELS),
        Option("agent.drain", "seconds that an agent which was told to end may take to send what waits", 5),
        Option(
            "hooks.on_message",
            "a program, with its arguments, that `zerochat agent` runs for each message of others, never through a"
            " shell; it gets the event as JSON on its input",
            [],
            example=["/usr/local/bin/on-message"],
        ),
        Option(
            "hooks.on_mention",
            "the same, for messages that call you by name",
            [],
            example=["notify-send", "zerochat", "somebody has called you"],
        ),
        Option("hooks.timeout", "seconds after which a program of these is ended", 10),
        Option(
            "share.read_receipts",
            "tell the members who are connected up to where you have read, in groups of 32 at the most; only then you"
            " see up to where they have, if they tell it",
            False,
            _FLAG,
        ),
        Option(
            "share.typing",
            "tell them that you are writing, before you send it; only then you see who of them is writing",
            False,
            _FLAG,
        ),
        Option(
            "signing.key_messages",
            "in groups with signed messages, what you say goes on under a new key after so many messages (256 at the"
            " most)",
            256,
        ),
        Option("signing.key_days", "and after so many days (90 at the most)", 7),
        Option(
            "signing.key_removals",
            "and when so many members have left or were put out (16 at the most); with more than 1, they can read what"
            " you say until then, if anybody hands it to them",
            1,
        ),
        Option("files.auto_max", "a file of so many MiB or less is fetched when it is posted; 0: only when you ask", 1),
        Option("files.size_max", "MiB; a larger file is neither sent nor fetched (1024 at the most)", 64),
        Option("files.total_max", "MiB that are kept of all files, of all groups", 2_048),
        Option(
            "telemetry.allowed",
            "false forbids to record how messages fare; true allows it to whoever turns it on (zerochat telemetry on)",
            True,
            _FLAG,
        ),
        Option("telemetry.megabytes", "MiB that are kept of it; the oldest goes first", 64),
        Option("telemetry.days", "days that it is kept", 30),
    )
}
_SECTIONS: Final = {
    "chat": "How the chat looks and behaves.",
    "network": "What the agent listens on and dials.",
    "agent": "The agent.",
    "hooks": "What is run when somebody says something.",
    "share": "What the others are told of what you do, besides what you say. Each works both ways.",
    "signing": "When a new key is drawn for what you say in groups with signed messages.",
    "files": "How much of others' files this machine takes.",
    "telemetry": "What may be recorded of how messages fare; nothing is, unless you turn it on.",
}


# --- one setting ----------------------------------------------------------------------------------------------------


def check_value(name: str, value: object) -> object:
    """The value in its own form. Raises ValueError, with a sentence, for a name or a value that cannot be used."""
    if name in OPTIONS:
        return checked(name, OPTIONS[name].check, value)
    if name.startswith(KEYS) and name != KEYS:
        return checked(name, keys_of, value)
    if is_group(name):
        return checked(name, level_of, value)
    raise ValueError(unknown(name, OPTIONS))


def written(value: object) -> str:
    """A value as TOML has it. JSON is that too, for what there is here."""
    import json

    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def typed(name: str, text: str) -> object:
    """What somebody means who types `text` as the value of `name`; for what is true or false, on or off will do."""
    value = value_of(text)
    if name in OPTIONS and OPTIONS[name].is_flag and isinstance(value, str):
        return {"on": True, "yes": True, "off": False, "no": False}.get(value.lower(), value)
    return str(text).strip() if name.startswith(KEYS) else value


def full_name(name: str) -> str:
    """ "theme" is chat.theme: whoever types need not say the section of what only one section has, and "receipts" is
    share.read_receipts, as no other has that word."""
    if name in OPTIONS or name.startswith((KEYS, GROUPS)):
        return name
    if name.startswith(("keys.", "groups.")):
        return FACE + name
    fitting = [each for each in OPTIONS if each.endswith(f".{name}")] or [
        each for each in OPTIONS if name in each.replace(".", "_").split("_")
    ]
    return fitting[0] if len(fitting) == 1 else name


# --- all of them ----------------------------------------------------------------------------------------------------


def shown(places: Places, environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(name, value, where it was said) of all that holds. Raises BadSettings."""
    tables = dict(flat(read_tables(places)))
    own = of_profile(tables, places.profile)
    variables = from_environment(environ)
    found = read_config(places, environ)
    more = [name for name in found if name.startswith((KEYS, GROUPS))]
    for name in [*OPTIONS, *more]:
        if name in variables:
            source = variable_of(name)
        elif name in own:
            source = "profile" if f"profiles.{places.profile}.{name}" in tables else "file"
        else:
            source = "default"
        value = found.get(name, OPTIONS[name].default if name in OPTIONS else None)
        yield name, "" if value is None else written(value), source


def said_by_variables(environ: Mapping[str, str]) -> str:
    """Which variables of the environment set what, as a sentence; empty where none does."""
    told = [f"{variable_of(name)} sets {name}" for name in from_environment(environ) if name in OPTIONS]
    return f"{', '.join(told)}." if told else ""


def complaints(places: Places, environ: Mapping[str, str]) -> list[str]:
    """What is wrong with the settings file, in any profile's part of it, and with the environment, in sentences."""
    try:
        tables = read_tables(places)
    except BadSettings as error:
        return [error.sentence()]
    parts = tables.pop("profiles", {})
    said = list(_wrong(dict(flat(tables)), ""))
    for profile, table in parts.items() if isinstance(parts, dict) else ():
        if isinstance(table, dict):
            said += _wrong(dict(flat(table)), f"profiles.{profile}: ")
        else:
            said.append(f"There is no setting profiles.{profile}.")
    return said + list(_wrong(from_environment(environ), "The environment: "))


def _wrong(found: Mapping[str, object], where: str) -> Iterator[str]:
    for name, value in found.items():
        if is_empty(name, value) or (value == {} and name in _SECTIONS):
            continue
        try:
            check_value(name, value)
        except ValueError as error:
            yield where + stopped(str(error))
    if ("network.web_certificate" in found) != ("network.web_key" in found):
        yield f"{where}{TOGETHER}."
    yield from (f"{where}{each}" for each in preferences(found).warnings if "does not say which" in each)


def commented() -> str:
    """A settings file in which everything has its default and says what it means."""
    lines = [
        "# The settings of zerochat. `zerochat config check` reads this file as the program does; in the chat, /set",
        "# changes it and keeps what you have written. What stands under a profile's name, as in",
        "# [profiles.work.chat], counts for that one alone.",
    ]
    section = ""
    for option in OPTIONS.values():
        if option.section != section:
            section = option.section
            lines += ["", f"# {_SECTIONS[section]}", f"[{section}]"]
        lines.append(f"# {option.key}: {option.meaning}.")
        if option.values and not option.is_flag:
            lines += _listed(option.values)
        if option.default is None or option.default == []:
            lines.append(f"# {option.key} = {written(option.example)}")
        else:
            lines.append(f"{option.key} = {written(option.default)}")
    lines += [
        "",
        "# What holds in one group, by its name or its id.",
        '# [chat.groups."hikers"]',
        '# notify = "all"',
        "",
        "# Other keys, by the name of what they do; /set in the chat lists the names.",
        "[chat.keys]",
        '# "go.switch" = "ctrl+g"',
    ]
    return "\n".join(lines) + "\n"


def _listed(values: tuple[str, ...]) -> list[str]:
    """The values in comment lines of a width that everybody can read."""
    lines, line = [], "#  "
    for value in values:
        if len(line) + len(value) + 1 > 100:
            lines.append(line)
            line = "#  "
        line += f" {value}"
    return [*lines, line]
