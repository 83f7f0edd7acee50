"""Loads a bot from a Python file without running it, for `zerochat bot run` and for tests."""

import importlib.util
import sys
from pathlib import Path

from zerochat.bot.bot import Bot, defer_runs
from zerochat.errors import LocalError


class NoBotFound(LocalError):
    """No bot found in {path}. Define one at the top level: `bot = Bot(profile="default")`."""

    exit_code = 2


class SeveralBots(LocalError):
    """{path} defines several bots: {names}. Choose one: `zerochat bot run {path}:NAME`."""

    exit_code = 2


class NoBotFile(LocalError):
    """File not found: {path}."""

    exit_code = 2


def parse_target(place: str | Path) -> tuple[Path, str]:
    """The file, and the name of the bot in it (empty: the only one). Raises NoBotFile."""
    text, _, name = str(place).partition(".py:")
    path = Path(text + (".py" if name else ""))
    if not path.is_file():
        raise NoBotFile(path=path)
    return path, name


def load(place: str | Path) -> Bot:
    """The bot defined in a file (`app.py`), or the named one (`app.py:bot`). Its `bot.run()` has no effect while the
    file is loaded. Raises NoBotFound, SeveralBots, NoBotFile, and any exception of the file."""
    path, name = parse_target(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise NoBotFound(path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # `get_type_hints` resolves annotations there
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as Python does for a script
    with defer_runs() as wanted:
        spec.loader.exec_module(module)
    named = {key: value for key, value in vars(module).items() if isinstance(value, Bot)}
    if name:
        if name not in named:
            raise NoBotFound(path=place)
        return named[name]
    bots = list({id(one): one for one in (*wanted, *named.values())}.values())
    if not bots:
        raise NoBotFound(path=path)
    if len(bots) > 1:
        raise SeveralBots(path=path, names=", ".join(named))
    return bots[0]
