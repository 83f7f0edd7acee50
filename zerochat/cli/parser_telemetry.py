"""The grammar of `zerochat telemetry`."""

import argparse

from zerochat.cli.grammar import Parser, Verbs, add_verb, positive

ROWS_MAX = 10_000
"""That are shown at once."""


def _rows(text: str) -> int:
    if (number := positive(text)) > ROWS_MAX:
        raise argparse.ArgumentTypeError(f"it must be at most {ROWS_MAX}")
    return number


def add_telemetry(verbs: "Verbs[Parser]") -> None:
    """Declare the verb telemetry."""
    telemetry = add_verb(
        verbs,
        "telemetry",
        "record on this machine how messages fare, look at it, export it",
        "Record how messages fare: when each was sent, received and acknowledged, by which way, and how late. It is\n"
        "off unless you turn it on, stays in the profile's encrypted journal, and is never sent to anybody; nothing\n"
        "that was said, no names and no addresses are in it. `on` tells all of that and asks; `show` prints the\n"
        "newest rows as they are kept; `export` writes them as Parquet, with numbers in the place of everybody, and\n"
        "with `--dry-run` prints exactly what it would write; `delete` removes all of it. DO_NOT_TRACK=1 and\n"
        "ZEROCHAT_TELEMETRY=0 win over everything. zerochat/agent/telemetry/README.md has every field.",
        """
zerochat telemetry on
zerochat telemetry status
zerochat telemetry show -n 5
zerochat telemetry export --dry-run --since 7d | less
zerochat telemetry export --out my-week --since 7d --group hikers
zerochat telemetry words
zerochat telemetry export --out together --study
zerochat telemetry off
zerochat telemetry delete --yes
""",
    )
    actions = telemetry.add_subparsers(dest="telemetry_action", metavar="ACTION", required=True)

    on = add_verb(
        actions,
        "on",
        "begin to record, after a question",
        "Say what is recorded, where and for how long, and begin when the answer is yes.",
        """
zerochat telemetry on
zerochat telemetry on --yes
""",
    )
    on.add_argument("--yes", action="store_true", help="you have read what it does, and do not want to be asked")
    add_verb(
        actions,
        "off",
        "record no more",
        "Record no more. What there is stays until you delete it.",
        """
zerochat telemetry off
""",
    )
    add_verb(
        actions,
        "status",
        "say whether it is recorded, and how much there is",
        "Whether it is recorded, what forbids it, how many rows there are and from when.",
        """
zerochat telemetry status
zerochat telemetry status --format jsonl | jq .rows
""",
    )
    show = add_verb(
        actions,
        "show",
        "print the newest rows as they are kept",
        "Print every field of the newest rows, as they are kept. Numbers of names are those of this journal; what\n"
        "they stand for is never printed.",
        """
zerochat telemetry show
zerochat telemetry show -n 100 --format jsonl | jq 'select(.row == "recv")'
""",
    )
    show.add_argument(
        "-n", dest="count", type=_rows, metavar="N", help=f"so many (default: 10; {ROWS_MAX} at the most)"
    )
    export = add_verb(
        actions,
        "export",
        "write what there is as Parquet files",
        "Write a new folder of Parquet files, by kind and day, with a manifest. Everybody is a number there, another\n"
        "one in each export, under a key that nobody keeps; but when each writes and how much may tell who it is to\n"
        "whoever knows the group, and that two exports are of the same people. With --study numbers come from a\n"
        "phrase that members have agreed on, so that their exports fit together. Without it times are rounded to the\n"
        "second. The export is there whole or not at all, and stays where you put it. It needs pyarrow: pip install\n"
        "pyarrow.",
        """
zerochat telemetry export --out my-week --since 7d
zerochat telemetry export --dry-run --group hikers
ZEROCHAT_STUDY_FILE=~/.study zerochat telemetry export --out together --study
""",
    )
    export.add_argument("--out", dest="path", metavar="DIR", help="the folder to make")
    export.add_argument(
        "--since", dest="after", metavar="DATE", help="only from then on: 2026-03-01, today, 12h, 7d, 2w"
    )
    export.add_argument("--group", dest="group", default="", metavar="GROUP", help="only of this group")
    export.add_argument(
        "--study",
        action="store_true",
        help="with the phrase that ZEROCHAT_STUDY_FILE has in it, or that you are asked for; times are exact then",
    )
    export.add_argument("--dry-run", action="store_true", help="print every row that would be written, but write none")
    delete = add_verb(
        actions,
        "delete",
        "remove all that was recorded",
        "Remove all that was recorded. Whether it is recorded from now on stays as it is.",
        """
zerochat telemetry delete
zerochat telemetry delete --yes
""",
    )
    delete.add_argument("--yes", action="store_true", help="do not ask")
    add_verb(
        actions,
        "words",
        "print a phrase that members can agree on for a study",
        "Print eight words drawn by lot. Whoever exports with them (--study) has the same numbers for the same\n"
        "people. Give them only to those who take part: whoever has them, and knows the members, can tell who is who.",
        """
zerochat telemetry words
(umask 077; zerochat telemetry words >~/.study)
""",
    )
