"""The grammar of the verb about files."""

from zerochat.cli.grammar import Parser, Verbs, add_verb, timeout_option


def add_files(verbs: "Verbs[Parser]") -> None:
    """Declare the verb files."""
    files = add_verb(
        verbs,
        "files",
        "list, fetch and save the files that were sent in a group",
        "The files that came with messages. `list` shows them with how far each has come. `get` fetches one, from\n"
        "whoever has it, and waits until it is here; a small one has come by itself (`[files] auto_max` in the\n"
        "settings). `save` puts a copy into your downloads, or where --out says, and prints its path; it fetches the\n"
        "file first if need be, and overwrites nothing. `drop` removes it from this machine; what you have posted\n"
        "nobody can get from you any more then. FILE is its name, its id, the first letters of that (four or more),\n"
        "or the id of a message that has one file. Backups do not have the files.",
        """
zerochat send hikers --file photo.jpg -m "The bridge"
zerochat files list hikers
zerochat files get hikers film.mkv --timeout 600
zerochat files save hikers photo.jpg
zerochat files save hikers photo.jpg --out ~/pictures
zerochat files drop hikers film.mkv
zerochat files list hikers --format jsonl | jq -r '.file | [.id, .name, .state] | @tsv'
""",
    )
    files.takes_id = True
    files.add_argument(
        "files_action", choices=("list", "get", "save", "drop"), metavar="list|get|save|drop", help="what to do"
    )
    files.add_argument("group", metavar="GROUP", help="a group's name, its id, or the first letters of its id")
    files.add_argument("wanted", nargs="?", default="", metavar="FILE", help="which one (all but list)")
    files.add_argument("--out", dest="output", metavar="PATH", help="where `save` puts it: a file, or a folder")
    timeout_option(files, 3600.0, "how long to wait until it is here (default: 3600); then the exit code is 5")
