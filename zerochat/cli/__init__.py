"""The command line: it reads what is wanted, runs the verb, and ends with a code that says how it went.

Each verb imports what it needs and no more, so that a script may call `zerochat send` as lightly as `echo`.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from zerochat.cli.exits import ExitCode
from zerochat.cli.parser import Options, parse
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from zerochat.cli.output import Output


class Terminated(BaseException):
    """SIGTERM or SIGHUP came: leave every context in good order."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (None: the process's own) and return its exit code."""
    sys.excepthook = _fault
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a poor locale must not make a message unprintable
    try:
        options = parse(argv)
        with _signals():
            return _run(options)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK
    except KeyboardInterrupt:
        if sys.stderr is not None and sys.stderr.isatty():
            print(file=sys.stderr)  # the terminal wrote ^C, and the shell's prompt belongs on a line of its own
        return ExitCode.INTERRUPTED
    except Terminated:
        return ExitCode.TERMINATED


def _fault(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    """Nobody has caught this. What an agent prints may be kept in a log of the system's."""
    from zerochat.agent.service.crash_log import without_words

    print(f"zerochat: this is a fault of its own.\n{without_words(error)}", file=sys.stderr)


def _run(options: Options) -> int:
    from zerochat.cli.output import Output, hints_for, narrate, to_nowhere

    hints_for(options.profile, os.environ.get("ZEROCHAT_PROFILE"))
    try:
        code = run_verb(options, Output(options.format))
        sys.stdout.flush()
    except LocalError as error:
        narrate(f"zerochat: {error.sentence()}")
        return error.exit_code
    except BrokenPipeError:
        to_nowhere(sys.stdout)  # whoever read our output has seen enough
        return ExitCode.OK
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        narrate(f"zerochat: {error.strerror or error}{where}")
        return ExitCode.REFUSED
    return code


def run_verb(options: Options, out: "Output") -> int:
    """Do what was asked for; the exit code. Raises LocalError."""
    match options.verb:
        case "chat" | "demo":
            from zerochat.cli import faces

            return faces.chat(options, out, run_verb) if options.verb == "chat" else faces.demo(options, out)
        case "agent":
            from zerochat.cli.running import agent

            return agent(options, out)
        case "init" | "status" | "locate":
            from zerochat.cli import profile

            verbs = {"init": profile.init, "status": profile.status, "locate": profile.locate}
        case "doctor":
            from zerochat.cli.doctor import doctor

            return doctor(options, out)
        case "completion" | "__complete":
            from zerochat.cli import completion

            verbs = {"completion": completion.completion, "__complete": completion.complete}
        case "man":
            from zerochat.cli.man import man

            return man(options, out)
        case "config":
            from zerochat.cli.config import config

            return config(options, out)
        case "passphrase" | "backup" | "restore":
            from zerochat.cli import keeping

            verbs = {"passphrase": keeping.passphrase, "backup": keeping.backup, "restore": keeping.restore}
        case "new" | "invite" | "join" | "leave" | "forget" | "resume" | "info":
            from zerochat.cli import groups

            verbs = {
                "new": groups.new,
                "invite": groups.invite,
                "join": groups.join,
                "leave": groups.leave,
                "forget": groups.forget,
                "resume": groups.resume,
                "info": groups.info,
            }
        case "members" | "requests" | "admit" | "refuse" | "remove" | "role" | "rename":
            from zerochat.cli import members

            verbs = {
                "members": members.members,
                "requests": members.requests,
                "admit": members.admit,
                "refuse": members.refuse,
                "remove": members.remove,
                "role": members.role,
                "rename": members.rename,
            }
        case "react" | "edit" | "delete" | "topic":
            from zerochat.cli import amend

            verbs = {"react": amend.react, "edit": amend.edit, "delete": amend.delete, "topic": amend.topic}
        case "delivery" | "why":
            from zerochat.cli import delivery

            verbs = {"delivery": delivery.delivery, "why": delivery.why}
        case "audit" | "export" | "import":
            from zerochat.cli import audit

            verbs = {"audit": audit.audit, "export": audit.export, "import": audit.import_}
        case "proof" | "evidence" | "log" | "verify-proof" | "judge":
            from zerochat.cli import evidence

            verbs = {
                "proof": evidence.proof,
                "evidence": evidence.evidence,
                "log": evidence.log,
                "verify-proof": evidence.verify_proof,
                "judge": evidence.judge,
            }
        case "accuse" | "cases" | "case":
            from zerochat.cli import accusing

            verbs = {"accuse": accusing.accuse, "cases": accusing.cases, "case": accusing.case}
        case "files":
            from zerochat.cli.files import files

            return files(options, out)
        case "search":
            from zerochat.cli.search import search

            return search(options, out)
        case "verify":
            from zerochat.cli.verify import verify

            return verify(options, out)
        case "ping" | "features" | "rotate":
            from zerochat.cli import asking

            verbs = {"ping": asking.ping, "features": asking.features, "rotate": asking.rotate}
        case "connect" | "connections" | "tell" | "letters" | "disconnect" | "route":
            from zerochat.cli import connecting

            verbs = {
                "connect": connecting.connect,
                "connections": connecting.connections,
                "tell": connecting.tell,
                "letters": connecting.letters,
                "disconnect": connecting.disconnect,
                "route": connecting.route,
            }
        case "didcomm":
            from zerochat.cli.didcomm import didcomm

            return didcomm(options, out)
        case "mediator":
            from zerochat.cli import mediator

            return mediator.mediator(options, out)
        case "telemetry":
            from zerochat.cli.telemetry import telemetry

            return telemetry(options, out)
        case "rpc":
            from zerochat.cli.rpc import rpc

            return rpc(options, out)
        case "bot":
            from zerochat.cli.bot import bot

            return bot(options, out)
        case "sim":
            from zerochat.cli.sim import sim

            return sim(options, out)
        case _:
            from zerochat.cli import talk

            verbs = {"send": talk.send, "tail": talk.tail, "history": talk.history}
    return verbs[options.verb](options, out)


@contextmanager
def _signals() -> Iterator[None]:
    """Let SIGTERM, and a terminal that is closed, end the verb as Ctrl+C does: an agent of our own is stopped and not
    cut off, and what is temporary is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(signum: int, frame: "FrameType | None") -> None:
        raise Terminated

    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {one: signal.getsignal(one) for one in handled}
    for one in (signal.SIGTERM, signal.SIGHUP):
        if before[one] is not signal.SIG_IGN:
            signal.signal(one, end)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
