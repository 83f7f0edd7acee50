#!/usr/bin/env python3
"""Generate the reference parts of the manual, the man page and the shell completions from the program's tables.

scripts/manual.py            write them
scripts/manual.py --check    exit with 1 if one of them differs from its table
"""

import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
MANUAL = ROOT / "zerochat" / "manual"

SETTINGS = """\
# Settings

One file has the settings of all profiles. `zerochat config init` creates it with every setting, its default and its
meaning; `zerochat config path` prints its path, `zerochat config check` its errors, and `zerochat config show` the
effective values. In the chat, `/set` shows all settings and `/set theme light` changes one; it keeps your comments in
the file.

```toml
[chat]
theme = "dark"

[chat.keys]
"go.switch" = "ctrl+g"          # other keys; /set lists the names

[chat.groups."hikers"]
notify = "all"                  # for one group; /mute writes it

[profiles.work.network]
web = "0.0.0.0:8081"            # for the profile "work" only
```

An environment variable such as `ZEROCHAT_CHAT__THEME=light` overrides the file, and `zerochat chat --set theme=light`
overrides both for one run. With `NO_COLOR` the chat uses no colours.
"""
COMMANDS = """\
# Commands

`zerochat COMMAND --help` explains a command, with examples. Data goes to standard output, everything else to standard
error. `--format jsonl` prints one JSON object per line. `zerochat --help` lists the exit codes.
"""
SLASH = """\

## In the chat

A line that begins with `/` is a command, and `//` sends a slash. Tab completes. The same commands work in
`zerochat chat --plain`, as far as they need no screen.
"""
KEYS = """\
# Keys

In the chat, F1 shows the keys, and Ctrl+P shows all commands. The mouse works too: a click selects a message, a second
click opens its menu. `keymap = "vim"` or `"emacs"` in `[chat]` selects another keymap, and `[chat.keys]` changes
single keys by the names in the last column.

Up in the empty composer, Esc or a click selects a message: Enter opens its menu, and letters are typed in the composer.
After F6 letters are keys of the selected message, until Esc; `/set letters act` makes them keys at any selection. With
the vim keymap they always are, and Esc in the composer starts its normal mode: `h j k l w b e 0 $` move,
`x dd dw D cw cc C u p` edit, and `i a I A o` insert again.
"""
WRITING = """\

## Writing

`**bold**`, `*italic*`, `` `code` ``, code between lines of three backquotes, `> quotes` and https links are rendered;
`/set markdown off` shows the text as typed. Drafts are stored encrypted half a second after each change. For more than
five pasted lines the chat asks: send as one message, as a file, or edit. Copying uses `wl-copy`, `xclip`, `xsel` or
`pbcopy`, and otherwise the terminal (OSC 52); the chat shows which of them.

## Without a screen

`--plain` prints the same chat line by line, for screen readers, simple terminals and pipes:

```sh
zerochat chat --plain hikers
printf 'At eight, by the bridge.\\n' | zerochat chat --plain work
```
"""


CONFORMANCE = """\
# Conformance to DIDComm v2.1

What DIDComm Messaging v2.1 requires, section by section in its order, with the tests that hold it. The last column says
what differs, or why a row is not held. Version 1 (Aries RFC 0019 and its protocols) is in [interop](interop.md).
"""


def cell(text: object) -> str:
    return str(text).replace("|", r"\|").replace("\n", " ")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def value_text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            return f'`"{value}"`'
        case list() | tuple():
            return "`[" + ", ".join(f'"{one}"' for one in value) + "]`"
    return f"`{value}`"


def settings_page() -> str:
    from zerochat.agent.settings.options import OPTIONS

    page = SETTINGS
    for section, options in groupby(OPTIONS.values(), key=lambda option: option.section):
        rows = [
            (
                f"`{option.key}`",
                value_text(option.default),
                option.meaning[:1].upper() + option.meaning[1:] + ".",
                ", ".join(f"`{value}`" for value in option.choices),
            )
            for option in options
        ]
        page += f"\n## `[{section}]`\n\n" + table(("setting", "default", "meaning", "values"), rows)
    return page


def commands_page() -> str:
    from zerochat.cli.command_tree import command_tree
    from zerochat.cli.parser import grammar
    from zerochat.slash_commands import COMMANDS as SLASH_COMMANDS

    verbs = [verb for verb in command_tree(grammar()).verbs if not verb.path[-1].startswith("_")]
    page = COMMANDS + "\n" + table(("command", ""), ((f"`zerochat {' '.join(v.path)}`", v.summary) for v in verbs))
    slash = ((f"`{info.usage}`", info.explained) for info in SLASH_COMMANDS.values())
    return page + SLASH + "\n" + table(("command", ""), slash)


def keys_page() -> str:
    from zerochat.tui.dialogs.help import key_text
    from zerochat.tui.style.keymaps import binding_owners

    page = KEYS
    for owner in binding_owners():
        rows = [
            (f"`{key_text(binding.key)}`", binding.description, f"`{binding.id}`" if binding.id else "")
            for binding in owner.bindings
            if binding.description
        ]
        if rows:
            page += f"\n## {owner.owner.BINDING_GROUP_TITLE}\n\n" + table(("keys", "", "name"), rows)
    return page + WRITING


def bot_api_page() -> str:
    import bot_api

    return bot_api.page()


def rpc_page() -> str:
    from zerochat.agent.api.reference import document

    return document()


def conformance_page() -> str:
    page = CONFORMANCE
    sections = tomllib.loads((ROOT / "tests" / "didcomm" / "requirements.toml").read_text(encoding="utf-8"))["section"]
    for section in sections:
        rows = (
            (" ".join(dict.fromkeys(keywords.split())), text, " ".join(f"`{test}`" for test in tests.split()), remark)
            for keywords, text, tests, remark in section["rows"]
        )
        page += f"\n## {section['title']}\n\n" + table(("level", "requirement", "tests", "remark"), rows)
    return page


def groups_page(page: Path) -> str:
    """The page with the table of kinds, the first of its section."""
    from zerochat.presentation.group_kinds import KINDS

    rows = (
        (f"`{kind.name}`", f"`{kind.keys}`", f"`{kind.path}`", f"`{kind.accountability}`", kind.gives, kind.gives_up)
        for kind in KINDS
    )
    before, heading, rest = page.read_text(encoding="utf-8").partition("## Kinds of groups\n\n")
    kinds = table(("kind", "keys", "path", "accountability", "gives", "gives up"), rows)
    return before + heading + kinds + "\n" + rest.partition("\n\n")[2]


def telemetry_page(page: Path) -> str:
    """The page with the list of fields between its two markers."""
    from zerochat.agent.telemetry.schema import KINDS, columns

    lines = []
    for name, kind in KINDS.items():
        lines.append(f"**`{name}`** {' '.join((kind.__doc__ or '').split())}\n")
        for one in columns(kind):
            words = f" ({', '.join(f'`{word}`' for word in one.words)})" if one.words else ""
            lines.append(f"- `{one.name}` {one.type}{'?' if one.optional else ''}: {one.text}{words}")
        lines.append("")
    before, _, rest = page.read_text(encoding="utf-8").partition("<!-- fields -->\n")
    return f"{before}<!-- fields -->\n{chr(10).join(lines)}<!-- /fields -->{rest.partition('<!-- /fields -->')[2]}"


def files() -> Iterator[tuple[Path, str]]:
    from zerochat.cli.command_tree import command_tree
    from zerochat.cli.man_page import man_page
    from zerochat.cli.parser import grammar
    from zerochat.cli.shells import script

    yield MANUAL / "settings.md", settings_page()
    yield MANUAL / "commands.md", commands_page()
    yield MANUAL / "keys.md", keys_page()
    yield MANUAL / "json-rpc.md", rpc_page()
    yield MANUAL / "bot-api.md", bot_api_page()
    yield MANUAL / "conformance.md", conformance_page()
    groups = MANUAL / "groups.md"
    yield groups, groups_page(groups)
    telemetry = ROOT / "zerochat" / "agent" / "telemetry" / "README.md"
    yield telemetry, telemetry_page(telemetry)
    tree = command_tree(grammar())
    yield ROOT / "assets" / "man" / "zerochat.1", man_page(tree)
    for shell, name in (("bash", "zerochat"), ("zsh", "_zerochat"), ("fish", "zerochat.fish")):
        yield ROOT / "assets" / "completions" / shell / name, script(shell, tree, "zerochat")


def main() -> int:
    differing = 0
    for path, text in files():
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        if current == text:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(ROOT)} differs from its table: run scripts/manual.py", file=sys.stderr)
            differing = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return differing


if __name__ == "__main__":
    from bench import enter_environment

    enter_environment()
    raise SystemExit(main())
