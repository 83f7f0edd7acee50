"""The house rules, checked: imports go down, never up and never round; the core touches no clock, dice, disk or wire.

Rooms are the top-level names in `zerochat`; a floor is a set of rooms that may not see each other. A new room needs a
floor here before it can have a door.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "zerochat"

FLOORS = [
    {"errors", "terminal_text"},
    {"crypto", "names", "slash_commands", "rpc"},
    {"didcomm", "overlay", "evidence", "presentation"},  # siblings: none may import another
    {"group"},
    {"agent", "contract"},  # siblings, too: the chat runs without what the contract needs
    {"tui", "bot", "sim", "demo"},  # faces: none may import another
    {"testing"},  # a thin face on sim for those who write bots
    {"cli"},
    {"__main__"},
]
FLOOR_OF = {room: number for number, floor in enumerate(FLOORS) for room in floor}
PURE = set[str]().union(*FLOORS[: FLOOR_OF["agent"]]) - {"presentation"}  # which writes dates and local times

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


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def statements(module: ast.Module, *, for_types: bool) -> Iterator[ast.AST]:
    """Every node of a module; what stands under a top-level `if TYPE_CHECKING:` only on request."""
    for node in module.body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) if not for_types:
                continue
        yield from ast.walk(node)


def imports(name: str, *, for_types: bool = True) -> Iterator[str]:
    """Everything that a module imports, at its top or inside a function, by absolute name."""
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in statements(TREES[name], for_types=for_types):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                yield inner if inner in MODULES else source


GRAPH = {name: set(imports(name)) for name in MODULES}
RUNNING_GRAPH = {name: set(imports(name, for_types=False)) for name in MODULES}
"""Without what is imported for its types alone."""

TUI_FLOORS = [
    {"style"},
    {"host", "messages"},
    {"state"},
    {"composer", "panels"},
    {"dialogs"},
    {"chat_view"},
    {"actions"},
    {"chat_screen"},
    {"app"},
    {""},
]
"""The rooms of the terminal application, and its modules that lie in none of them; the last is the package itself."""
TUI_FLOOR_OF = {room: number for number, floor in enumerate(TUI_FLOORS) for room in floor}


def room_of(name: str) -> str:
    """The room of a module; the package itself (`zerochat`) is no room."""
    return name.split(".")[1] if "." in name else ""


PURE_MODULES = [name for name in MODULES if room_of(name) in PURE]


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an expression that is such a chain of names, with `?` for what is not."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{dotted(value)}.{name}"
    return "?"


@pytest.mark.parametrize("name", MODULES)
def test_every_room_has_a_floor(name):
    assert name == "zerochat" or room_of(name) in FLOOR_OF, f"{name} lives on no floor: give its room one"


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {"zerochat"}))
def test_imports_go_down(name):
    room = room_of(name)
    for target in GRAPH[name]:
        other = room_of(target)
        if target.split(".")[0] == "zerochat" and other not in {"", room}:
            assert FLOOR_OF[other] < FLOOR_OF[room], f"{name} imports {target}, which is not below it"


@pytest.mark.parametrize("name", [name for name in MODULES if room_of(name) == "tui"])
def test_imports_go_down_in_the_terminal_application_too(name):
    def room_inside(module: str) -> str:
        return ".".join(module.split(".")[2:3])

    room = room_inside(name)
    for target in RUNNING_GRAPH[name]:
        other = room_inside(target)
        if room_of(target) == "tui" and other != room:
            assert TUI_FLOOR_OF[other] < TUI_FLOOR_OF[room], f"{name} imports {target}, which is not below it"


def test_importing_the_package_costs_nothing():
    assert RUNNING_GRAPH["zerochat"] <= {"typing", "importlib"}


def test_no_cycles():
    graph = {name: {t for t in targets if t in MODULES and t != name} for name, targets in RUNNING_GRAPH.items()}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("name", PURE_MODULES)
def test_the_core_imports_no_world(name):
    found = {target.split(".")[0] for target in GRAPH[name]} & FORBIDDEN
    assert not found, f"{name} imports {found}: time and randomness are arguments, everything else is an effect"


@pytest.mark.parametrize("name", PURE_MODULES)
def test_the_core_calls_no_world(name):
    for node in ast.walk(TREES[name]):
        match node:
            case ast.Call(func=function):
                asked = [dotted(function)]
            case ast.ImportFrom(module=module, names=names):
                asked = [f"{module}.{alias.name}" for alias in names]
            case _:
                continue
        found = [call for call in asked if IMPURE_CALLS.fullmatch(call)]
        assert not found, f"{name}, line {node.lineno}: {found} asks the world; take what it gives as an argument"


@pytest.mark.parametrize("name", PURE_MODULES)
def test_the_core_chooses_every_nonce(name):
    """PyNaCl's `Box.encrypt(plain)` and `SecretBox.encrypt(plain)` throw dice for a nonce that is left out."""
    for node in ast.walk(TREES[name]):
        match node:
            case ast.Call(func=ast.Attribute(attr="encrypt"), args=[_], keywords=keywords):
                given = {keyword.arg for keyword in keywords}
                assert "nonce" in given, f"{MODULES[name]}:{node.lineno}: encrypt() without a nonce"


@pytest.mark.parametrize("name", MODULES)
def test_only_the_terminal_application_imports_textual(name):
    foreign = {target.split(".")[0] for target in GRAPH[name]}
    assert "textual" not in foreign or room_of(name) == "tui"
    assert "pyspark" not in foreign


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
def test_the_rule_sees(source):
    """The net has no hole where it matters most."""
    [node] = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    assert IMPURE_CALLS.fullmatch(dotted(node.func))


@pytest.mark.parametrize(
    "source", ["moment.random(24)", "random(16)", "moment.now", "box.encrypt(plain, nonce)", "reopen()"]
)
def test_the_rule_lets_pass(source):
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
