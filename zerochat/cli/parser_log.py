"""The grammar of the verbs about what has become of what was said: who has it, what is missing, and whether the log is
sound."""

from zerochat.cli.grammar import Parser, Verbs, add_verb, group_argument, message_argument


def add_log(verbs: "Verbs[Parser]") -> None:
    """Declare the verbs delivery, why, audit, export and import."""
    delivery = add_verb(
        verbs,
        "delivery",
        "say who has a message",
        "Who has a message, since when, over which way that is known, and when the others were last heard from.\n"
        "queued: goes out as soon as there is a way; sent: on its way, and not acknowledged yet; held: the\n"
        "mediator of that member has signed that it keeps it for it.",
        """
zerochat delivery hikers last
zerochat delivery hikers Yk3v
zerochat delivery hikers last --format jsonl | jq '.members[].state'
""",
    )
    message_argument(delivery)
    why = add_verb(
        verbs,
        "why",
        "say what has become of a message",
        "All that is known of one message, in sentences: who wrote it and when, when it came here, whose word it\n"
        "is, where it stands in its author's chain, whether anything before it is missing, who has it, and why others\n"
        "have not. Ends with 7 where what is here contradicts itself.",
        """
zerochat why hikers last
zerochat why hikers last:bob
zerochat why hikers Yk3v --format jsonl
""",
    )
    message_argument(why)
    audit = add_verb(
        verbs,
        "audit",
        "check a group's whole log",
        "Check a group's log from its first event on: every record against its id, every author's chain for breaks,\n"
        "every signature, everybody's right to what changed the group, the order, and whether all of it comes to the\n"
        "members and the chains that the agent goes by. Ends with 7 when anything is not as it must be, with a line\n"
        "for each. Works while the agent runs; with --file it checks what `zerochat export` has written, without any\n"
        "profile.",
        """
zerochat audit hikers
zerochat audit --file hikers.jsonl
zerochat audit hikers --format jsonl | jq .breaks
""",
    )
    _group_or_file(audit)
    export = add_verb(
        verbs,
        "export",
        "write a group's history to a file",
        "Write all of a group's log, with everything that is needed to check it elsewhere, as JSON lines. The file is\n"
        "not encrypted, and made so that only your user can read it. `-` writes to standard output. Prints the\n"
        "file's name. `zerochat history --file` reads it, `zerochat audit --file` checks it.",
        """
zerochat export hikers
zerochat export hikers hikers-2025.jsonl
zerochat export hikers - | gpg --symmetric >hikers.gpg
""",
    )
    group_argument(export)
    export.add_argument(
        "path", nargs="?", metavar="FILE", help="where to write it (default: the group's name with .jsonl), or -"
    )
    import_ = add_verb(
        verbs,
        "import",
        "take in what is missing here from such a file",
        "Take in whatever is missing here of a group that you are in, out of a file that `zerochat export` has\n"
        "written for you or for another member. Each event is checked as if a member handed it over: it has to join\n"
        "on to what is here. What its author has not signed counts as handed over by you until its author confirms\n"
        "it. Can be done again at any time. Ends with 7 where the file contradicts itself or what is here; what is\n"
        "beyond doubt is taken all the same. `-` reads standard input.",
        """
zerochat import hikers.jsonl
gpg --decrypt hikers.gpg | zerochat import -
zerochat import hikers.jsonl --format jsonl | jq .refused
""",
    )
    import_.add_argument("path", metavar="FILE", help="a file that `zerochat export` has written, or -")


def history_source(parser: Parser) -> None:
    """A group, or a file that has one's history."""
    _group_or_file(parser)


def _group_or_file(parser: Parser) -> None:
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument(
        "group", nargs="?", default="", metavar="GROUP", help="a group's name, its id, or the first letters of its id"
    )
    one.add_argument("--file", dest="path", metavar="FILE", help="a file that `zerochat export` has written, or -")
