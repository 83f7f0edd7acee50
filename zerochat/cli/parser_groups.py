"""The grammar of the verbs for groups: making one, inviting, joining, leaving, and what holds in it."""

from zerochat.cli.grammar import (
    Parser,
    Verbs,
    add_verb,
    count,
    group_argument,
    history_rule,
    lifetime,
    positive,
    timeout_option,
)
from zerochat.cli.parser_peers import add_envelope

INVITATION_FORMATS = ("text", "url", "code", "qr", "json", "jsonl")


def add_groups(verbs: "Verbs[Parser]") -> None:
    """Declare the verbs new, invite, join, leave, forget, resume and info."""
    _new(verbs)
    _invite(verbs)
    _join(verbs)
    _leave(verbs)
    _forget(verbs)
    _resume(verbs)
    info = add_verb(
        verbs,
        "info",
        "say what holds in a group",
        "What a group has chosen when it was made, in plain words: its keys, who gets in, who can put somebody out,\n"
        "who may write; who is what in it; and what it cannot promise.",
        """
zerochat info hikers
zerochat info hikers --format jsonl | jq .policy
""",
    )
    group_argument(info)


def _new(verbs: "Verbs[Parser]") -> None:
    new = add_verb(
        verbs,
        "new",
        "make a group",
        "Make a group with you as its only member. Prints its id. What is chosen here holds for as long as the group\n"
        "does, and everybody who joins can see it: `zerochat info GROUP`.",
        """
zerochat new hikers
zerochat new hikers --removal quorum --quorum 3
zerochat new crew --roles admins --join ask
zerochat new news --keys pairwise-single --roles admins
zerochat new board --kind signed
zerochat new council --kind accountable
zerochat new hikers --history last:50
zerochat new hikers --envelope didcomm/v1
""",
    )
    new.add_argument("group", metavar="NAME", help="what the group is called")
    new.add_argument(
        "--keys",
        choices=("pairwise-multi", "pairwise-single", "sender-key"),
        help="pairwise-multi: an envelope for each member; pairwise-single: one for all, with a section for each, which"
        " is less work for whoever writes; sender-key: one for all that its author has signed, the least work, but what"
        " you say can be proven to others (default: pairwise-multi)",
    )
    new.add_argument(
        "--kind",
        choices=("classic-multi", "classic-single", "signed", "accountable"),
        help="the same in a word: classic-multi and classic-single have pairwise keys, and nobody can prove what you"
        " said; signed has sender keys, and what is said and who has it is signed; accountable has them too, and what"
        " somebody has not acknowledged in time stands in a log that three members or more witness",
    )
    new.add_argument(
        "--join",
        dest="join_rule",
        choices=("invited", "ask", "open"),
        default="invited",
        help="who gets in: whoever an invitation is for (invited); once its maker says yes (ask); as many as come with"
        " an invitation (open) (default: %(default)s)",
    )
    new.add_argument(
        "--removal",
        choices=("anyone", "admins", "quorum"),
        help="who puts somebody out: any member; the admins; several members together (default: quorum, or with --roles"
        " admins: admins)",
    )
    new.add_argument(
        "--quorum", type=positive, metavar="N", help="how many members have to want somebody out, 2 to 64 (default: 2)"
    )
    new.add_argument(
        "--roles",
        choices=("flat", "admins"),
        default="flat",
        help="flat: everybody is equal; admins: you are the owner, and make admins, who say who may write (default:"
        " %(default)s)",
    )
    new.add_argument(
        "--agreement",
        choices=("permissive", "strict"),
        default="permissive",
        help="a newcomer to whom the members tell different things is warned (permissive), or does not come in (strict)"
        " (default: %(default)s)",
    )
    new.add_argument(
        "--history",
        dest="history_rule",
        type=history_rule,
        default="all",
        metavar="RULE",
        help="what newcomers get of what was said before they came: none, all, last:N (or N) for the last N messages,"
        " or since:DATE, which is a date like 2026-07-01, or 12h, 7d or 2w from now back (default: %(default)s)",
    )
    new.add_argument(
        "--keepers",
        type=count,
        default=0,
        metavar="N",
        help="how many members keep the history for newcomers: those who have been in longest; 0: everybody (default:"
        " %(default)s)",
    )
    add_envelope(new, "that the group uses")


def _invite(verbs: "Verbs[Parser]") -> None:
    invite = add_verb(
        verbs,
        "invite",
        "invite somebody to a group",
        "Make an invitation. Whoever has it can join, as often and as long as it says, so send it over a channel that\n"
        "you trust. Every member can invite. Your agent must be running when the invitation is used.",
        """
zerochat invite hikers
zerochat invite hikers --read-only
zerochat invite hikers --history none
zerochat invite hikers --format url | wl-copy
zerochat invite hikers --format qr --expires 10m
zerochat invite hikers --format code --uses 5 --expires 7d
zerochat invite hikers --image code.png
zerochat invite hikers --list
""",
        INVITATION_FORMATS,
    )
    group_argument(invite)
    invite.add_argument(
        "--expires",
        dest="expires_s",
        type=lifetime,
        default=86_400,
        metavar="TIME",
        help="how long it is good: 90s, 30m, 24h or 7d (default: 24h)",
    )
    what = invite.add_mutually_exclusive_group()
    what.add_argument("--image", metavar="FILE", help="write its QR code into this file too, as a PNG picture")
    what.add_argument(
        "--list",
        dest="list_open",
        action="store_true",
        help="make none: list those that are open, and who has used them",
    )
    what.add_argument("--revoke", metavar="ID", help="make none: take back the one that --list shows with this id")
    invite.add_argument("--uses", type=positive, default=1, metavar="N", help="how many may use it (default: 1)")
    invite.add_argument(
        "--read-only", action="store_true", help="whoever uses it comes in as a reader, who cannot send"
    )
    invite.add_argument(
        "--history",
        dest="history_rule",
        type=history_rule,
        metavar="RULE",
        help="what whoever uses it gets of what was said before: none, all, last:N or since:DATE, but no more than the"
        " group gives (default: as much as that)",
    )


def _join(verbs: "Verbs[Parser]") -> None:
    join = add_verb(
        verbs,
        "join",
        "join a group by an invitation",
        "Join a group, by the link or the code that one of its members made. Prints the group's id. Without an\n"
        "argument the invitation is asked for; `-` reads it from standard input. Prefer these two: what stands on the\n"
        "command line can be seen by the other users of this machine while it runs.",
        """
zerochat join
wl-paste | zerochat join -
zerochat join - --name "Alice B." <invitation.txt
zerochat join - --read-only <invitation.txt
zerochat join --image code.png
zerochat join --cancel
zerochat join ZC:6BFOXN...
""",
    )
    what = join.add_mutually_exclusive_group()
    what.add_argument("invitation", nargs="?", metavar="CODE-or-LINK", help="the invitation, or - for standard input")
    what.add_argument("--image", metavar="FILE", help="the picture of an invitation's QR code")
    what.add_argument(
        "--cancel",
        nargs="?",
        const="",
        metavar="GROUP-or-ID",
        help="give a join up that is under way; which one, if there are several, `zerochat status` says",
    )
    join.add_argument("--name", metavar="NAME", help="what you are called in this group (default: the profile's name)")
    join.add_argument("--read-only", action="store_true", help="come in as a reader, who cannot send")
    timeout_option(
        join,
        75.0,
        "how long to wait until joined (default: 75); not answered after 60 seconds, the agent gives up, but where a"
        " person has to say yes it goes on asking for a day",
    )


def _leave(verbs: "Verbs[Parser]") -> None:
    leave = add_verb(
        verbs,
        "leave",
        "leave a group",
        "Leave a group. Its history stays readable here; to come back you need a new invitation. Asks before it does.",
        """
zerochat leave hikers
zerochat leave hikers --yes
""",
    )
    group_argument(leave)
    leave.add_argument("--yes", action="store_true", help="do not ask")


def _forget(verbs: "Verbs[Parser]") -> None:
    forget = add_verb(
        verbs,
        "forget",
        "delete what is here of a group that you are no longer in",
        "Delete a group that you have left, or were put out of, with its history, from this machine. Nothing here\n"
        "brings it back; the others keep what they have. Asks before it does.",
        """
zerochat forget hikers
zerochat forget hikers --yes
""",
    )
    group_argument(forget)
    forget.add_argument("--yes", action="store_true", help="do not ask")


def _resume(verbs: "Verbs[Parser]") -> None:
    resume = add_verb(
        verbs,
        "resume",
        "go on in a group where this profile may be an older copy of itself",
        "A profile that was restored from a backup says nothing in a group until all members have told it what it has\n"
        "said since. Where you were alone when the backup was made nobody can tell, and where somebody is gone for\n"
        "good not all will: this goes on there all the same. Whoever has heard more of you than this copy knows will\n"
        "see two histories from you, and tell others to be careful; begin a new group if that may be. Asks first.",
        """
zerochat resume hikers
zerochat resume hikers --yes
""",
    )
    group_argument(resume)
    resume.add_argument("--yes", action="store_true", help="do not ask")
