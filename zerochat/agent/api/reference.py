"""Generates the reference of the control protocol from `zerochat.rpc`: JSON Schema, and a page in Markdown."""

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
from zerochat.errors import docstring

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
    """All methods and notifications with their types; shared types are in `$defs`."""
    named = [(name, *shapes) for name, shapes in rpc.METHODS.items()]
    wanted = [shape for _, params, result in named for shape in (params, result)] + list(rpc.NOTIFICATIONS.values())
    shapes, components = msgspec.json.schema_components(wanted, ref_template=REFS)
    found = iter(shapes)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "zerochat control protocol",
        "protocol": rpc.PROTOCOL,
        "methods": {name: {"params": next(found), "result": next(found)} for name, *_ in named},
        "notifications": {name: {"params": next(found)} for name in rpc.NOTIFICATIONS},
        "$defs": dict(sorted(components.items())),
    }


def document() -> str:
    """The page in Markdown."""
    return "\n".join([*_opening(), *_relay_and_errors(), *_methods(), *_notifications(), *_shapes()]).rstrip() + "\n"


def _opening() -> Iterator[str]:
    intro, _, _ = inspect.cleandoc(rpc.__doc__ or "").partition("\n    groups  ")
    heading, _, rest = intro.partition("\n")
    yield "# The control protocol"
    yield ""
    yield "Generated from `zerochat/rpc` by `scripts/manual.py`; edit the sources."
    yield ""
    yield heading
    yield rest.rstrip()
    yield f"""
This is protocol {rpc.PROTOCOL}. Send `hello` first: an agent with another protocol refuses it. A line has at most
{rpc.LINE_BYTES_MAX} bytes, in both directions, and a batch at most {rpc.BATCH_MAX} requests.

```json
{{"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {{"protocol": {rpc.PROTOCOL}, "client": "ci"}}}}
{{"jsonrpc": "2.0", "id": 2, "method": "subscribe", "params": {{"consumer": "ci", "types": ["message"]}}}}
{{"jsonrpc": "2.0", "id": 3, "method": "send_message", "params": {{"group": "ops", "text": "built", "key": "build-7"}}}}
{{"jsonrpc": "2.0", "id": 4, "method": "acknowledge", "params": {{"consumer": "ci", "seq": 1042}}}}
```

`zerochat paths socket` prints the path of the socket; only the user of the profile can connect.
`zerochat rpc --stdio` uses the same lines on standard input and output, and starts an agent where none is running.
`zerochat rpc --schema` prints the protocol as JSON Schema.
"""


def _relay_and_errors() -> Iterator[str]:
    yield f"""\
## Over standard input and output

`zerochat rpc --stdio` goes on where its agent ends. If that was the agent of another command, it attaches to the next
one or starts one; if `zerochat agent` is restarted, it waits for it, at most 30 seconds, and then ends with exit code
6. The program notices only this:

- The greeting and the subscription are repeated. Without a consumer, events continue after the last one that was sent;
  other notifications of the time between are lost. With one, all unacknowledged items come again (`redelivered`).
- Requests that the agent has not carried out are sent to the next one. After a kill this is not known: requests that
  read or take a `key` are repeated, those without one under a key of the relay. The others, and batches with one of
  them or with a request that lacks its `key`, are answered with `AnswerLost`: check before you repeat them.
- An acknowledgement can be refused as `NeverSent`: the items come again.
- The notification `stopping` is not sent, except after `stop_agent`, which ends the relay with exit code 0.
- When no agent returns, all pending requests are answered with `AgentGone`.

## Errors

An error has one of JSON-RPC's numbers, or {rpc.REFUSED} for all errors of zerochat, and a sentence for the user. Errors
have `data`: `code`, a stable name; those of zerochat also `exit_code`, the exit code of a shell command, and `retry`:
`never` (the same request fails again until something changes), `later` (it may succeed, after `retry_after_s` seconds
where known) or `now`. `KeyReused` also has the `group` and `id` of the event that was sent under the key;
`AmbiguousGroup` has `ids`: distinct prefixes of the ids of the groups with that name, separated by spaces. A parameter
`group` is a name, an id, or at least four characters of an id.

With `--format json`, a shell command that fails prints `{{"error": {{"message": …, "code": …, "exit_code": …}}}}`, with
the same further fields, as the last line of its standard error.

## Guarantees for consumers

- A consumer receives every event of the log and every durable notification in the order of `seq`, until it
  acknowledges them.
- Acknowledged items are not sent again unless the consumer moves its cursor (`since`). An answered `acknowledge` is on
  disk.
- At most `credit` items are in flight; nothing is dropped because of it.
- Events are kept as long as the log. The last {rpc.subscriptions.NOTIFICATIONS_MAX} notifications of the last \
{rpc.subscriptions.NOTIFICATIONS_MS_MAX // 86_400_000} days are kept, once the first consumer exists. Before
  unacknowledged ones are dropped, the consumer receives `overflow`; an item `dropped` replaces them.
- A request with a `key` is carried out once in {rpc.subscriptions.KEYS_MS_MAX // 86_400_000} days, or until \
{rpc.subscriptions.KEYS_MAX} more keys were used, even where the
  agent was killed before it answered.
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
    for name, shape in rpc.NOTIFICATIONS.items():
        yield f"| `{name}` | {_linked(shape)} |"
    yield ""


def _shapes() -> Iterator[str]:
    yield "## Types"
    yield ""
    yield "Fields without a default are required."
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
    """A type with links to the types in it."""
    if isinstance(shape, type) and issubclass(shape, Struct):
        return f"[{shape.__name__}](#{shape.__name__.lower()})"
    origin, parts = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return _linked(parts[0])
    if origin is list:
        return f"list of {_linked(parts[0])}"
    if origin is tuple and parts[-1] is not Ellipsis:
        return f"[{', '.join(map(_linked, parts))}]"
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
    waiting: list[Any] = [*rpc.NOTIFICATIONS.values()]
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
    return inspect.cleandoc(docstring(shape))


def _field_docs(shape: type[Struct]) -> dict[str, str]:
    """The docstrings of the fields of a type, which only its source has."""
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
