"""Finds the bot in somebody's file, for `zerochat bot run` and for tests: without running it."""

import importlib.util
import sys
from pathlib import Path

from zerochat.bot.bot import Bot
from zerochat.bot.import_guard import holding_back
from zerochat.errors import LocalError


class NoBotThere(LocalError):
    """There is no bot in {path}. It needs one at its top level: `bot = Bot(profile="default")`."""

    exit_code = 2


class SeveralBots(LocalError):
    """There are several bots in {path}: {names}. Say which one: `zerochat bot run {path}:NAME`."""

    exit_code = 2


class NoSuchFile(LocalError):
    """There is no file {path}."""

    exit_code = 2


def place_of(place: str | Path) -> tuple[Path, str]:
    """The file, and the name of the bot in it (empty: the only one). Raises NoSuchFile."""
    text, _, name = str(place).partition(".py:")
    path = Path(text + (".py" if name else ""))
    if not path.is_file():
        raise NoSuchFile(path=path)
    return path, name


def load(place: str | Path) -> Bot:
    """The bot in a file (`app.py`), or the one of several that is called so (`app.py:bot`). Its `bot.run()` does
    nothing meanwhile. Raises NoBotThere, SeveralBots or NoSuchFile, and whatever the file raises."""
    path, name = place_of(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise NoBotThere(path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # its own annotations are looked up there
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as Python does for a program
    with holding_back() as wanted:
        spec.loader.exec_module(module)
    named = {key: value for key, value in vars(module).items() if isinstance(value, Bot)}
    if name:
        if name not in named:
            raise NoBotThere(path=place)
        return named[name]
    bots = list({id(one): one for one in (*wanted, *named.values())}.values())
    if not bots:
        raise NoBotThere(path=path)
    if len(bots) > 1:
        raise SeveralBots(path=path, names=", ".join(named))
    return bots[0]
