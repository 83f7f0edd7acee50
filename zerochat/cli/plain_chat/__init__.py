"""The chat as lines, for screen readers, terminals that cannot draw, and logs: what is said is printed as it comes, and
what is typed is sent; no colour, no cursor that moves, nothing that is drawn twice.

    chat    the conversation: what a line means, which group it goes to, how it ends
    teller  what is printed of what comes
    ear     the second line to the agent: what comes, printed between two lines of the person
    deeds   the commands, most of them the verbs of the same name
    typed   where lines come from: a terminal with an editor for the line, or a pipe
"""

from collections.abc import Callable

from zerochat.cli.agents import attached
from zerochat.cli.output import Output
from zerochat.cli.parser import Options

__all__ = ["plain"]


def plain(options: Options, out: Output, run_verb: Callable[[Options, Output], int]) -> int:
    """Talk until the input ends, Ctrl+C, or `/quit`. `run_verb` does a verb of the command line."""
    from zerochat.cli.plain_chat.chat import Chat
    from zerochat.cli.plain_chat.input import lines_from

    with attached(options, "plain") as agent, lines_from(lambda line, word: chat.words(line, word)) as lines:
        chat = Chat(options, out, agent, lines, run_verb)
        return chat.run()
