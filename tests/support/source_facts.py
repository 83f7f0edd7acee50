"""What the rules about source text check, from one pass over each module."""

import ast
import gc
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def modules_of(package: str) -> dict[str, Path]:
    return {module_name(path): path for path in sorted((ROOT / package).rglob("*.py"))}


MODULES = modules_of("zerochat")


class Call(NamedTuple):
    """A call, or a name imported from a module: `function` is the dotted name."""

    line: int
    function: str
    arguments: int = 0
    keywords: frozenset[str] = frozenset()


class Function(NamedTuple):
    line: int
    last_line: int
    name: str


class Facts(NamedTuple):
    lines: int
    summary: str
    """The first line of the module's docstring."""
    imports: frozenset[str]
    """The absolute names of imported modules, at the top or inside a function."""
    runtime_imports: frozenset[str]
    """The same without what stands under a top-level `if TYPE_CHECKING:`."""
    functions: tuple[Function, ...]
    calls: tuple[Call, ...]
    names: frozenset[str]
    """Names of classes, functions, parameters, variables and attributes that the module defines."""
    renamed_imports: tuple[str, ...]
    """Names imported from `zerochat` under another name, though the module has nothing else of that name."""


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an expression that is such a chain of names, with `?` for what is not."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{dotted(value)}.{name}"
    return "?"


def _imported(node: ast.AST, package: str) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not isinstance(node, ast.ImportFrom):
        return set()
    source = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
    inner = {f"{source}.{alias.name}" for alias in node.names}
    return {name if name in MODULES else source for name in inner}


def _calls(node: ast.AST) -> list[Call]:
    match node:
        case ast.Call(func=function, args=arguments, keywords=keywords):
            given = frozenset(keyword.arg or "" for keyword in keywords)
            return [Call(node.lineno, dotted(function), len(arguments), given)]
        case ast.ImportFrom(module=module, names=names):
            return [Call(node.lineno, f"{module}.{alias.name}") for alias in names]
    return []


def _defined(node: ast.AST) -> str:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
    return ""


def _renamed_imports(tree: ast.Module) -> tuple[str, ...]:
    taken, renamed = set[str](), list[tuple[int, str, str]]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id, ast.Store()) | ast.FunctionDef(id) | ast.ClassDef(id) | ast.arg(id) | ast.keyword(id):
                taken.add(str(id))
            case ast.MatchAs(name=str(id)):
                taken.add(id)
            case ast.alias(id, None) | ast.alias(_, id):
                taken.add(str(id))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zerochat"):
            renamed += [(node.lineno, one.name, one.asname) for one in node.names if one.asname]
    return tuple(f"line {line}, {name} as {alias}" for line, name, alias in renamed if name not in taken)


def _facts(name: str, path: Path) -> Facts:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imports, runtime_imports, names = set[str](), set[str](), set[str]()
    functions: list[Function] = []
    calls: list[Call] = []
    for statement in tree.body:
        match statement:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for_types = True
            case _:
                for_types = False
        for node in ast.walk(statement):
            found = _imported(node, package)
            imports |= found
            if not for_types:
                runtime_imports |= found
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(Function(node.lineno, node.end_lineno or 0, node.name))
            calls += _calls(node)
            names.add(_defined(node))
    return Facts(
        len(source.splitlines()),
        (ast.get_docstring(tree) or "").partition("\n")[0],
        frozenset(imports),
        frozenset(runtime_imports),
        tuple(functions),
        tuple(calls),
        frozenset(names - {""}),
        _renamed_imports(tree),
    )


@cache
def facts(package: str = "zerochat") -> dict[str, Facts]:
    """By the module's name. Collecting garbage while the trees are built would take twice the time of the rest."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return {name: _facts(name, path) for name, path in modules_of(package).items()}
    finally:
        if collects:
            gc.enable()
