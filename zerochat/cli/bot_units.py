"""The actions unit and container of the verb bot: they print, and whoever reads it decides."""

from pathlib import Path

from zerochat.cli.agents import places_of
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, narrate
from zerochat.cli.parser import Options
from zerochat.cli.units import bot_unit
from zerochat.cli.units import container as container_file


def unit(options: Options, out: Output) -> ExitCode:
    out.exactly(bot_unit(places_of(options), _name(options), _app(options)).rstrip("\n"))
    return ExitCode.OK


def container(options: Options, out: Output) -> ExitCode:
    app = None if options.agent_alone else _app(options)
    out.exactly(container_file(_name(options), app, profile=places_of(options).profile).rstrip("\n"))
    return ExitCode.OK


def _name(options: Options) -> str:
    assert options.name is not None
    return options.name


def _app(options: Options) -> Path:
    """The bot's file, which need not be there yet."""
    path = Path(options.path or f"{_name(options)}.py").expanduser()
    if not path.exists():
        narrate(f"There is no {path} yet; `zerochat bot new` writes one.")
    return path
