"""The manual page: complete, and accepted by roff programs without warnings."""

import re
import shutil
import subprocess

import pytest

from zerochat.cli.command_tree import command_tree
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.man_page import man_page as page
from zerochat.cli.man_page import roff
from zerochat.cli.parser import grammar
from zerochat.cli.verbs.help import wrapped
from zerochat.manual import read_page, topics

TREE = command_tree(grammar())
PAGE = page(TREE)


def test_every_verb_option_and_exit_code_is_there():
    sections = re.split(r"(?m)^\.SS ", PAGE.partition(".SH COMMANDS")[2].partition(".SH")[0])
    told = {section.split("\n")[0].replace("\\-", "-"): section for section in sections[1:]}
    verbs = [verb for verb in TREE.all() if verb.path]
    assert list(told) == [" ".join(verb.path) for verb in verbs] and len(verbs) > 50
    usual = {"--help", "--profile", "--format", "-h"}
    for verb in verbs:
        for flag in {flag for option in verb.options for flag in option.flags} - usual:
            assert f"\\fB{roff(flag)}\\fR" in told[" ".join(verb.path)], flag
        for positional in verb.positionals:
            assert f".I {roff(positional.value.metavar)}" in told[" ".join(verb.path)]
        assert "examples:" in verb.examples
    for code in ExitCode:
        assert re.search(rf"(?m)^ *{code.value}  {re.escape(roff(code.sentence))}$", PAGE)
    for variable in ("ZEROCHAT_PROFILE", "ZEROCHAT_HOME", "ZEROCHAT_PASSPHRASE_FILE"):
        assert variable in PAGE


def test_text_is_escaped_in_the_manual_page():
    assert roff(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert roff("'x") == "\\&'x"
    assert roff("a\\fB-b…") == "a\\efB\\-b\\[u2026]"
    assert PAGE.isascii()
    orders = {line.split()[0] for line in PAGE.splitlines() if line.startswith((".", "'"))}
    assert orders == {".TH", ".SH", ".SS", ".B", ".I", ".TP", ".PP", ".nf", ".fi"}


@pytest.mark.parametrize(
    "command", [["man", "--warnings=w", "-l", "-"], ["mandoc", "-T", "lint", "-W", "warning"]], ids=lambda one: one[0]
)
def test_roff_programs_accept_the_page(command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, input=PAGE, capture_output=True, text=True, check=False, env=environment)
    complaints = (done.stderr + (done.stdout if command[0] == "mandoc" else "")).splitlines()
    assert [line for line in complaints if "missing date" not in line] == []  # so it is the same every day
    if command[0] == "man":
        assert done.returncode == 0 and "--wait any|all|N" in done.stdout


def test_a_page_of_the_manual_is_filled_for_the_window():
    """Nothing is lost; code and tables, which cannot be wrapped, stay as they are."""
    for topic in topics():
        lines = read_page(topic).rstrip("\n").split("\n")
        code, filled = False, list(wrapped(lines, 60))
        assert " ".join(filled).split() == " ".join(lines).split(), topic
        for line in filled:
            code ^= line.startswith("```")
            assert len(line) <= 60 or code or line.startswith(("|", "#")) or " " not in line.strip(" -"), line
    listed = list(wrapped(["- one two", "  three four", "", "1. five six"], 8))
    assert listed == ["- one", "  two", "  three", "  four", "", "1. five", "   six"]
