"""With `--format json`, each failure is one line of JSON on standard error, the last one."""

import json
import os
from typing import Any

import pytest

from tests.support import cli_harness
from tests.support.cli_harness import STATUS
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import JSON_FORMATS, has_option
from zerochat.cli.parser import VERBS
from zerochat.errors import AmbiguousGroup, LocalError, Overloaded

home, agent, run = cli_harness.home, cli_harness.agent, cli_harness.run


def error_of(err: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(err.splitlines()[-1])["error"]
    assert err.isascii() and found["message"]
    return found


def refusal(error: LocalError) -> Any:
    def answer(_: object) -> None:
        raise error

    return answer


def test_a_refusal_of_the_agent_has_its_code_and_data(run, agent) -> None:
    agent(send_message=refusal(AmbiguousGroup(group="hikers", ids=["a" * 43, "b" * 43])))
    code, out, err = run("send hikers -m x --format json")
    found = error_of(err)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert (found["code"], found["exit_code"], found["retry"]) == ("AmbiguousGroup", 1, "never")
    assert found["group"] == "hikers" and found["ids"] == "aaaaaaaa bbbbbbbb"


def test_a_retry_hint_is_in_the_error(run, agent) -> None:
    agent(send_message=refusal(Overloaded(what="The number of requests", limit=7)))
    found = error_of(run("--format jsonl send hikers -m x")[2])
    assert (found["code"], found["retry"], found["retry_after_s"]) == ("Overloaded", "later", 1)


def test_an_error_without_an_agent(run) -> None:
    code, _, err = run("status --format json")
    assert code == 6 and error_of(err)["code"] == "NoProfile"


@pytest.mark.parametrize("verb", [verb for verbs in VERBS.values() for verb in verbs if not verb.startswith("_")])
def test_usage_errors_of_every_verb_are_json(run, verb: str) -> None:
    code, out, err = run(f"{verb} --format=json --no-such-option")
    found = error_of(err)
    assert (code, out, found["code"], found["exit_code"]) == (2, "", "UsageError", 2)
    assert found["usage"].startswith("zerochat")


def test_an_exit_code_without_an_error_is_reported_too(run, agent) -> None:
    from msgspec.structs import replace

    agent(get_status=lambda _: replace(STATUS, warning="The disk is full."))
    code, out, err = run("status --check --format json")
    assert code == 1 and json.loads(out)["warning"] and error_of(err)["code"] == "Refused"
    assert run("status --format json")[2] == ""


def test_text_stays_text(run) -> None:
    code, _, err = run("status")
    assert code == 6 and err.startswith("zerochat: No profile")


def test_an_option_is_found_in_any_command_line() -> None:
    def asks(*words: str) -> bool:
        return has_option(words, "--format", JSON_FORMATS)

    assert asks("--format", "json") and asks("x", "--format=jsonl", "--odd")
    assert not any((asks(), asks("json"), asks("--format", "text"), asks("-m", "--format=jsonx", "--format")))


def test_a_fault_of_the_program_is_json(run, agent, monkeypatch, capsys) -> None:
    import sys

    from zerochat.cli import _report_fault_as_json

    agent(get_status=lambda _: STATUS)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    run("status --format json")
    assert sys.excepthook is _report_fault_as_json
    try:
        raise ValueError(bytes([97, 98, 99]) * 7)
    except ValueError as error:
        _report_fault_as_json(ValueError, error, None)
    said = capsys.readouterr().err
    assert error_of(said)["code"] == "InternalFault" and "abcabc" not in said
    assert error_of(said)["exit_code"] == ExitCode.REFUSED and os.linesep not in said[:-1]
