"""Whom a message calls by name: `@Nick` anywhere in it, and `Nick:` or `Nick,` at its beginning.

The one who writes it works that out, since only there it is certain who was meant; a name that two members have at the
moment calls nobody.
"""

import re
from collections import Counter
from collections.abc import Mapping
from unicodedata import normalize

from zerochat.group.messages.bodies import MENTIONS_MAX


def mentions(text: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """The DIDs of those whom this text calls, in the order in which it does, at most MENTIONS_MAX. `names`: what the
    members are called, by DID."""
    folded = {did: normalize("NFC", name).casefold() for did, name in names.items()}
    often = Counter(folded.values())
    dids = {name: did for did, name in folded.items() if name and often[name] == 1}
    if not dids:
        return ()
    called = "|".join(re.escape(name) for name in sorted(dids, key=len, reverse=True))
    said = normalize("NFC", text).casefold()
    pattern = re.compile(rf"(?<!\w)@(?P<at>{called})(?!\w)|\A\s*(?P<first>{called})\s*[:,]")
    found: dict[str, None] = {}
    for match in pattern.finditer(said):
        found.setdefault(dids[match["at"] or match["first"]])
        if len(found) == MENTIONS_MAX:
            break
    return tuple(found)
