"""How /set and /mute are completed: the names of the settings, and the few words that they can be."""

from typing import Final

from zerochat.agent.settings.client_preferences import KEYS, LEVELS
from zerochat.agent.settings.options import OPTIONS, full_name
from zerochat.agent.settings.reader import PART_LETTERS_MIN

AS_USUAL: Final = "-"
"""As the value of a setting: what nobody has said anything about."""
_SHORT: Final = {name.partition(".")[2]: name for name in OPTIONS if name.startswith(("chat.", "share."))}
"""What a person sets most is found without its section."""


def words_for(text: str) -> list[str] | None:
    """What may stand behind `/set` and `/mute`, of what begins as `text` does; None: it is another command."""
    word, space, start = text.partition(" ")
    start = start.lstrip()
    if not space or "\n" in text or word.lower() not in ("/set", "/mute"):
        return None
    if word.lower() == "/mute":
        return [each for each in (*LEVELS, "for 1h", "for 8h", "for 1d") if each.startswith(start.lower())]
    name, space, value = start.partition(" ")
    if space:
        option = OPTIONS.get(full_name(name))
        few = option.values if option is not None else LEVELS if name.endswith(".notify") else ()
        return [f"{name} {each}" for each in few if each.startswith(value.lstrip().lower())]
    name = name.lower()
    names = [*_SHORT, *(each for each in OPTIONS if each not in _SHORT.values())]
    if name.startswith(("keys.", KEYS)):
        from zerochat.tui.style.keymaps import places_of_bindings

        prefix = KEYS if name.startswith(KEYS) else "keys."
        names = sorted({f"{prefix}{each.id}" for place in places_of_bindings() for each in place.bindings})
    elif "keys.".startswith(name):
        names.append("keys.")
    elif name.startswith(("chat.", "share.")):
        names = list(OPTIONS)
    begun = [each for each in names if each.startswith(name)]
    found = begun or [each for each in names if len(name) >= PART_LETTERS_MIN and name in each]
    return [f"{each} " if each != "keys." else each for each in found]
