"""One table of all settings: name, meaning, check, default and when a change applies.

The readers, the settings file template, completion, dialogs and the manual derive from it.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from zerochat.agent.settings import values
from zerochat.agent.settings.config_file import value_of
from zerochat.agent.settings.values import ALWAYS, Check, checked, number, unknown_setting
from zerochat.limits import INDICATOR_MEMBERS_MAX

CHAT: Final = "chat."
"""The prefix of settings that only clients use."""
KEYS: Final = "chat.keys."
GROUPS: Final = "chat.groups."
KEY_MESSAGES_MAX, KEY_DAYS_MAX, KEY_REMOVALS_MAX = 256, 90, 16
"""As in the core, which the chat does not import before its first frame."""
MAIL_DELAY_S_MAX: Final = 3_600
FILE_MEBIBYTES_MAX: Final = 1 << 10
HIDDEN: Final = "network.hidden"
_FLAG: Final = ("true", "false")


class Option(Struct, frozen=True):
    name: str
    meaning: str
    """A sentence without its full stop."""
    check: Check
    default: object = None
    """None: nothing, as the meaning explains."""
    choices: tuple[str, ...] = ()
    """The possible values, where they are a few words."""
    example: object = None
    at_once: bool = False
    """A running agent applies a change; otherwise it applies at the next start. Clients always apply theirs."""

    @property
    def section(self) -> str:
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        return self.name.partition(".")[2]

    @property
    def is_flag(self) -> bool:
        return self.choices == _FLAG

    @property
    def takes_flag(self) -> bool:
        """Whether true and false are among its values."""
        return self.choices[: len(_FLAG)] == _FLAG


def _flag(name: str, meaning: str, default: bool, *, at_once: bool = False) -> Option:
    return Option(name, meaning, values.flag, default, _FLAG, at_once=at_once)


def _choice(name: str, meaning: str, default: str, choices: tuple[str, ...], *, at_once: bool = False) -> Option:
    return Option(name, meaning, values.choice(choices), default, choices, at_once=at_once)


OPTIONS: Final[Mapping[str, Option]] = {
    option.name: option
    for option in (
        _choice("chat.theme", "the colours; the first four are zerochat's own", "dark", values.THEMES),
        _choice("chat.keymap", "the key bindings", "default", values.KEYMAPS),
        _choice(
            "chat.letters",
            "what letters do while a message is selected: they are typed in the composer, or act on the message, as"
            " they always do after F6",
            "type",
            values.LETTERS,
        ),
        _flag("chat.markdown", "render *emphasis* and `code` in messages", True),
        _flag("chat.folded", "combine consecutive joins, leaves and renames in one line", True),
        _flag("chat.mouse", "use the mouse, but not in GNU screen; without it the terminal selects text", True),
        Option(
            "chat.time_format",
            'the time beside a message, as in strftime: "%H:%M:%S", "%d %b %H:%M", "%I:%M %p"; empty: none',
            values.time_format,
            "%H:%M",
        ),
        Option(
            "chat.nick_width",
            "columns for the names beside the messages; 0: by the width of the window",
            number("columns", 0, 32),
            0,
        ),
        _flag("chat.sidebar", "show the list of conversations, in windows of at least 80 columns", True),
        Option(
            "chat.sidebar_width",
            "columns for that list, at most half of the window; 0: by the width of the window",
            number("columns", 0, 60),
            0,
        ),
        _choice(
            "chat.read_trigger",
            "when messages in the open conversation count as read: while the window has the focus, whenever they are"
            " visible, or only after you have sent something there",
            "focused",
            values.TRIGGERS,
        ),
        _choice("chat.notify", "which messages notify you while the chat is not in view", "mentions", values.LEVELS),
        Option("chat.notify_how", "how to notify: one or more, separated by commas", values.ways, "bell", values.WAYS),
        Option(
            "chat.notify_command",
            "the program and arguments for `command`; no shell reads it, and it gets JSON on standard input",
            values.command,
            [],
            example=["notify-send", "zerochat"],
        ),
        _flag("chat.tour", "show a tour at the first start of a profile", True),
        Option(
            "network.listen",
            "the address for peers; with it, --listen and --advertise apply to one run only",
            values.listen,
            example="0.0.0.0:4242:4243",
        ),
        _flag("network.port_fallback", "listen on any free port when the requested one is in use", False),
        Option("network.advertise", "the IP address that peers connect to", values.advertise, example="203.0.113.7"),
        Option("network.socks", "a SOCKS5 proxy for all outgoing connections", values.socks, example="127.0.0.1:9050"),
        Option(
            HIDDEN,
            "announce no address; always: connect to your own mediators only, which send for you",
            values.hidden,
            False,
            (*_FLAG, ALWAYS),
            at_once=True,
        ),
        _flag("network.cover", "send cover traffic about every 20 seconds", False),
        Option("network.web", "the address for HTTP and WebSocket", values.web_listen, example="0.0.0.0:8080"),
        Option(
            "network.web_public", "the public URI of that address", values.web_uri, example="https://chat.example.org"
        ),
        Option("network.web_certificate", "a PEM file for https and wss", values.text, example="chain.pem"),
        Option("network.web_key", "the key of that certificate, a PEM file", values.text, example="key.pem"),
        Option(
            "network.web_authorities",
            "a PEM file of certificate authorities to trust in addition to the system's",
            values.text,
            example="ca.pem",
        ),
        _choice(
            "network.near_mediators",
            "how near the mediators of others may be where your own address, or mediator, is not as near: public"
            " addresses only, private ones too, or this machine (loopback) too",
            "public",
            values.NEARNESS,
        ),
        Option(
            "network.mail_delay",
            "seconds that a member's mediator is asked to hold your messages, so that their times tell less; 0: none",
            number("seconds", 0, MAIL_DELAY_S_MAX),
            0,
            at_once=True,
        ),
        _flag("network.mail_delay_random", "hold each for a random time up to that", True, at_once=True),
        Option(
            "network.mail_mix",
            "percent of your messages that a zerochat mediator is asked to send over another one"
            " (`zerochat mediator --mix-with LINK`)",
            number("percent", 0, 99),
            0,
            at_once=True,
        ),
        Option(
            "agent.lock_after",
            "minutes of inactivity until the chat locks, in a profile with a passphrase; 0: never",
            number("minutes", 0, 7 * 24 * 60),
            0,
        ),
        _choice("agent.log_level", "the lowest level that is logged", "info", values.LOG_LEVELS, at_once=True),
        Option(
            "agent.drain",
            "seconds that a stopping agent may use to send pending messages",
            number("seconds", 0, 60),
            5,
            at_once=True,
        ),
        _flag(
            "agent.protect_memory",
            "keep the agent's memory, which has keys, from debuggers and core dumps, and from swap where the limit of"
            " locked memory allows; false: for a debugger or profiler",
            True,
        ),
        Option(
            "hooks.on_message",
            "the program and arguments that `zerochat agent` runs for each message of others; no shell reads it, and"
            " it gets the event as JSON on standard input",
            values.command,
            [],
            example=["/usr/local/bin/on-message"],
            at_once=True,
        ),
        Option(
            "hooks.on_mention",
            "the same for messages that mention you",
            values.command,
            [],
            example=["notify-send", "zerochat", "You were mentioned"],
            at_once=True,
        ),
        Option("hooks.timeout", "seconds after which a hook is killed", number("seconds", 1, 600), 10, at_once=True),
        _flag(
            "share.read_receipts",
            "exchange read receipts with members that you are connected to, in groups of at most"
            f" {INDICATOR_MEMBERS_MAX}",
            False,
            at_once=True,
        ),
        _flag(
            "share.typing",
            "exchange typing indicators with the same members, in the same groups",
            False,
            at_once=True,
        ),
        Option(
            "signing.key_messages",
            "in groups with signed messages, replace your sending key after this many messages",
            number("messages", 1, KEY_MESSAGES_MAX),
            KEY_MESSAGES_MAX,
            at_once=True,
        ),
        Option(
            "signing.key_days", "and replace it after this many days", number("days", 1, KEY_DAYS_MAX), 7, at_once=True
        ),
        Option(
            "signing.key_removals",
            "and replace it when this many members have left or were removed; with more than 1, they can read your"
            " messages until then if they obtain them",
            number("removals", 1, KEY_REMOVALS_MAX),
            1,
            at_once=True,
        ),
        Option(
            "files.auto_max",
            "MiB; a file up to this size is downloaded automatically; 0: only on request",
            number("MiB", 0, FILE_MEBIBYTES_MAX),
            1,
            at_once=True,
        ),
        Option(
            "files.size_max",
            "MiB; a larger file is neither sent nor downloaded",
            number("MiB", 1, FILE_MEBIBYTES_MAX),
            64,
            at_once=True,
        ),
        Option(
            "files.total_max",
            "MiB for the files of all groups together",
            number("MiB", 1, 1 << 24),
            2_048,
            at_once=True,
        ),
        Option(
            "storage.daily_max",
            "MiB that the messages of one member may take here in a group and day; what exceeds it comes later; 0: no"
            " limit",
            number("MiB", 0, 1 << 24),
            1_024,
            at_once=True,
        ),
        Option(
            "storage.keep",
            "how long messages of all groups are kept on this machine, such as 12h, 30d or 4w; a group's rule or your"
            " choice for a conversation may be shorter",
            values.keep,
            "forever",
            at_once=True,
        ),
        _flag(
            "telemetry.allowed",
            "false forbids delivery telemetry; true allows you to turn it on (`zerochat telemetry on`)",
            True,
            at_once=True,
        ),
        Option(
            "telemetry.megabytes",
            "MiB of telemetry to keep; the oldest is deleted first",
            number("MiB", 1, 1 << 10),
            64,
            at_once=True,
        ),
        Option("telemetry.days", "days to keep telemetry", number("days", 1, 366), 30, at_once=True),
    )
}
CHECKS: Final[Mapping[str, Check]] = {name: each.check for name, each in OPTIONS.items() if not name.startswith(CHAT)}
"""The settings of the agent."""
CHAT_CHECKS: Final[Mapping[str, Check]] = {name: each.check for name, each in OPTIONS.items() if name.startswith(CHAT)}
AT_ONCE: Final = frozenset(name for name, each in OPTIONS.items() if each.at_once)
"""The other settings of the agent concern open sockets and addresses that peers know."""
SECTIONS: Final = {
    "chat": "The chat.",
    "network": "Addresses and connections of the agent.",
    "agent": "The agent.",
    "hooks": "Programs that run for messages.",
    "share": "Indicators. They are only received where they are also sent.",
    "signing": "Key rotation in groups with signed messages.",
    "files": "Disk space for files.",
    "storage": "Disk space for messages.",
    "telemetry": "Delivery telemetry. It is off unless you turn it on.",
}


def is_group_setting(name: str) -> bool:
    """Whether it is chat.groups.GROUP.notify."""
    return name.startswith(GROUPS) and name.endswith(".notify") and bool(group_of(name))


def group_of(name: str) -> str:
    """The group in chat.groups.GROUP.notify."""
    return name.removeprefix(GROUPS).removesuffix("notify").removesuffix(".")


def is_empty_table(name: str, value: object) -> bool:
    """Whether it is an empty table of keys or groups."""
    return value == {} and (f"{name}." == KEYS or f"{name}.".startswith(GROUPS))


def check_value(name: str, value: object) -> object:
    """The value in canonical form. Raises ValueError with a sentence for an unknown name or an invalid value."""
    if name in OPTIONS:
        return checked(name, OPTIONS[name].check, value)
    if name.startswith(KEYS) and name != KEYS:
        return checked(name, values.keys, value)
    if is_group_setting(name):
        return checked(name, values.level, value)
    raise ValueError(unknown_setting(name, OPTIONS))


def written(value: object) -> str:
    """A value in TOML, which for these types equals JSON."""
    import json

    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def applies_at_once(name: str, value: object) -> bool:
    """Whether a running agent applies this value of a setting: it closes sockets at once, and opens none."""
    return name in AT_ONCE and (name != HIDDEN or value == ALWAYS)


def typed(name: str, text: str) -> object:
    """The value that a user types; flags also accept on, off, yes and no."""
    value = value_of(text)
    if name in OPTIONS and OPTIONS[name].takes_flag and isinstance(value, str):
        return {"on": True, "yes": True, "off": False, "no": False}.get(value.lower(), value)
    return str(text).strip() if name.startswith(KEYS) else value


def full_name(name: str) -> str:
    """The full name of a setting that a user abbreviates: "theme" is chat.theme, "receipts" is share.read_receipts."""
    if name in OPTIONS or name.startswith((KEYS, GROUPS)):
        return name
    if name.startswith(("keys.", "groups.")):
        return CHAT + name
    fitting = [each for each in OPTIONS if each.endswith(f".{name}")] or [
        each for each in OPTIONS if name in each.replace(".", "_").split("_")
    ]
    return fitting[0] if len(fitting) == 1 else name
