"""The grammar of the verbs that keep a profile safe: its passphrase, and backups."""

from zerochat.cli.grammar import Parser, Verbs, add_verb


def add_keeping(verbs: "Verbs[Parser]") -> None:
    """Declare the verbs passphrase, backup and restore."""
    passphrase = add_verb(
        verbs,
        "passphrase",
        "set, change or remove the profile's passphrase",
        "Set or change the passphrase that locks the profile. The old one is asked for first, if there is one; a\n"
        "running agent goes on. Only the lock is changed and not the key behind it, so whoever has an old backup and\n"
        "its old passphrase, or an old key file, still opens what was copied together with it. Where nobody can be\n"
        "asked, ZEROCHAT_PASSPHRASE_FILE names the old one and ZEROCHAT_NEW_PASSPHRASE_FILE the new one.",
        """
zerochat passphrase
zerochat --profile work passphrase --remove
zerochat passphrase --keyring
ZEROCHAT_NEW_PASSPHRASE_FILE=~/.secret zerochat passphrase
""",
    )
    instead = passphrase.add_mutually_exclusive_group()
    instead.add_argument(
        "--remove",
        dest="in_the_open",
        action="store_true",
        help="have none: the key then lies in a file that only you can read",
    )
    instead.add_argument("--keyring", action="store_true", help="have none: the key then lies in the system's keyring")
    backup = add_verb(
        verbs,
        "backup",
        "copy the profile into one file",
        "Copy the profile into one new file: its encrypted journal, as it is now, and the key to it under the\n"
        "profile's passphrase. An agent may be running. A profile without a passphrase has its key in the open, and\n"
        "so has its backup, unless it gets a passphrase of its own. Files that came with messages are not in it. It\n"
        "cannot have what is said after it was made:\n"
        "`zerochat restore --help` says what that means.",
        """
zerochat backup /media/stick/alice.zerochat
zerochat --profile work backup --passphrase work.zerochat
ZEROCHAT_NEW_PASSPHRASE_FILE=~/.key zerochat backup --passphrase ci.tar
""",
    )
    backup.add_argument("file", metavar="FILE", help="the file to make; one that is there is kept as it is")
    backup.add_argument(
        "--passphrase", action="store_true", help="lock the backup with a passphrase of its own, which is asked for"
    )
    restore = add_verb(
        verbs,
        "restore",
        "make a profile of a backup",
        "Make a profile of a backup, under the name of --profile; never in the place of another. Use it where the\n"
        "profile itself is lost, and nowhere else: two agents with the same keys would contradict each other, and\n"
        "every member would see that. What was said since the backup, your own part too, comes back from the other\n"
        "members. Until all of them have told you, you can say nothing there; `zerochat resume GROUP` is for groups\n"
        "where somebody is gone for good.",
        """
zerochat restore /media/stick/alice.zerochat
zerochat --profile work restore work.zerochat
""",
    )
    restore.add_argument("file", metavar="FILE", help="what `zerochat backup` has made")
