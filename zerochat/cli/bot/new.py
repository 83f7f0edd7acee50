"""`zerochat bot new`: writes a bot and its test, or copies an example."""

import re
from pathlib import Path

from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output, narrate
from zerochat.errors import LocalError

EXAMPLES = ("ping", "ci", "reminder", "relay")
APP = """\
from zerochat import Bot, Message

bot = Bot(name="{name}")


@bot.command("hello", help="say hello")
async def hello(m: Message, name: str = "") -> None:
    await m.reply(f"Hello, {{name or m.author}}!")


if __name__ == "__main__":
    bot.run()
"""
TEST = """\
from {name} import bot

from zerochat.testing import Group, run


def test_it_greets_over_a_lossy_network() -> None:
    async def scenario() -> None:
        async with Group(members=2, bots=[bot], loss=0.2, reorder=True, seed=1) as group:
            await group.send("alice", "!hello")
            await group.settle()
            assert group.converged()
            assert (await group.texts("bob"))[-1] == "Hello, alice!"

    run(scenario())
"""


class Exists(LocalError):
    """{path} already exists. Choose another name."""


def new_bot(options: Options, out: Output) -> ExitCode:
    name = options.name
    assert name is not None
    if options.example is None:
        files = {Path(f"{name}.py"): APP.format(name=name), Path(f"test_{name}.py"): TEST.format(name=name)}
    else:
        from importlib import resources

        source = resources.files("zerochat.bot.examples").joinpath(f"{options.example}.py").read_text(encoding="utf-8")
        files = {Path(f"{name}.py"): re.sub(r'Bot\(name="\w+"\)', f'Bot(name="{name}")', source)}
    for path in files:
        if path.exists():
            raise Exists(path=path)
    for path, text in files.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    out.data({"files": [str(path) for path in files]}, [str(path) for path in files])
    narrate(f"Try it: `zerochat bot run {name}.py --console`. Run it in a profile of its own, which joins a group:")
    narrate(f"  `zerochat --profile {name} init --name {name}`")
    narrate(f"  `zerochat --profile {name} join`")
    narrate(f"  `zerochat --profile {name} bot run {name}.py`")
    return ExitCode.OK
