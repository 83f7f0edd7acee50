"""The grammar of the verbs about the members of a group: who they are, who comes in, who goes, and whom to trust."""

from zerochat.cli.grammar import Parser, Verbs, add_verb, group_argument


def add_members(verbs: "Verbs[Parser]") -> None:
    """Declare the verbs members, requests, admit, refuse, remove, role, rename and verify."""
    members = add_verb(
        verbs,
        "members",
        "list a group's members",
        "The members of a group: what each may do, whether they are connected, whether they see the same members as\n"
        "you, and whether you have verified them.",
        """
zerochat members hikers
zerochat members hikers --format jsonl | jq -r .nick
zerochat members hikers --dismiss
""",
    )
    group_argument(members)
    members.add_argument(
        "--dismiss", action="store_true", help="be warned no more of the members who do not say the same"
    )
    _asking(verbs)
    _changing(verbs)
    _verify(verbs)


def _member(parser: Parser, nargs: str | None = None, help: str = "a member's name or key") -> None:
    parser.add_argument("peer", nargs=nargs, metavar="MEMBER", help=help)


def _asking(verbs: "Verbs[Parser]") -> None:
    requests = add_verb(
        verbs,
        "requests",
        "list who waits to be let in",
        "Who has asked to be let into a group and waits for an answer, in a group that was made with --join ask. The\n"
        "words are those of the key: whoever asks sees them too, so have them read to you before you let somebody in.",
        """
zerochat requests hikers
zerochat requests hikers --format jsonl | jq -r .nick
""",
    )
    group_argument(requests)
    for verb, summary, text in (
        ("admit", "let somebody in who waits", "Let somebody into a group who has asked. Prints its key."),
        ("refuse", "do not let somebody in who waits", "Answer no to somebody who has asked. Prints its key."),
    ):
        answer = add_verb(
            verbs,
            verb,
            summary,
            text,
            f"""
zerochat requests hikers
zerochat {verb} hikers carol
zerochat {verb} hikers "Carol B."
""",
        )
        group_argument(answer)
        answer.add_argument("peer", metavar="WHO", help="the name under which it asks, or its key")


def _changing(verbs: "Verbs[Parser]") -> None:
    remove = add_verb(
        verbs,
        "remove",
        "put a member out of a group",
        "Put a member out, or where that takes several members, vote for it: whoever wants the same says the same.\n"
        "There is no way back but a new invitation and a new key. Asks before it does.",
        """
zerochat remove hikers bob
zerochat remove hikers bob --yes
zerochat remove hikers bob --yes --format jsonl | jq .out
""",
    )
    group_argument(remove)
    _member(remove)
    remove.add_argument("--yes", action="store_true", help="do not ask")
    role = add_verb(
        verbs,
        "role",
        "say what a member may do",
        "Make a member, or without one yourself, a reader, who cannot send, a writer, or an admin. Where everybody is\n"
        "equal, each does that for themselves; otherwise the owner and the admins do.",
        """
zerochat role hikers reader
zerochat role crew bob admin
""",
    )
    group_argument(role)
    _member(role, "?", "a member's name or key (default: you)")
    role.add_argument("role", choices=("reader", "writer", "admin"), metavar="reader|writer|admin", help="the new role")
    rename = add_verb(
        verbs,
        "rename",
        "go by another name in a group",
        "Change what you are called in one group. Everybody there sees the old name and the new one.",
        """
zerochat rename hikers "Alice B."
""",
    )
    group_argument(rename)
    rename.add_argument("name", metavar="NAME", help="what you want to be called")


def _verify(verbs: "Verbs[Parser]") -> None:
    verify = add_verb(
        verbs,
        "verify",
        "compare words, to know who it is",
        "Show eight words for the keys of a member and yours, or without one for all members' keys. Compare them over\n"
        "the phone or face to face, not in the chat itself: if both see the same, nobody is between you. With\n"
        "--words, compare what the other one has read out, and end with 0 if it is the same and with 1 if it is not.",
        """
zerochat verify hikers
zerochat verify hikers bob
zerochat verify hikers bob --words "apple river stone lamp ..." --mark
zerochat verify hikers bob --unmark
""",
    )
    group_argument(verify)
    _member(verify, "?", "a member's name or key (default: the whole group)")
    verify.add_argument("--words", metavar="WORDS", help="what the other one has read out; four letters of each do")
    mark = verify.add_mutually_exclusive_group()
    mark.add_argument("--mark", action="store_true", help="remember that they are the same")
    mark.add_argument("--unmark", action="store_true", help="forget that they were the same")
