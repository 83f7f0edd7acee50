"""The control protocol written out: as JSON Schema for programs, and as a page for people.

Both are made of `schema/` and of nothing else: the shapes, their docstrings, and the docstrings below their fields,
which only the source has.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from zerochat import rpc

REFS: Final = "#/$defs/{name}"
PLAIN: Final = {
    type(None): "null",
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    bytes: "base64",
}


def json_schema() -> dict[str, Any]:
    """Every method and every notification with its shapes; what they are made of is below `$defs`."""
    named = [(name, *shapes) for name, shapes in rpc.METHODS.items()]
    wanted = [shape for _, params, result in named for shape in (params, result)] + list(rpc.NEWS.values())
    shapes, components = msgspec.json.schema_components(wanted, ref_template=REFS)
    found = iter(shapes)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "zerochat control protocol",
        "protocol": rpc.PROTOCOL,
        "methods": {name: {"params": next(found), "result": next(found)} for name, *_ in named},
        "notifications": {name: {"params": next(found)} for name in rpc.NEWS},
        "$defs": dict(sorted(components.items())),
    }


def document() -> str:
    """The page for people, in Markdown."""
    return "\n".join([*_opening(), *_methods(), *_notifications(), *_shapes()]).rstrip() + "\n"


def _opening() -> Iterator[str]:
    intro, _, _ = inspect.cleandoc(rpc.__doc__ or "").partition("\n    groups ")
    heading, _, rest = intro.partition("\n")
    yield "# The control protocol"
    yield ""
    yield "Made by `scripts/protocol.py` of `zerochat/agent/schema`; change it there."
    yield ""
    yield heading
    yield rest.rstrip()
    yield f"""
This is protocol {rpc.PROTOCOL}. Say `hello` first: an agent of another protocol refuses it. One line has
{rpc.LINE_BYTES_MAX} bytes at the most, either way.

```json
{{"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {{"protocol": {rpc.PROTOCOL}, "client": "ci"}}}}
{{"jsonrpc": "2.0", "id": 2, "method": "subscribe", "params": {{"consumer": "ci", "types": ["message"]}}}}
{{"jsonrpc": "2.0", "id": 3, "method": "send", "params": {{"group": "ops", "text": "built", "key": "build-7"}}}}
{{"jsonrpc": "2.0", "id": 4, "method": "ack", "params": {{"consumer": "ci", "seq": 1042}}}}
```

The socket's place is what `zerochat locate socket` prints; it is open to the user of the profile and to nobody else.
`zerochat rpc --stdio` has the same lines on its standard input and output, and starts an agent where none is running.
`zerochat rpc --schema` prints all of this as JSON Schema.

## Errors

An error has one of JSON-RPC's numbers, or {rpc.REFUSED} for all that zerochat itself refuses, a sentence for a
person, and in the latter case `data`: `code`, a stable name; `exit_code`, with which a verb of the command line would
end; `retry`, which is `never` (it will be refused again until somebody has changed something), `later` (it may well do
after a while, after `retry_after_s` seconds where that is known) or `now`. `KeyReused` also has the `group` and the
`id` of what was said under that key; `AmbiguousGroup` has `ids`: the first letters of the ids of all groups that answer
to that name, with a space between them. Wherever a `group` is asked for, its name is taken, its id, or four or more of
an id's first letters.

## What a consumer can rely on

- Every event of the log, and every happening, is told to it in the order of `seq`, until it has said `ack`.
- What it has acknowledged is not told again, unless it asks for that (`since`); an `ack` that was answered is on disk.
- At most `credit` items are on their way; nothing is dropped meanwhile.
- Events stay for as long as the log. Of happenings the last {rpc.subscriptions.HAPPENINGS_MAX} of the last \
{rpc.subscriptions.HAPPENINGS_MS_MAX // 86_400_000} days are kept, from the moment when the first consumer is made. Before
  any goes that it has not acknowledged, it is told `overflow`; an item `dropped` stands in the place of those gone.
- What was asked under a `key` is done once in {rpc.subscriptions.KEYS_MS_MAX // 86_400_000} days, or until \
{rpc.subscriptions.KEYS_MAX} more keys were used, also where the agent was killed
  before it could answer.
"""


def _methods() -> Iterator[str]:
    yield "## Methods"
    yield ""
    yield "| method | params | result |"
    yield "|---|---|---|"
    for name, (params, result) in rpc.METHODS.items():
        yield f"| `{name}` | {_linked(params)} | {_linked(result)} |"
    yield ""


def _notifications() -> Iterator[str]:
    yield "## Notifications"
    yield ""
    yield "| notification | params |"
    yield "|---|---|"
    for name, shape in rpc.NEWS.items():
        yield f"| `{name}` | {_linked(shape)} |"
    yield ""


def _shapes() -> Iterator[str]:
    yield "## Shapes"
    yield ""
    yield "A member without a default must be there."
    for shape in sorted(_all_shapes(), key=lambda one: one.__name__):
        yield ""
        yield f"### {shape.__name__}"
        if doc := _doc(shape):
            yield ""
            yield doc
        said = _field_docs(shape)
        if fields(shape):
            yield ""
        for each in fields(shape):
            about = " ".join(said.get(each.name, "").split())
            yield f"- `{each.encode_name}`: {_typed(each)}{' — ' + about if about else ''}"


def _typed(each: FieldInfo) -> str:
    default = each.default
    if default is msgspec.NODEFAULT:
        default = each.default_factory() if each.default_factory is not msgspec.NODEFAULT else msgspec.NODEFAULT
    if default is msgspec.NODEFAULT:
        return _linked(each.type)
    return f"{_linked(each.type)} = `{msgspec.json.encode(default).decode()}`"


def _linked(shape: Any) -> str:
    """A type as it is written, with the shapes in it as links."""
    if isinstance(shape, type) and issubclass(shape, Struct):
        return f"[{shape.__name__}](#{shape.__name__.lower()})"
    origin, parts = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return _linked(parts[0])
    if origin is list:
        return f"list of {_linked(parts[0])}"
    if origin is dict:
        return "object"
    if shape is Any:
        return "anything"
    if parts and all(isinstance(one, str) for one in parts):
        return " or ".join(f'`"{one}"`' for one in parts)
    if parts:
        return " or ".join(_linked(one) for one in parts)
    return PLAIN[shape]


def _all_shapes() -> set[type[Struct]]:
    found: set[type[Struct]] = set()
    waiting: list[Any] = [*rpc.NEWS.values()]
    for params, result in rpc.METHODS.values():
        waiting += [params, result]
    while waiting:
        one = waiting.pop()
        if isinstance(one, type) and issubclass(one, Struct):
            if one not in found:
                found.add(one)
                waiting += [each.type for each in fields(one)]
        else:
            waiting += get_args(one)
    return found


def _doc(shape: type[Struct]) -> str:
    doc = shape.__dict__.get("__doc__") or ""
    return inspect.cleandoc(doc) if doc else ""


def _field_docs(shape: type[Struct]) -> dict[str, str]:
    """The docstrings below the fields of a shape, as its source has them."""
    return _documented(shape.__module__).get(shape.__name__, {})


@cache
def _documented(module: str) -> dict[str, dict[str, str]]:
    source = inspect.getsource(__import__(module, fromlist=["_"]))
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(textwrap.dedent(source)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        said = found[node.name] = dict[str, str]()
        for one, next_ in zip(node.body, node.body[1:], strict=False):
            match one, next_:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    said[name] = inspect.cleandoc(text)
    return found
