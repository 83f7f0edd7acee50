"""The grammar of the verbs for what becomes of a message, and for what a group is about."""

from zerochat.cli.grammar import Parser, Verbs, add_verb, group_argument, message_argument


def add_amend(verbs: "Verbs[Parser]") -> None:
    """Declare the verbs react, edit, delete and topic."""
    _react(verbs)
    _edit(verbs)
    _delete(verbs)
    _topic(verbs)


def _react(verbs: "Verbs[Parser]") -> None:
    react = add_verb(
        verbs,
        "react",
        "answer a message with an emoji",
        "Answer a message with an emoji, or take that back with --off. Everybody in the group sees who has. Prints\n"
        "the id of the event.",
        """
zerochat react hikers last:bob 👍
zerochat react hikers Yk3v 👍 --off
""",
    )
    message_argument(react)
    react.add_argument("emoji", metavar="EMOJI", help="one emoji, or another sign that is no letter")
    react.add_argument("--off", action="store_true", help="take it back")


def _edit(verbs: "Verbs[Parser]") -> None:
    edit = add_verb(
        verbs,
        "edit",
        "give one of your messages another text",
        "Give one of your messages another text: that of -m, or standard input. Everybody is shown the new one, and\n"
        "that it was edited. What it was before stays in everybody's log, and in the JSON of `history`. Prints the id\n"
        "of the event.",
        """
zerochat edit hikers last -m "At nine, by the bridge."
zerochat history hikers --ids
zerochat edit hikers Yk3v <corrected.txt
""",
    )
    edit.stray_hint = ". The text goes behind -m, in quotes."
    message_argument(edit)
    edit.add_argument(
        "-m", "--message", metavar="TEXT", help="the text (otherwise, or with -, standard input is read to its end)"
    )


def _delete(verbs: "Verbs[Parser]") -> None:
    delete = add_verb(
        verbs,
        "delete",
        "ask everybody's zerochat to show one of your messages no more",
        "Ask everybody's zerochat to show one of your messages no more. Whoever has kept a copy, or runs another\n"
        "program, still has it; so do the logs, and what `export` writes. Nothing brings it back. Asks before it\n"
        "does. Prints the id of the event.",
        """
zerochat delete hikers last
zerochat delete hikers Yk3v --yes
""",
    )
    message_argument(delete)
    delete.add_argument("--yes", action="store_true", help="do not ask")


def _topic(verbs: "Verbs[Parser]") -> None:
    topic = add_verb(
        verbs,
        "topic",
        "say or print what a group is about",
        "Print what a group is about; with TEXT, say so to everybody. An empty TEXT takes it away. Whoever may write\n"
        "can do this; where there are admins, only they and the owner.",
        """
zerochat topic hikers
zerochat topic hikers "Sunday: up to the hut"
zerochat topic hikers ""
""",
    )
    group_argument(topic)
    topic.add_argument("text", nargs="?", metavar="TEXT", help="one line, in quotes")
