"""What /set, /mute, /profile and /tour do.

A setting is written first and true afterwards: what the file does not take has changed nothing on the screen either.
"""

from functools import partial

from zerochat.agent.settings.client_preferences import GROUPS, KEYS, LEVELS
from zerochat.agent.settings.options import OPTIONS, full_name, typed, written
from zerochat.agent.settings.reload import AT_ONCE
from zerochat.errors import LocalError
from zerochat.rpc import NoParams
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.chat_view import Board, app_of
from zerochat.tui.composer.setting_completion import AS_USUAL
from zerochat.tui.style.text import name_of

# --- /set -----------------------------------------------------------------------------------------------------------


def change(chat: Board, rest: str) -> None:
    """`/set`, `/set NAME`, `/set NAME VALUE`."""
    name, value = _split(rest)
    if not name:
        from zerochat.tui.dialogs.settings import SettingsSheet

        chat.app.push_screen(SettingsSheet(chat, app_of(chat).choices, partial(put, chat, quiet=True)))
    elif not value:
        chat.tell(printable_line(_as_it_is(chat, full_name(name))))
    else:
        put(chat, full_name(name), value)


def put(chat: Board, name: str, text: str, *, quiet: bool = False) -> None:
    """Let a setting be what is typed, and say so; `quiet`: only where something stands against it."""
    app = app_of(chat)
    value = None if text == AS_USUAL else typed(name, text)
    before = app.choices.now
    try:
        if name.startswith(KEYS) and value is not None and (why := _no_such(name.removeprefix(KEYS), str(value))):
            chat.complain(printable_line(f"Nothing was changed: {why}"))
            return
        however = app.choices.set(name, value)
    except LocalError as error:
        chat.complain(printable(error.sentence()))
        return
    except OSError as error:
        chat.complain(printable_line(f"Nothing was changed: {(error.strerror or str(error)).lower()}."))
        return
    app.take_over(before)
    if app.choices.places is not None and name in AT_ONCE:
        chat.attempt(_have_agent_take_over(chat))
    if name == "chat.theme" and app.no_color:
        however = "NO_COLOR is set, and there are no colours"
    said = f"{name} is {'as usual' if value is None else written(value)}"
    if however or not quiet:
        chat.tell(printable_line(f"{said}, but {however}." if however else f"{said}."))


async def _have_agent_take_over(chat: Board) -> None:
    await chat.link.ask("reload", NoParams(), NoParams)
    chat.status_told(await chat.feed.status())


def _split(rest: str) -> tuple[str, str]:
    """The name and the value. What a group is called may have spaces; what it can be has none."""
    rest = rest.strip()
    if rest.startswith((GROUPS, GROUPS.removeprefix("chat."))):
        name, _, value = rest.rpartition(" ")
        return (name.strip(), value) if name.endswith(".notify") else (rest, "")
    name, _, value = rest.partition(" ")
    if "=" in name and not value:
        name, _, value = name.partition("=")
    return name.strip(), value.strip().removeprefix("= ")


def _as_it_is(chat: Board, name: str) -> str:
    from zerochat.agent.settings.options import check_value

    choices = app_of(chat).choices
    if name in OPTIONS:
        option = OPTIONS[name]
        value = choices.value_of(name)
        return f"{name} = {value or 'nothing'}: {option.meaning}."
    own = choices.now.keys.get(name.removeprefix(KEYS)) if name.startswith(KEYS) else None
    if own:
        return f"{name} = {own}"
    try:
        check_value(name, "")
    except ValueError as error:
        if not name.startswith((KEYS, GROUPS)):
            return str(error)
    return f"{name}: nothing is said."


def _no_such(id: str, keys: str) -> str:
    """Why an action cannot have these keys, in a sentence, if it cannot."""
    from zerochat.tui.style.keymaps import doubts

    return next((each.removeprefix("chat.keys: ") for each in doubts("default", {id: keys}) if " no " in each), "")


# --- /mute and /unmute ------------------------------------------------------------------------------------------------


def mute(chat: Board, rest: str) -> None:
    """`/mute`, `/mute mentions`, `/mute for 2h`."""
    from zerochat.tui.host.notify import duration_s, duration_text

    conversation = chat.conversations.open
    if conversation is None:
        from zerochat.tui.state.hints import NO_GROUP

        chat.complain(NO_GROUP)
        return
    words = rest.lower().split()
    name = name_of(conversation.info.name)
    if words[:1] == ["for"]:
        if len(words) != 2 or (seconds := duration_s(words[1])) is None:
            chat.complain(Printable("/mute for takes a time such as 30m, 2h or 1d, at most 30d: /mute for 2h"))
            return
        chat.herald.mute_for(conversation.info.id, seconds)
        chat.set_timer(seconds + 1, chat.redraw_lists)
        chat.tell(printable_line(f"{name} tells you nothing for {duration_text(seconds)}."))
    elif not words or (len(words) == 1 and words[0] in LEVELS):
        chat.herald.unmute(conversation.info.id)
        level = words[0] if words else "none"
        put(chat, f"{GROUPS}{conversation.info.id}.notify", level, quiet=True)
        told = {
            "none": f"{name} is muted: it tells you nothing. /unmute ends that.",
            "mentions": f"{name} tells you of mentions only. /unmute ends that.",
            "all": f"{name} tells you of all messages.",
        }
        chat.tell(printable_line(told[level]))
    else:
        chat.complain(Printable("/mute takes none, mentions, all, or for and a time: /mute mentions, /mute for 2h"))
    chat.redraw_lists()


def unmute(chat: Board, rest: str) -> None:
    """What `/mute` has done in this group holds no more."""
    conversation = chat.conversations.open
    if conversation is None:
        mute(chat, rest)  # which says that there is no group
        return
    chat.herald.unmute(conversation.info.id)
    put(chat, f"{GROUPS}{conversation.info.id}.notify", AS_USUAL, quiet=True)
    chat.tell(printable_line(f"{name_of(conversation.info.name)} is muted no more."))
    chat.redraw_lists()


# --- /profile and /tour ---------------------------------------------------------------------------------------------


def profile(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.dialog import Sheet, rows

    places = app_of(chat).choices.places
    if places is None:
        chat.tell(Printable("This chat has no profile of its own."))
        return
    facts = [
        ("profile", places.profile),
        ("name", chat.nick),
        ("settings", str(places.config)),
        ("data", str(places.data)),
        ("log", str(places.log)),
        ("socket", str(places.socket)),
        ("", "zerochat --profile NAME opens another one; `zerochat init` makes one."),
    ]
    sheet = Sheet(Printable("Profile"), rows([(left, printable_line(right)) for left, right in facts], 10))
    chat.app.push_screen(sheet)


def tour(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.help import keys_of_all
    from zerochat.tui.dialogs.tour import TourScreen

    keys = keys_of_all(chat, chat.composer, chat.pane, chat.app)

    def write(letter: str) -> None:
        chat.composer.insert(letter)

    chat.app.push_screen(TourScreen(chat, keys, write))
