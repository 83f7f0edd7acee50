"""Verbs accuse, cases, case and judge: disputes about withheld messages."""

from zerochat.cli.agent_access import attached
from zerochat.cli.evidence_files import PROOF_BEGINS, create_file, display_name, invalid_reason, open_file
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import ID_CHARS, name_of, near_time, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument
from zerochat.cli.output import Output, narrate
from zerochat.errors import LocalError, RemoteError
from zerochat.presentation.disputes import NONE, charge, outcome


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "accuse",
        "accuse a member of withholding a message",
        "Open a case in the group's transparency log: MEMBER has withheld a message from you. You need a message of\n"
        "MEMBER that refers to an earlier one which you never received, neither from MEMBER nor from the log. The\n"
        "agent of MEMBER defends itself automatically. When the time is over (20 minutes by default), your agent\n"
        "publishes the outcome, and every member verifies it. A false accusation is detected. Only for groups created\n"
        "with --kind accountable.",
        """
zerochat accuse hikers bob
zerochat accuse hikers bob --format jsonl | jq -r .id
""",
        run=accuse,
    )
    group_argument(parser)
    parser.add_argument("member", metavar="MEMBER", help="a member's name or key")
    parser = add_verb(
        verbs,
        "cases",
        "list the cases of a group and their outcomes",
        "List the cases of a group: accuser, accused, deadline and the outcome, as computed by this profile and as\n"
        "reported by others. A member who has signed two different messages for one position is also listed; that\n"
        "needs no accusation.",
        """
zerochat cases hikers
zerochat cases hikers --format jsonl | jq -r 'select(.verdict == "upheld") | .id'
""",
        run=cases,
    )
    group_argument(parser)
    _add_case_files(verbs)


def _add_case_files(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "case",
        "write a case file",
        "Write a case to a file, with all statements and the witnesses' signatures. `zerochat judge` reaches the\n"
        "verdict from that file alone, on any machine. Before the deadline the verdict is `open`.",
        """
zerochat case hikers 3fA9 --output withheld.zcase
zerochat case hikers 3fA9 --output - | zerochat judge -
""",
        run=case,
    )
    group_argument(parser)
    parser.takes_id = True
    parser.add_argument("event", metavar="CASE", help="id of the case, or a prefix of it (at least 4 characters)")
    parser.add_argument("-o", "--output", dest="path", metavar="FILE", required=True, help="the file to create, or -")
    parser = add_verb(
        verbs,
        "judge",
        "judge a case file",
        "Apply the rules to a case, and print each finding and the verdict. The result depends only on the file, so\n"
        "the judge need not be trusted. Exits with 0 if no member has cheated, with 7 if one has, with 5 if the case\n"
        "is still open or incomplete, and with 1 if the file is not a case.",
        """
zerochat judge withheld.zcase
zerochat judge withheld.zcase --format jsonl | jq .findings
""",
        run=judge,
    )
    parser.add_argument("path", metavar="FILE", help="a case file (.zcase), or -")


class NotACase(LocalError):
    """{path} is not a valid case file: {why}."""


class IsAProof(LocalError):
    """{path} is a proof, not a case file: use `zerochat verify-proof {file}`."""


def accuse(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        begun = agent.client.accuse_member(options.group, options.member or "")
    out.data(begun, [f"{begun.id[:ID_CHARS]}  {charge(begun, name_of)}"])
    narrate(
        "The accusation is added to the transparency log when its witnesses answer; see `zerochat cases "
        f"{options.group}`."
    )
    return ExitCode.OK


def cases(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.list_cases(options.group)
    out.data_list(
        found,
        table([(one.id[:ID_CHARS], charge(one, name_of), outcome(one, name_of, near_time)) for one in found])
        if found
        else [],
    )
    if not found:
        narrate(NONE)
    return ExitCode.OK


def case(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        text = agent.client.get_case(options.group, options.event)
    with create_file(options.path or "-") as file:
        file.write(text)
    if options.path != "-":
        out.data({"path": options.path, "bytes": len(text)}, [str(options.path)])
    narrate("`zerochat judge FILE` gives the verdict, on any machine.")
    return ExitCode.OK


def judge(options: Options, out: Output) -> ExitCode:
    from zerochat.evidence.case import CASE_BYTES_MAX, parse_case
    from zerochat.evidence.judge import OPEN, UPHELD
    from zerochat.evidence.judge import judge as apply_rules

    path = options.path or "-"
    with open_file(path) as file:
        written = file.read(CASE_BYTES_MAX + 2)
    try:
        case = parse_case(written.rstrip(b"\n"))
    except RemoteError as error:
        if written.startswith(PROOF_BEGINS):
            raise IsAProof(path=display_name(path), file=path) from None
        raise NotACase(path=display_name(path), why=invalid_reason(error, "case")) from None
    found = apply_rules(case)
    verdict = ", ".join([*([found.delivery] if found.delivery else []), *found.guilty]) or "nothing proven"
    rows = [(one.rule, "holds" if one.holds else "does not hold", one.sentence) for one in found.findings]
    findings = [{"rule": one.rule, "holds": one.holds, "sentence": one.sentence} for one in found.findings]
    result: dict[str, object] = {"delivery": found.delivery, "guilty": found.guilty, "findings": findings}
    out.data(result, [*table(rows), f"verdict: {verdict}"])
    if found.delivery == UPHELD or found.guilty:
        return ExitCode.INTEGRITY
    return ExitCode.TIMEOUT if found.delivery == OPEN else ExitCode.OK
