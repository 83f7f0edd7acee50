"""The kinds of groups: keys, path and accountability, and what each kind gives and gives up, as sentences."""

from typing import Final

from msgspec import Struct

from zerochat.limits import KEYS_DEFAULT, MEMBERS_MAX_BY_PATH, RING_KEYS
from zerochat.presentation.group_rules import BadRules, one_of
from zerochat.rpc import GroupInfo


class Kind(Struct, frozen=True):
    """One kind of group."""

    name: str
    keys: str
    accountability: str
    title: str
    """A few words, for a choice."""
    gives: str
    gives_up: str
    path: str = "mesh"

    @property
    def sentences(self) -> str:
        return f"{self.gives} {self.gives_up}"

    @property
    def choice(self) -> str:
        """The name, which every other place uses, and the title."""
        return f"{self.name}: {self.title}"


KINDS: Final = (
    Kind(
        "private",
        KEYS_DEFAULT,
        "acks",
        "keys that heal, signed by the author",
        "Every message has a key of its own, the keys heal after a theft, and sending costs the same for any number of"
        " members.",
        "You can never deny what you wrote, since every message is signed.",
    ),
    Kind(
        "large",
        RING_KEYS,
        "acks",
        f"up to {MEMBERS_MAX_BY_PATH['ring']:,} members, each linked to a few",
        "For a club of 300: each member is linked to about a dozen others, which forward its messages. Up to 24 members"
        " each is linked to each, as in a private group. Keys heal after a theft.",
        "You can never deny what you wrote. Messages come over other members, so they take longer; receipts are a count"
        " that neighbours report, with names and times on request; and the first keys that a member gets from one that"
        " it is not linked to can be opened by a thief of its profile.",
        path="ring",
    ),
    Kind(
        "deniable",
        "deniable",
        "acks",
        "keys that heal, deniable",
        "Every message has a key of its own, the keys heal after a theft, and recipients know who wrote a message but"
        " cannot prove it, until the author signs a membership event.",
        "The size of an envelope reveals how many recipients it has, and nothing proves messages that others pass on.",
    ),
    Kind(
        "classic-multi",
        "pairwise-multi",
        "acks",
        "deniable, one envelope for each member",
        "Recipients know who wrote a message but cannot prove it, until the author signs a membership event; and an"
        " envelope reveals nothing about the other recipients.",
        "Sending costs the most, and stolen keys open recorded messages.",
    ),
    Kind(
        "classic-single",
        "pairwise-single",
        "acks",
        "deniable, one envelope for all",
        "Recipients know who wrote a message but cannot prove it, until the author signs a membership event; and it is"
        " encrypted only once for all of them.",
        "Its size reveals how many recipients it has, and stolen keys open recorded messages.",
    ),
    Kind(
        "signed",
        "sender-key",
        "acks",
        "signed by the author, one envelope for all",
        "Sending costs the same for any number of members, and any member can prove who wrote or received a message.",
        "You can never deny what you wrote, and a stolen profile opens recorded messages.",
    ),
    Kind(
        "accountable",
        "sender-key",
        "tlog",
        "signed, with a witnessed log; needs three members",
        "Any member can prove who wrote or received a message, and messages that are not acknowledged in time are"
        " entered in a log that members witness, which shows who withheld one.",
        "You can never deny what you wrote, messages cannot disappear, and a stolen profile opens recorded ones.",
    ),
)
"""The kinds that users can choose; the first is the default."""
DEFAULT: Final = KINDS[0].name
BY_NAME: Final = {kind.name: kind for kind in KINDS}
KEYS: Final = tuple(dict.fromkeys(kind.keys for kind in KINDS))
SIGNING_KEYS: Final = ("sender-key", "dcgka")
"""Keys with which authors sign their messages."""
TLOG_KEYS: Final = "sender-key"
"""The keys of a group with a transparency log; recipients sign their acknowledgements too."""
SIGNED: Final = (
    "Your messages here are signed: any member can prove to anyone what you wrote, and you can never deny it."
)


class Words(Struct, frozen=True):
    """One value of keys, path or accountability in words."""

    meaning: str
    short: str


_KEYS: Final = {
    "dcgka": Words(
        "one key per message, which heals after a theft; one envelope for all, signed by the author",
        "keys that heal, signed",
    ),
    "deniable": Words(
        "one key per message, which heals after a theft; one envelope for all, with a tag per member",
        "keys that heal, deniable",
    ),
    "pairwise-multi": Words("pairwise keys; one envelope per member", "encrypted for each"),
    "pairwise-single": Words(
        "pairwise keys; one envelope for all, with a section per member", "encrypted once for all"
    ),
    "sender-key": Words(
        "one key per author; one envelope for all, signed by the author", "encrypted once for all, signed"
    ),
}
_PATHS: Final = {
    "mesh": Words("every member connects to every other", "peer to peer"),
    "ring": Words("every member connects to its neighbours on a ring, which forward messages", "ring"),
}
_ACCOUNTABILITY: Final = {
    "acks": Words("you see who has received your messages", "receipts"),
    "tlog": Words(
        "you see who has received your messages, with signatures; messages not acknowledged in time are entered in a"
        " witnessed transparency log",
        "witnessed log",
    ),
}
_UNKNOWN: Final = Words("unknown to this version", "")


# --- creating a group -----------------------------------------------------------------------------------------------


def kind_to_create(name: str | None, keys: str | None) -> Kind:
    """The kind of this name, or the first one of these keys. Raises BadRules."""
    if name is None:
        return next(kind for kind in KINDS if kind.keys == (keys or KEYS_DEFAULT))
    one_of("kind", name, tuple(BY_NAME))
    kind = BY_NAME[name]
    if keys not in (None, kind.keys):
        raise BadRules(why=f"the kind `{name}` has the keys `{kind.keys}`, not `{keys}`")
    return kind


def name_and_kind(argument: str) -> tuple[str, str]:
    """The name (or "") and the kind in the argument of `/new`: `NAME` or `NAME --kind KIND`. Raises BadRules."""
    name, option, kind = f" {argument} ".rpartition(" --kind ")
    if not option:
        return argument, DEFAULT
    one_of("kind", kind.strip(), tuple(BY_NAME))
    return name.strip(), kind.strip()


def check_axes(accountability: str, keys: str, path: str, keep_ms: int = 0) -> None:
    """Raise BadRules for an invalid combination. `keep_ms`: the retention rule; 0: none."""
    one_of("path", path, tuple(_PATHS))
    if path == "ring" and keys != RING_KEYS:
        raise BadRules(why=f"a group on the ring requires the keys `{RING_KEYS}`, not `{keys}`")
    one_of("accountability", accountability, tuple(_ACCOUNTABILITY))
    if accountability == "tlog" and keys != TLOG_KEYS:
        raise BadRules(why=f"a transparency log requires the keys `{TLOG_KEYS}`, not `{keys}`")
    if accountability == "tlog" and keep_ms:
        raise BadRules(why="an accountable group keeps its messages as evidence, so they cannot disappear")


# --- meaning --------------------------------------------------------------------------------------------------------


def kind_of(info: GroupInfo) -> Kind | None:
    """The kind of a group; None: it is unknown to this version."""
    axes = info.keys, info.path, info.accountability
    return next((kind for kind in KINDS if (kind.keys, kind.path, kind.accountability) == axes), None)


def sentences_of(info: GroupInfo) -> str:
    """What the kind of a group gives and gives up, as two sentences; empty: it is unknown to this version."""
    kind = kind_of(info)
    return kind.sentences if kind is not None else ""


def meanings(info: GroupInfo) -> tuple[str, str, str]:
    """Keys, path and accountability of a group in words, without full stops."""
    keys, path, accountability = _words(info)
    acknowledged = accountability.meaning
    if info.accountability == "acks" and info.keys == TLOG_KEYS:
        acknowledged += ", with signatures"
    return keys.meaning, path.meaning, acknowledged


def short_texts(info: GroupInfo) -> tuple[str, str, str]:
    """The same for the top bar; what is unknown to this version by its name."""
    names = info.keys, info.path, info.accountability
    keys, path, accountability = (words.short or name for words, name in zip(_words(info), names, strict=True))
    return keys, path, accountability


def _words(info: GroupInfo) -> tuple[Words, Words, Words]:
    return (
        _KEYS.get(info.keys, _UNKNOWN),
        _PATHS.get(info.path, _UNKNOWN),
        _ACCOUNTABILITY.get(info.accountability, _UNKNOWN),
    )


def signing_warning(info: GroupInfo) -> str:
    """The warning that messages in this group are signed; empty if they are not."""
    return SIGNED if info.keys in SIGNING_KEYS else ""


def limitations(info: GroupInfo) -> list[str]:
    """What the group does not protect against, as sentences."""
    signatures = (
        "Messages are not signed: recipients know the author but cannot prove it, until the author signs a membership"
        " event, such as a new name, which references all earlier messages."
    )
    if info.keys in SIGNING_KEYS:
        signatures = SIGNED
    if info.keys == "pairwise-single":
        signatures += " A network observer can infer the number of members from the size of an envelope."
    removed = (
        "Removed members keep the messages they have received, and still receive messages of members who do not know of"
        " the removal yet."
    )
    return [signatures, removed]
