"""The plain chat: line-based input and output for screen readers, simple terminals and pipes.

chat          the session: parses input lines, keeps the current group and the draft
printer       prints notifications
subscription  receives notifications in a second thread and prints them between two input lines
commands      slash commands, most of them the verbs of the same name
input         input lines from a terminal with line editing, or from a pipe
"""

from zerochat.cli.agent_access import attached
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output

__all__ = ["plain_chat"]


def plain_chat(options: Options, out: Output) -> int:
    """Chat until the end of the input, Ctrl+C or `/quit`."""
    from zerochat.cli.plain_chat.chat import Chat
    from zerochat.cli.plain_chat.input import input_lines

    with attached(options, "plain") as agent, input_lines(lambda line, word: chat.completions(line, word)) as lines:
        chat = Chat(options, out, agent, lines)
        return chat.run()
