"""The grammar of the verbs about evidence: what is proven by signatures, to whoever has only the file, and accusing
somebody who has withheld a message."""

from zerochat.cli.grammar import Parser, Verbs, add_verb, group_argument


def add_evidence(verbs: "Verbs[Parser]") -> None:
    """Declare the verbs proof, evidence, log, verify-proof, accuse, cases, case and judge."""
    proof = add_verb(
        verbs,
        "proof",
        "write a proof of what was said",
        "Write a file that proves a message to somebody who was not there: who has signed it, what it says, and, if\n"
        "it is yours, which members have signed that they have it. With --history it proves instead that nothing is\n"
        "left out of what you (or --by another member) have said since you could hear it, without showing what it\n"
        "says. Only groups whose keys sign (`zerochat new --kind signed` or `--kind accountable`) have proofs; in all\n"
        "others nobody can prove what anybody has said, on purpose. Whoever gets the file can show it to anybody.",
        """
zerochat proof hikers last
zerochat proof hikers last --out message.zproof
zerochat proof hikers Yk3v --out - | zerochat verify-proof -
zerochat proof hikers --history --out all.zproof
zerochat proof hikers --history --by bob --out bob.zproof
""",
    )
    proof.takes_id = True
    group_argument(proof)
    what = proof.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "event",
        nargs="?",
        default="",
        metavar="MSG",
        help="the message's id, its first letters (four or more), `last` for your newest one, or `last:NAME`",
    )
    what.add_argument(
        "--history", dest="whole", action="store_true", help="of all that was said, that nothing is left out"
    )
    proof.add_argument("--by", dest="member", default="", metavar="NAME", help="with --history: another member's words")
    proof.add_argument(
        "--out",
        dest="path",
        metavar="FILE",
        help="where to write it, or -; nothing is overwritten (default: a name of its own, here)",
    )
    _evidence(verbs)
    _log(verbs)
    _checking(verbs)


def _evidence(verbs: "Verbs[Parser]") -> None:
    evidence = add_verb(
        verbs,
        "evidence",
        "say what can be proven in a group, or of a message",
        "Say whose signatures are here, who has signed for what you have said, and what that can show to whom; with a\n"
        "message, who has signed for this one. Where nothing is signed, it says so.",
        """
zerochat evidence hikers
zerochat evidence hikers last
zerochat evidence hikers last:bob --format json | jq .message.members
""",
    )
    evidence.takes_id = True
    group_argument(evidence)
    evidence.add_argument(
        "event", nargs="?", default="", metavar="MSG", help="a message, as for `zerochat proof` (default: the group)"
    )


def _log(verbs: "Verbs[Parser]") -> None:
    log = add_verb(
        verbs,
        "log",
        "say how the log of an accountable group stands",
        "Say who keeps the group's log, who witnesses it, how long it is, and what of yours has no place in it yet.\n"
        "With --operator and --witness, say who keeps it from now on: the owner and the admins name any members;\n"
        "where all are equal, those witness who have been in the group longest. It is said by itself when somebody is\n"
        "gone. Only groups that are made with `zerochat new --kind accountable` keep a log. Ends with 7 where its\n"
        "operator has shown two of them.",
        """
zerochat log council
zerochat log council --format json | jq .waiting
zerochat log council --operator bob --witness alice --witness bob --witness carol
""",
    )
    group_argument(log)
    log.add_argument("--operator", metavar="NAME", default=None, help="who gives each entry its place from now on")
    log.add_argument(
        "--witness", dest="witnesses", action="append", metavar="NAME", default=None, help="who cosigns; once for each"
    )


def _checking(verbs: "Verbs[Parser]") -> None:
    verify = add_verb(
        verbs,
        "verify-proof",
        "check such a file",
        "Check what a file from `zerochat proof` shows, and say it, with what it does not show. Needs nothing but the\n"
        "file: no profile, no agent, no network. Ends with 7 where it proves nothing.",
        """
zerochat verify-proof message.zproof
zerochat verify-proof - <message.zproof
zerochat verify-proof message.zproof --format jsonl | jq .signers
""",
    )
    verify.add_argument("path", metavar="FILE", help="a file that `zerochat proof` has written, or -")
    accuse = add_verb(
        verbs,
        "accuse",
        "accuse a member who has withheld a message",
        "Say in the group's log that something is missing in what NAME has said to you: a message came that names\n"
        "one before it, and that never did, neither from NAME nor from the log, in all the time that there was for\n"
        "it. NAME's agent answers by itself if it can; when the time for that is over (twenty minutes, unless the\n"
        "group says otherwise), your agent tells the group what comes of it, and everybody works that out again.\n"
        "Whoever accuses somebody of what it has acknowledged is found out. It takes a group that was made with\n"
        "--kind accountable; in all others there is nothing to judge by.",
        """
zerochat accuse hikers bob
zerochat accuse hikers bob --format jsonl | jq -r .id
""",
    )
    group_argument(accuse)
    accuse.add_argument("member", metavar="NAME", help="a member, by name or key")
    cases = add_verb(
        verbs,
        "cases",
        "list who is accused of what, and what came of it",
        "List the cases of a group: who accuses whom, until when it can be answered, and what comes of it as this\n"
        "profile has worked it out itself, beside what others have told. A member who has signed two different\n"
        "messages for one place stands here too: that takes no accusation.",
        """
zerochat cases hikers
zerochat cases hikers --format jsonl | jq -r 'select(.verdict == "upheld") | .accused.nick'
""",
    )
    group_argument(cases)
    case = add_verb(
        verbs,
        "case",
        "write a case to a file that anybody can judge",
        "Write a case, with all that was posted about it and the witnesses' signatures, to a file: `zerochat judge`\n"
        "comes to a verdict from that alone, on any machine. Before the time for an answer is over, that verdict is\n"
        "that the case is open.",
        """
zerochat case hikers 3fA9 --out withheld.zcase
zerochat case hikers 3fA9 --out - | zerochat judge -
""",
    )
    group_argument(case)
    case.takes_id = True
    case.add_argument("event", metavar="CASE", help="its id, or the first letters of it (four or more)")
    case.add_argument("--out", dest="path", metavar="FILE", required=True, help="where to write it, or -")
    judge = add_verb(
        verbs,
        "judge",
        "judge an accusation from its file",
        "Go through a case, rule by rule, and say what each comes to, and the verdict. Anybody who has the file comes\n"
        "to the same, so nobody needs to trust the judge. Ends with 0 where nobody has cheated, with 7 where somebody\n"
        "has, with 5 where the time for an answer is not over or the file does not show all of it, and with 1 where\n"
        "it is no case.",
        """
zerochat judge withheld.zcase
zerochat judge withheld.zcase --format jsonl | jq .findings
""",
    )
    judge.add_argument("path", metavar="FILE", help="a case (.zcase), or -")
