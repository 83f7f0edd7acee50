"""The grammar of the verbs about what is said: send, tail, history and search."""

import argparse

from zerochat.cli.grammar import Parser, Verbs, add_verb, count, group_argument, positive, timeout_option
from zerochat.cli.parser_log import history_source


def add_talk(verbs: "Verbs[Parser]") -> None:
    send = add_verb(
        verbs,
        "send",
        "send a message to a group",
        "Send a message: the text of -m, or standard input. Prints the message's id, or with --wait who has it.\n"
        "A message is on disk before this returns; who is away gets it later, as soon as an agent of yours and of\n"
        "theirs are connected.",
        """
zerochat send hikers -m "At eight, by the bridge."
git log -1 --oneline | zerochat send ops
zerochat send hikers --file photo.jpg --file map.pdf -m "Our way"
zerochat send hikers --reply last:bob -m "I'll be there."
zerochat send ops -m "deployed" --wait all --timeout 60
zerochat send ops -m "deployed" --wait 2 --format jsonl | jq .members
zerochat send ops --key "build-$BUILD" --wait any <report.txt
""",
    )
    send.stray_hint = ". The text goes behind -m, in quotes."
    group_argument(send)
    send.add_argument(
        "-m", "--message", metavar="TEXT", help="the text (otherwise, or with -, standard input is read to its end)"
    )
    send.add_argument(
        "--reply",
        metavar="MSG",
        help="which message it answers: its id, the first letters of that (four or more), or last:NAME; one that begins"
        " with a hyphen as --reply=-ID",
    )
    send.add_argument(
        "--file",
        dest="files",
        action="append",
        metavar="PATH",
        help="a file that goes with it (up to 8 times); then -m may be left out, and --wait waits until they have it",
    )
    send.add_argument("--me", action="store_true", help="the text says what you do: --me -m waves")
    send.add_argument(
        "--wait",
        type=_how_many,
        metavar="any|all|N",
        help="wait until any, all or N other members have acknowledged it, and print who has",
    )
    send.add_argument(
        "--key",
        dest="message_key",
        type=_key,
        metavar="KEY",
        help="a name of yours for this message: whoever sends with the same one again within 30 days, after a failure"
        " say, gets the id of the first, and nothing is sent twice",
    )
    timeout_option(send, 30.0, "how long --wait waits (default: 30); then the exit code is 5")
    tail = add_verb(
        verbs,
        "tail",
        "print a group's events as they come",
        "Print the newest events of a group, then every further one as it is delivered, until Ctrl+C. As JSON it also\n"
        "says, with a `type` of their own, how a message stands that was edited, deleted or reacted to (amended),\n"
        "when something is known to be missing (gap), has come late (late), nothing is missing any more (complete),\n"
        "and when an author has said two things in one place (fork).",
        """
zerochat tail hikers
zerochat tail ops -n 0 --format jsonl | jq --unbuffered -r .body.text
zerochat tail ops -n 0 --format jsonl | jq 'select(.type == "gap")'
zerochat tail ops --since 1042 --format jsonl
""",
    )
    group_argument(tail)
    tail.add_argument(
        "-f", "--follow", action="store_true", help="go on with what comes, which it does anyway (history does not)"
    )
    start = tail.add_mutually_exclusive_group()
    start.add_argument("-n", dest="count", type=count, metavar="N", help="begin with the newest N events (default: 10)")
    start.add_argument("--since", type=count, metavar="SEQ", help="begin with what was delivered after this `seq`")
    history = add_verb(
        verbs,
        "history",
        "print a group's events",
        "Print the newest events of a group, oldest first, in the order that every member sees. With --file it reads\n"
        "what `zerochat export` has written, without any profile.",
        """
zerochat history hikers
zerochat history hikers -n 500
zerochat history ops --all --format jsonl >ops.jsonl
zerochat history --file hikers.jsonl
""",
    )
    history_source(history)
    much = history.add_mutually_exclusive_group()
    much.add_argument("-n", dest="count", type=count, metavar="N", help="the newest N events (default: 50)")
    much.add_argument("--all", action="store_true", help="all of them")
    history.add_argument("--ids", action="store_true", help="begin each line with the first letters of the event's id")
    _search(verbs)


def _search(verbs: "Verbs[Parser]") -> None:
    search = add_verb(
        verbs,
        "search",
        "find what was said",
        "Find messages by their words, the newest first, in all groups, or in the one that the first word names.\n"
        'A word also finds longer ones that begin with it, whatever its case and accents; "words in quotes" are\n'
        "found as they stand, one behind the other. All of it has to be in a message. from:NAME, in:GROUP,\n"
        "after:DATE and before:DATE may stand among the words. A DATE is 2026-03-01, 2026-03-01T18:00, 18:00,\n"
        "today, yesterday, or 12h, 7d, 2w ago. What was edited is found by what it says now.",
        """
zerochat search bridge
zerochat search hikers bridge eight
zerochat search '"by the bridge"' from:alice after:2026-03-01
zerochat search --from me --after 7d --limit 200
zerochat search deploy --format jsonl | jq -r '[.group, .id, .text] | @tsv'
""",
    )
    search.add_argument("words_sought", nargs="*", metavar="WORDS", help="[GROUP] and what to find in it")
    search.add_argument("--from", dest="author", metavar="NAME", help="only what this member has said; `me`: you")
    search.add_argument("--after", metavar="DATE", help="only from this day or time on")
    search.add_argument("--before", metavar="DATE", help="only earlier than this day or time")
    search.add_argument("--limit", type=positive, metavar="N", help="at most the newest N (default: 20)")
    search.add_argument("--ids", action="store_true", help="begin each line with the first letters of the message's id")


def _key(text: str) -> str:
    if not (0 < len(text) <= 128 and text.isascii() and text.isprintable()):
        raise argparse.ArgumentTypeError("it must be 1 to 128 printable ASCII characters")
    return text


def _how_many(text: str) -> int:
    """`any` as 1, `all` as -1 (as `schema.WaitParams` has it), or the number."""
    if text in ("any", "all"):
        return {"any": 1, "all": -1}[text]
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither any nor all nor a number")
    return positive(text)
