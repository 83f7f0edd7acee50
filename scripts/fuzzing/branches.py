"""Branch coverage of zerochat's code: its modules compiled with a mark in every branch.

Each branch of a function (the body of an `if`, its other side even if empty, a loop's body and its end, a handler, a
case, the second operand of an `or`, a part of a conditional expression) adds its number to one set. A mark costs some
tens of nanoseconds, a tenth of line tracing, and needs only Python: no compiler and no platform-specific wheel.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

PACKAGE = "zerochat"
_MARK = "__taken__"

taken: set[int] = set()
"""The branches that were taken since it was last cleared."""
places: list[tuple[str, int]] = []
"""Where each branch begins: module and line, by its number."""


def watch() -> None:
    """Instrument every module of zerochat that is imported from now on. Raises RuntimeError if some were imported
    before, since they would not be measured."""
    if early := sorted(name for name in sys.modules if name == PACKAGE or name.startswith(PACKAGE + ".")):
        raise RuntimeError(f"{early[0]} is imported already, and says nothing of its branches")
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != PACKAGE and not fullname.startswith(PACKAGE + "."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Compiles from the source each time: cached bytecode has no marks."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return marked(self.get_data(path), path, fullname)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_MARK] = taken.add
        super().exec_module(module)


def marked(source: bytes, path: str, module: str) -> CodeType:
    """The code of a module, with a mark in every branch of its functions."""
    tree = _Marks(module).visit(ast.parse(source, path))
    code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    return code


class _Marks(ast.NodeTransformer):
    """Outside of functions nothing is marked: it runs once."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._inside = False

    def _call(self, line: int) -> ast.Call:
        places.append((self._module, line))
        name = ast.Name(_MARK, ast.Load())
        return ast.Call(name, [ast.Constant(len(places) - 1)], [])

    def _block(self, body: list[ast.stmt], line: int) -> list[ast.stmt]:
        """These statements, or none, with a mark before them; a docstring stays the first."""
        line = body[0].lineno if body else line
        return [ast.copy_location(ast.Expr(self._call(line)), body[0]) if body else ast.Expr(self._call(line)), *body]

    def _value(self, value: ast.expr) -> ast.expr:
        """The value, with a mark when it is evaluated: the mark returns None, so `or` continues."""
        return ast.copy_location(ast.BoolOp(ast.Or(), [self._call(value.lineno), value]), value)

    def _function(self, node: Any) -> Any:
        outside, self._inside = self._inside, True
        node.body = [self.visit(each) for each in node.body]
        self._inside = outside
        first = node.body[0]
        documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        node.body[documented:] = self._block(node.body[documented:], node.lineno)
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def _branch(self, node: Any, *names: str) -> Any:
        self.generic_visit(node)
        if self._inside:
            for name in names:
                setattr(node, name, self._block(getattr(node, name), getattr(node, "lineno", 0)))
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        found: ast.AST = self._branch(node, "body", "orelse")
        return found

    visit_For = visit_While = visit_AsyncFor = visit_If  # type: ignore[assignment]

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        found: ast.AST = self._branch(node, "body")
        return found

    visit_match_case = visit_ExceptHandler  # type: ignore[assignment]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self._inside:
            node.values[1:] = [self._value(value) for value in node.values[1:]]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if self._inside:
            node.body, node.orelse = self._value(node.body), self._value(node.orelse)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        if self._inside and node.ifs:
            node.ifs.append(self._passed(node.ifs[-1]))
        return node

    def _passed(self, condition: ast.expr) -> ast.expr:
        """True, with a mark: the body of a comprehension after its conditions."""
        call = self._call(condition.lineno)
        return ast.copy_location(ast.UnaryOp(ast.Not(), call), condition)


def names(numbers: Iterable[int]) -> list[str]:
    """Branches as `module:line`, in their order."""
    return [f"{module}:{line}" for module, line in sorted({places[number] for number in numbers})]


def counting(work: Callable[[], object]) -> frozenset[int]:
    """The branches that some work takes."""
    taken.clear()
    work()
    return frozenset(taken)
