"""Code blocks and commands of the README and the manual."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "zerochat" / "manual").glob("*.md")))
}
README = PAGES["README.md"]


def commands(text: str) -> list[list[str]]:
    """The arguments of every call of `zerochat` in lines of shell: also in pipes, in `$(...)`, and after settings."""
    found = []
    for line in text.splitlines():
        lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        call: list[str] | None = None
        for token in lexer:
            inner = re.search(r"\$\((zerochat [^)]*)\)", token)
            if inner:
                found += commands(inner[1])
            if call is None and re.fullmatch(r"(.*/)?zerochat", token):
                found.append(call := [])
            elif set(token) <= set("|&;<>()"):
                call = None
            elif call is not None:
                call.append(token)
    return found


def blocks(page: str, kind: str = "sh") -> list[str]:
    """The code blocks of a page in this language."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)


README_BLOCKS = blocks("README.md")
