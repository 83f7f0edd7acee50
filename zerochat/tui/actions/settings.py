"""The commands /set, /mute, /unmute, /profile and /tour.

A setting is written to the file first and applied afterwards: a rejected value changes nothing on the screen.
"""

from functools import partial

from zerochat.agent.settings.options import AT_ONCE, GROUPS, KEYS, OPTIONS, full_name, typed, written
from zerochat.agent.settings.values import LEVELS
from zerochat.errors import LocalError
from zerochat.rpc import NoParams
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.actions.targets import report_usage
from zerochat.tui.base_app import app_of
from zerochat.tui.chat_view import ChatView
from zerochat.tui.composer.arguments import DEFAULT
from zerochat.tui.style.text import name_of

# --- /set -----------------------------------------------------------------------------------------------------------


def set_command(chat: ChatView, argument: str) -> None:
    """`/set`, `/set NAME`, `/set NAME VALUE`."""
    name, value = _split(argument)
    if not name:
        from zerochat.tui.dialogs.settings import SettingsDialog

        chat.app.push_screen(
            SettingsDialog(chat, app_of(chat).settings_store, partial(apply_setting, chat, quiet=True))
        )
    elif not value:
        chat.report(printable_line(_describe(chat, full_name(name))))
    else:
        apply_setting(chat, full_name(name), value)


def apply_setting(chat: ChatView, name: str, text: str, *, quiet: bool = False) -> None:
    """Store and apply a setting, and report it; `quiet`: report only errors and overrides."""
    app = app_of(chat)
    value = None if text == DEFAULT else typed(name, text)
    before = app.settings_store.current
    try:
        if name.startswith(KEYS) and value is not None and (why := _unknown_key(name.removeprefix(KEYS), str(value))):
            chat.report_error(printable_line(f"{why} Nothing changed."))
            return
        however = app.settings_store.set(name, value)
    except LocalError as error:
        chat.report_error(printable(error.sentence()))
        return
    except OSError as error:
        chat.report_error(
            printable_line(
                f"The settings file cannot be written: {(error.strerror or str(error)).lower()}. Nothing changed."
            )
        )
        return
    app.apply_changes(before)
    if app.settings_store.places is not None and name in AT_ONCE:
        chat.run_request(_reload_agent(chat))
    if name == "chat.theme" and app.no_color:
        however = "NO_COLOR is set, so no colours are shown"
    state = f"{name} is {'reset to its default' if value is None else f'now {written(value)}'}"
    if however or not quiet:
        chat.report(printable_line(f"{state}, but {however}." if however else f"{state}."), trouble=bool(however))


async def _reload_agent(chat: ChatView) -> None:
    await chat.link.request("reload_settings", NoParams(), NoParams)
    await chat.feed.refresh()
    chat.on_status(await chat.feed.status())


def _split(argument: str) -> tuple[str, str]:
    """(name, value). A group's name may contain spaces, a notification level cannot."""
    argument = argument.strip()
    if argument.startswith((GROUPS, GROUPS.removeprefix("chat."))):
        name, _, value = argument.rpartition(" ")
        return (name.strip(), value) if name.endswith(".notify") else (argument, "")
    name, _, value = argument.partition(" ")
    if "=" in name and not value:
        name, _, value = name.partition("=")
    return name.strip(), value.strip().removeprefix("= ")


def _describe(chat: ChatView, name: str) -> str:
    from zerochat.agent.settings.options import check_value

    store = app_of(chat).settings_store
    if name in OPTIONS:
        option = OPTIONS[name]
        value = store.value_of(name)
        return f"{name} = {value or 'not set'}: {option.meaning}."
    own = store.current.keys.get(name.removeprefix(KEYS)) if name.startswith(KEYS) else None
    if own:
        return f"{name} = {own}"
    try:
        check_value(name, "")
    except ValueError as error:
        if not name.startswith((KEYS, GROUPS)):
            return str(error)
    return f"{name} is not set."


def _unknown_key(id: str, keys: str) -> str:
    """Why these keys are rejected for an action, as a sentence; empty: accepted."""
    from zerochat.tui.style.keymaps import unknown_names

    return next(unknown_names({id: keys}), "")


# --- /mute and /unmute ------------------------------------------------------------------------------------------------


def mute(chat: ChatView, argument: str) -> None:
    """`/mute`, `/mute mentions`, `/mute for 2h`."""
    from zerochat.tui.host.notify import duration_s, duration_text

    conversation = chat.conversations.open
    if conversation is None:
        from zerochat.tui.state.hints import NO_GROUP

        chat.report_error(NO_GROUP)
        return
    words = argument.lower().split()
    name = name_of(conversation.info.name)
    if words[:1] == ["for"]:
        if len(words) != 2 or (seconds := duration_s(words[1])) is None:
            report_usage(chat, "mute", "for 2h")
            return
        chat.notification_policy.mute_for(conversation.info.id, seconds)
        chat.set_timer(seconds + 1, chat.draw_lists)
        chat.report(printable_line(f"{name} is muted for {duration_text(seconds)}."))
    elif not words or (len(words) == 1 and words[0] in LEVELS):
        chat.notification_policy.unmute(conversation.info.id)
        level = words[0] if words else "none"
        apply_setting(chat, f"{GROUPS}{conversation.info.id}.notify", level, quiet=True)
        texts = {
            "none": f"{name} is muted. /unmute ends it.",
            "mentions": f"{name} notifies you of mentions only. /unmute ends it.",
            "all": f"{name} notifies you of all messages.",
        }
        chat.report(printable_line(texts[level]))
    else:
        report_usage(chat, "mute", "for 2h")
    chat.draw_lists()


def unmute(chat: ChatView, argument: str) -> None:
    """`/unmute`: reset the notification level of the open group."""
    conversation = chat.conversations.open
    if conversation is None:
        mute(chat, argument)  # reports that no group is open
        return
    chat.notification_policy.unmute(conversation.info.id)
    apply_setting(chat, f"{GROUPS}{conversation.info.id}.notify", DEFAULT, quiet=True)
    chat.report(printable_line(f"{name_of(conversation.info.name)} is no longer muted."))
    chat.draw_lists()


# --- /profile and /tour ---------------------------------------------------------------------------------------------


def profile(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.dialog import TextDialog, rows

    places = app_of(chat).settings_store.places
    if places is None:
        chat.report(Printable("This chat runs without a profile."))
        return
    facts = [
        ("profile", places.profile),
        ("name", chat.nick),
        ("settings", str(places.config)),
        ("data", str(places.data)),
        ("log", str(places.log)),
        ("socket", str(places.socket)),
        ("", "zerochat --profile NAME opens another one; `zerochat init --name NAME` creates one."),
    ]
    dialog = TextDialog(Printable("Profile"), rows([(left, printable_line(right)) for left, right in facts], 10))
    chat.app.push_screen(dialog)


def tour(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.help import first_keys
    from zerochat.tui.dialogs.tour import TourDialog

    keys = first_keys(chat, chat.composer, chat.pane, chat.app)

    def write(letter: str) -> None:
        chat.composer.insert(letter)

    chat.app.push_screen(TourDialog(chat, keys, write))
