"""Import layers: imports go down only, without circles; the core has no clock, disk or network.

Packages are the top-level names in `zerochat`; a layer is a set of packages that may not import each other. A new
package needs a layer here.
"""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

from tests.support.source_facts import MODULES, ROOT, dotted, facts

LAYERS = [
    {"ink"},
    {"closing", "errors", "version", "limits", "qr", "terminal_text"},
    {"crypto", "names", "slash_commands", "rpc"},
    {"didcomm", "overlay", "evidence", "presentation"},  # siblings: none may import another
    {"group"},
    {"agent", "contract", "manual"},  # siblings, too: the chat runs without what the contract needs
    {"tui", "bot", "sim", "demo"},  # clients: none may import another
    {"testing"},  # a thin layer on sim for authors of bots
    {"cli"},
    {"__main__"},
]
LAYER_OF = {package: number for number, layer in enumerate(LAYERS) for package in layer}
PURE = set[str]().union(*LAYERS[: LAYER_OF["agent"]]) - {"presentation", "rpc"}  # which write dates

FORBIDDEN = {
    *("os", "sys", "platform", "signal", "subprocess", "multiprocessing", "threading", "concurrent", "asyncio"),
    *("time", "datetime", "calendar", "sched", "random", "secrets", "uuid"),
    *("io", "pathlib", "tempfile", "shutil", "glob", "fcntl", "sqlite3", "apsw", "dbm", "shelve", "pickle", "logging"),
    *("socket", "socketserver", "select", "selectors", "ssl", "http", "ftplib", "smtplib", "zmq"),
    *("textual", "rich", "pyspark"),
}
"""What the core may not import: clocks, dice, disks, wires, threads, screens."""

IMPURE_CALLS = re.compile(
    r"""
      (.*\.)?generate(_key|_parameters)?      # PyNaCl and cryptography make keys with dice of their own
    | (.*\.)?(urandom|getrandom|token_bytes|uuid1|uuid4|uuid7)
    | (nacl\.)?utils\.random | randombytes\w*
    | (.*\.)?(SealedBox|Fernet|MultiFernet)   # an ephemeral key, or an IV, that nobody can choose
    | (time\.)?(time|time_ns|monotonic|monotonic_ns|perf_counter) | (.*\.)?(utcnow|today)
    | (date)?time\.now | open | (.*\.)?(read_text|read_bytes|write_text|write_bytes) | print | input
    """,
    re.VERBOSE,
)
"""Calls that reach the world without an import that says so."""


TUI_LAYERS = [
    {"style"},
    {"host", "messages"},
    {"state"},
    {"composer", "panels"},
    {"dialogs"},
    {"base_app"},
    {"chat_layout"},
    {"chat_view"},
    {"actions"},
    {"chat_screen"},
    {"app"},
    {""},
]
"""The rooms of the terminal application, and its modules that lie in none of them; the last is the package itself."""
TUI_LAYER_OF = {package: number for number, layer in enumerate(TUI_LAYERS) for package in layer}


def package_of(name: str) -> str:
    """The top-level package or module of a module; empty for `zerochat` itself."""
    return name.split(".")[1] if "." in name else ""


def top_level(names: frozenset[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


PURE_MODULES = [name for name in MODULES if package_of(name) in PURE]


def test_every_package_has_a_layer():
    assert [name for name in MODULES if name != "zerochat" and package_of(name) not in LAYER_OF] == []


def test_imports_go_down():
    upward = [
        f"{name} imports {target}"
        for name in MODULES.keys() - {"zerochat"}
        for target in facts()[name].imports
        if target.split(".")[0] == "zerochat" and package_of(target) not in {"", package_of(name)}
        if LAYER_OF[package_of(target)] >= LAYER_OF[package_of(name)]
    ]
    assert upward == []


def test_imports_go_down_in_the_terminal_application():
    def package_inside(module: str) -> str:
        return ".".join(module.split(".")[2:3])

    upward = [
        f"{name} imports {target}"
        for name in MODULES
        if package_of(name) == "tui"
        for target in facts()[name].runtime_imports
        if package_of(target) == "tui" and package_inside(target) != package_inside(name)
        if TUI_LAYER_OF[package_inside(target)] >= TUI_LAYER_OF[package_inside(name)]
    ]
    assert upward == []


def test_importing_the_package_costs_nothing():
    assert facts()["zerochat"].runtime_imports <= {"typing", "importlib", "zerochat.version"}


def test_no_cycles():
    """Not even through imports for types."""
    graph = {name: {t for t in module.imports if t in MODULES and t != name} for name, module in facts().items()}
    TopologicalSorter(graph).prepare()


def test_the_core_imports_no_clock_disk_or_network():
    """Time and randomness are arguments of the core; everything else is an effect."""
    impure = {name: top_level(facts()[name].imports) & FORBIDDEN for name in PURE_MODULES}
    assert {name: found for name, found in impure.items() if found} == {}


def test_the_core_calls_no_clock_disk_or_network():
    impure = [
        f"{name}:{call.line} {call.function}"
        for name in PURE_MODULES
        for call in facts()[name].calls
        if IMPURE_CALLS.fullmatch(call.function)
    ]
    assert impure == []


def test_the_core_chooses_every_nonce():
    """PyNaCl's `Box.encrypt(plain)` and `SecretBox.encrypt(plain)` draw a random nonce if it is omitted."""
    without = [
        f"{name}:{call.line}"
        for name in PURE_MODULES
        for call in facts()[name].calls
        if call.function.endswith(".encrypt") and call.arguments == 1 and "nonce" not in call.keywords
    ]
    assert without == []


def test_only_the_terminal_application_imports_textual():
    foreign = {name: top_level(module.imports) for name, module in facts().items()}
    assert [name for name, found in foreign.items() if "textual" in found and package_of(name) != "tui"] == []
    assert [name for name, found in foreign.items() if "pyspark" in found] == []


@pytest.mark.parametrize(
    "source",
    [
        "SigningKey.generate()",
        "X25519PrivateKey.generate()",
        "nacl.utils.random(24)",
        "utils.random(24)",
        "os.urandom(16)",
        "uuid.uuid4()",
        "uuid4()",
        "nacl.public.SealedBox(key)",
        "time.time()",
        "datetime.now()",
        "open('file')",
    ],
)
def test_the_rule_finds_impure_calls(source):
    """The net has no hole where it matters most."""
    [node] = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    assert IMPURE_CALLS.fullmatch(dotted(node.func))


@pytest.mark.parametrize(
    "source", ["moment.random(24)", "random(16)", "moment.now", "box.encrypt(plain, nonce)", "reopen()"]
)
def test_pure_calls_are_allowed(source):
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    assert not any(IMPURE_CALLS.fullmatch(dotted(node.func)) for node in calls)


@pytest.mark.parametrize("arguments", [["--help"], ["send", "--help"], ["--version"]], ids=" ".join)
def test_help_is_quick(arguments):
    """What only prints loads neither the screen nor the wire nor the disk."""
    command = [sys.executable, "-X", "importtime", "-m", "zerochat", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr[-2000:]
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in run.stderr.splitlines() if "|" in line}
    assert "zerochat" in loaded
    assert not loaded & {"textual", "rich", "pyspark", "zmq", "apsw", "nacl", "cryptography", "qrcode"}
