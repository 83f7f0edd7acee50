"""Completion in real shells on a real terminal."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.support.cli_harness import HIKERS
from tests.support.machines import until
from tests.support.marks import others_slow
from tests.support.terminals import terminal
from zerochat.agent.storage.paths import profile_paths
from zerochat.cli.command_tree import command_tree as outline
from zerochat.cli.parser import grammar
from zerochat.manual import topics
from zerochat.rpc import Attachment, Author, ConnectionInfo, ConsumerInfo, FileInfo, FileList

SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
BEGINNING = {
    "bash": "bind 'set bell-style none'; bind 'set enable-bracketed-paste off'; . {script}; echo rea''dy",
    "zsh": "autoload -Uz compinit; compinit -u -D; unsetopt beep prompt_cr; . {script}; echo rea''dy",
    "fish": "source {script}; echo rea''dy",
}
ODD = "the $(touch never) photo.jpg"
NAMES = ["hikers", "hiking with Ann", "odd;$(touch never)`x`'q", "\x1b[2Jevil", "-dash", "Ünder"]

BOTS = ["deploys", "greeter"]
CONNECTION = ConnectionInfo(
    id="C1",
    label="archive",
    state="established",
    envelope="didcomm/v2",
    did="did:peer:2",
    my_did="did:peer:2",
    begun_at="x",
)


def why_not(shell):
    return "" if shutil.which(shell) else f"there is no {shell} here"


@pytest.fixture
def world(tmp_path, fake_agent):
    """A machine with an agent whose groups have these names, and a `zerochat` on the PATH that writes down what it was
    called with, but for what completions ask."""
    environment = {"ZEROCHAT_HOME": str(tmp_path / "h"), "HOME": str(tmp_path), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    home = profile_paths(None, environment)
    groups = [HIKERS.__class__(**{**as_fields(HIKERS), "id": f"ID{n}", "name": name}) for n, name in enumerate(NAMES)]
    bots = [ConsumerInfo(consumer=name, acked=1, behind=0, connected=False, since="x", updated="x") for name in BOTS]
    served = fake_agent(
        path=home.socket,
        list_groups=lambda _: groups,
        list_files=lambda asked: files_of(asked.group),
        list_consumers=lambda _: bots,
        list_connections=lambda _: [CONNECTION],
    )
    (home.data.parent / "work").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "zerochat"
    stub.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "if '__complete' in sys.argv:\n"
        f"    os.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'zerochat', *sys.argv[1:]])\n"
        f"with open({str(tmp_path / 'called')!r}, 'a') as file:\n    print(sys.argv[1:], file=file)\n"
    )
    stub.chmod(0o755)
    here = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    environment |= {"PATH": here, "PYTHONPATH": os.pathsep.join(sys.path)}
    return SimpleNamespace(environment=environment, folder=tmp_path, called=tmp_path / "called", served=served)


def files_of(group):
    """Only one of the groups has files; the first of them has a name that a shell could stumble over."""
    names = [ODD, "film.mkv", "\x1b[2Jevil", "-dash"] if group == "hiking with Ann" else []
    files = [Attachment(id=f"F{number}", name=name, size=3) for number, name in enumerate(names)]
    by = Author("did:key:z6MkBob", "bob")
    return FileList([FileInfo(group="ID1", event="E1", author=by, posted_at="x", file=one) for one in files])


def as_fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def script(world, shell):
    made = subprocess.run(
        [sys.executable, "-m", "zerochat", "completion", shell], env=world.environment, capture_output=True, check=True
    )
    path = world.folder / f"completion.{shell}"
    path.write_bytes(made.stdout)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_typed_words(world, shell):
    if why := why_not(shell):
        pytest.skip(why)
    (world.folder / "photo.jpg").touch()
    typed = {
        "zerochat sen\t-m x": ["send", "-m", "x"],
        "zerochat send hike\t--wa\tal\t-m x": ["send", "hikers", "--wait", "all", "-m", "x"],
        "zerochat send --timeout 3 hiking\t-m x": ["send", "--timeout", "3", "hiking with Ann", "-m", "x"],
        "zerochat send hike\t--file phot\t": ["send", "hikers", "--file", "photo.jpg"],
        "zerochat --profile wor\tstatu\t--che\t": ["--profile", "work", "status", "--check"],
        "zerochat files save hiking\tfi\t--output phot\t": [
            "files",
            "save",
            NAMES[1],
            "film.mkv",
            "--output",
            "photo.jpg",
        ],
        "zerochat files get 'hiking with Ann' the\t": ["files", "get", NAMES[1], ODD],
        "zerochat didcomm unp\t": ["didcomm", "unpack"],
        "zerochat help getting\t": ["help", "getting-started"],
        "zerochat chat --set the\tdark": ["chat", "--set", "theme=dark"],
        "zerochat disconnect arch\t": ["disconnect", "archive"],
        "zerochat send odd\t-m x": ["send", NAMES[2], "-m", "x"],
    }
    if shell == "bash":
        del typed["zerochat send odd\t-m x"]
        typed["zerochat --profile=wor\tstatu\t"] = ["--profile=work", "status"]
    one = typed_in(world, shell, script(world, shell), typed)
    assert not (world.folder / "never").exists()
    assert "\x1b[2Jevil" not in one.shown


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_the_words_of_the_analysis_are_completed_too(world, shell):
    """By a script of the same making, beside that of zerochat."""
    if why := why_not(shell):
        pytest.skip(why)
    (world.folder / "exports").mkdir()
    stub = world.folder / "bin" / "zerochat-analytics"
    stub.write_text((world.folder / "bin" / "zerochat").read_text())
    stub.chmod(0o755)
    made = world.folder / f"analysis.{shell}"
    program = [sys.executable, "-m", "analytics", "completion", shell]
    made.write_bytes(subprocess.run(program, env=world.environment, capture_output=True, check=True).stdout)
    typed = {
        "zerochat-analytics ru\t--in expor\t --out study --wi\t10": [
            *("run", "--in", "exports/", "--out", "study", "--within", "10")
        ],
        "zerochat-analytics completion fi\t": ["completion", "fish"],
        "zerochat statu\t": ["status"],
    }
    typed_in(world, shell, f"{script(world, shell)}; {source(shell)} {made}", typed)


def source(shell):
    return "source" if shell == "fish" else "."


def typed_in(world, shell, sourced, typed):
    """What is typed in a shell that has read these scripts, line by line: each calls a program with the words behind
    it."""
    with terminal(world, program=SHELLS[shell]) as one:
        one.type(f"cd {world.folder}\r")
        one.type(BEGINNING[shell].format(script=sourced) + "\r")
        one.shows("ready")
        for number, (line, words) in enumerate(typed.items(), 1):
            one.type(f"{line}\r")  # a shell reads it key by key, however fast it comes
            until(lambda number=number: world.called.exists() and lines(world) >= number, f"{line!r} in {one.shown!r}")
            assert world.called.read_text().splitlines()[-1] == str(words), one.shown[-3000:]
        one.type("exit\r")
    return one


def lines(world):
    return world.called.read_text().count("\n")


RISKY = ("hik$(touch never)", "hik`touch never`", "hik!!", "hik\\", 'hik"')


@pytest.mark.parametrize(
    ("typed", "name", "found"),
    [
        ("hik", "hiking $(touch never)", "hiking\\ \\$\\(touch\\ never\\)"),
        ("'hik", "hiking $(touch never)", "hiking $(touch never)"),
        ('"hik', "hiking with Ann", "hiking with Ann"),
        *others_slow([(f'"{name[:3]}', name, "") for name in RISKY], unpacked=True),
    ],
)
def test_names_are_safe_within_bash_quotes(world, typed, name, found):
    code = (
        f'. {script(world, "bash")}; zerochat() {{ printf "%s\\n" "$NAME"; }}; COMP_WORDS=(zerochat send "$TYPED");'
        ' COMP_CWORD=2; _zerochat; printf "%s" "${COMPREPLY[@]}"'
    )
    variables = {**world.environment, "NAME": name, "TYPED": typed}
    folder = world.folder
    done = subprocess.run(["bash", "-c", code], cwd=folder, env=variables, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (found, "") and not (folder / "never").exists()


# --- what it asks ---------------------------------------------------------------------------------------------------


def completed(world, *words, **variables):
    done = subprocess.run(
        [sys.executable, "-m", "zerochat", *words],
        env={**world.environment, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_names_are_those_that_the_terminal_shows_as_they_are(world):
    shown = sorted(name for name in NAMES if "\x1b" not in name and not name.startswith("-"))
    assert completed(world, "__complete", "groups") == shown, "and none could be taken for an option"
    assert completed(world, "__complete", "profiles") == ["work"]
    assert completed(world, "__complete", "sent-files", NAMES[1]) == ["film.mkv", ODD]
    assert completed(world, "__complete", "bots") == BOTS


def test_values_of_arguments_are_completed():
    found = {
        (" ".join(verb.path), name): value.kind
        for verb in outline(grammar()).all()
        for names, value in [
            *((option.flags, option.value) for option in verb.options),
            *(((one.value.metavar,), one.value) for one in verb.positionals),
        ]
        for name in names
        if value is not None
    }
    assert {kind for (_, name), kind in found.items() if name == "GROUP"} == {"groups"}
    assert {kind for (_, name), kind in found.items() if name == "MEMBER"} == {"members"}
    assert {kind for (_, name), kind in found.items() if name in ("--bot", "--consumer")} == {"bots"}
    for verb, name in (("search", "--from"), ("proof", "--by"), ("tlog", "--witness"), ("tlog", "--operator")):
        assert found[verb, name] == "members"
    assert found["disconnect", "CONNECTION"] == found["message", "CONNECTION"] == "connections"
    (setting,) = (one.value for verb in outline(grammar()).all() for one in verb.options if one.flags == ("--set",))
    assert {"theme=", "keymap="} <= set(setting.choices)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_options_that_name_a_bot_complete_bots(world, shell):
    text = script(world, shell).read_text()
    assert ("bot retire --bot') echo bots" in text) or ("-l bot -x -a '(__zerochat_names bots)'" in text)


@pytest.mark.slow
def test_completion_starts_no_agent_and_asks_no_passphrase(world, tmp_path):
    """Neither without an agent, nor where a profile has a passphrase, nor where the agent does not answer."""
    from zerochat.agent.storage.profiles import create_profile

    locked = profile_paths("locked", world.environment)
    create_profile(locked, "a", b"a passphrase of some length")
    assert completed(world, "--profile", "locked", "__complete", "groups") == []
    assert completed(world, "--profile", "nobody", "__complete", "groups") == []
    assert completed(world, "--profile", "nobody", "__complete", "sent-files", NAMES[1]) == []
    assert not locked.socket.exists() and not locked.log.exists()
    world.served.answers["list_groups"] = lambda _: None  # never answered
    assert completed(world, "__complete", "groups") == []


def test_completing_names_loads_no_heavy_modules(world):
    code = (
        "import sys; from zerochat.cli import main; main(['__complete', 'groups']);"
        "print([m for m in ('zmq', 'apsw', 'cryptography', 'nacl', 'zerochat.agent.loop') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=world.environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_completes_the_topics():
    (help_,) = (verb for verb in outline(grammar()).verbs if verb.path == ("help",))
    assert [each.value.choices for each in help_.positionals] == [tuple(topics())]


@pytest.mark.parametrize("shell", others_slow(SHELLS))
def test_every_verb_and_option_is_in_the_script(world, shell):
    text = script(world, shell).read_text()
    for verb in outline(grammar()).all():
        assert not verb.path or verb.path[-1] in text
        for option in verb.options:
            for flag in option.flags:
                assert (
                    f" -{'l' if flag[1] == '-' else 's'} {flag.lstrip('-')} " if shell == "fish" else flag
                ) in text, flag
    assert "__complete" not in [verb.path[-1] for verb in outline(grammar()).verbs]
