"""Finds the invitation in pasted text, and parses invitations to connections.

Users paste whole sentences, quoted mails, and the complete output of `zerochat invite`. Group invitations and
connection invitations are distinguished by their goal code, and parsed by `didcomm/invitation.py` and
`didcomm/protocols/oob_read.py`. Nothing is fetched here: a client follows short links
first. Every refusal is a sentence for the user.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from zerochat.didcomm.did import pin
from zerochat.didcomm.invitation import CODE_PREFIX, GOAL_CODE, Invitation, parse_invitation
from zerochat.didcomm.protocols.oob_read import OutOfBand, ShortLink, read_invitation
from zerochat.didcomm.protocols.short_links import ID_CHARS, KEY_CHARS
from zerochat.errors import BadInvitation, LocalError, RemoteError

PIECES_MAX: Final = 80
"""Lines into which a mail program may break one link."""
MEDIATE: Final = "request-mediate"
"""The goal code of mediator invitations, used by several implementations."""
TRIES_MAX: Final = 1_000
"""Parse attempts in total: a page of links takes a few hundred; the limit bounds the time for hostile text."""
WEB_DIDS_MAX: Final = 4
"""Authors of one invitation whose documents are read."""
SHORT_PIECES_MAX: Final = 6
"""Lines into which a short link may be broken."""
_SEALED_LINK = re.compile(
    rf"[<\"'`(\[]*(https?://[^\s#]*[?&]_oobid=[A-Za-z0-9_-]{{{ID_CHARS}}}#[A-Za-z0-9_-]{{{KEY_CHARS}}})", re.IGNORECASE
)
"""A short link that a mediator serves, with its key."""
_QUOTED = re.compile(r"^[ \t]*(?:>[ \t]?)+", re.MULTILINE)
"""Quotation marks at the start of lines in a reply mail."""
_BEGIN = re.compile(r"[<\"'`(\[]*([A-Za-z][A-Za-z0-9+.-]*://|ZC:)", re.IGNORECASE)
_AROUND: Final = "<>\"'`()[].,;:!?"
"""Characters around an invitation that are not part of it."""


class SeveralInvitations(LocalError):
    """The text contains several different invitations (…{one}… and …{other}…). Paste only one."""


class BadLink(LocalError):
    """This is not a valid connection invitation: {why}. Ask for a new one, and paste the whole link."""


class ForAGroup(LocalError):
    """This is an invitation to a group. Join it with `zerochat join`, or with /join in the chat."""


class ForAMediator(LocalError):
    """This is a mediator's invitation, not one to a group. Add the mediator with `zerochat route add`."""


class ForAConnection(LocalError):
    """This is an invitation to connect with one agent, not one to a group. Use it with `zerochat connect`."""


def read_pasted(text: str, now_s: int) -> OutOfBand:
    """The Out-of-Band invitation in a link or JSON; `now_s` in UTC seconds. Raises BadLink, ForAGroup or
    SeveralInvitations."""
    text = only_invitation(text)
    if text.lstrip()[: len(CODE_PREFIX)].upper() == CODE_PREFIX:
        raise ForAGroup
    try:
        found = read_invitation(text)
    except RemoteError as error:
        raise BadLink(why=error.fields.get("why", "it is invalid")) from None
    if isinstance(found, ShortLink):
        raise BadLink(why="it is a short link that was not resolved")
    if found.goal_code == GOAL_CODE:
        raise ForAGroup
    if found.expires_time is not None and found.expires_time <= now_s:
        ended = datetime.fromtimestamp(max(found.expires_time, 0), UTC)
        raise BadLink(why=f"it expired at {ended:%Y-%m-%d %H:%M} UTC")
    return found


def web_dids(invitation: OutOfBand) -> tuple[str, ...]:
    """The did:web of an invitation's authors."""
    dids = [(one.did or "").partition("#")[0] for one in invitation.inviters[:WEB_DIDS_MAX]]
    return tuple(dict.fromkeys(did for did in dids if did.startswith("did:web:")))


def with_documents(invitation: OutOfBand, documents: Mapping[str, str]) -> OutOfBand:
    """The invitation with these documents of its did:web. Raises BadLink."""
    inviters = []
    for one in invitation.inviters:
        did = (one.did or "").partition("#")[0]
        try:
            pinned = pin(did, documents[did].encode()) if did in documents else one.did
        except RemoteError as error:
            raise BadLink(why=f"its author has {error.fields.get('why', 'an invalid DID document')}") from None
        inviters.append(replace(one, did=pinned))
    return replace(invitation, inviters=tuple(inviters))


def read_for_group(text: str, now_s: int) -> Invitation:
    """The group invitation in pasted text; `now_s` in UTC seconds. Raises BadInvitation, InvitationExpired,
    SeveralInvitations, ForAMediator or ForAConnection."""
    text = only_invitation(text)
    try:
        return parse_invitation(text, now_s)
    except BadInvitation:
        try:
            other: OutOfBand | ShortLink | None = read_invitation(text)
        except RemoteError:
            other = None
        if isinstance(other, OutOfBand) and other.goal_code == MEDIATE:
            raise ForAMediator from None
        if isinstance(other, OutOfBand) and other.goal_code != GOAL_CODE:
            raise ForAConnection from None
        raise


def only_invitation(text: str) -> str:
    """The single invitation in pasted text, possibly present in two forms; without one, the text itself, so that the
    parser can report the error. A short link is used if there is nothing else. Raises SeveralInvitations."""
    words = _QUOTED.sub("", text).split()
    begins = [place for place, word in enumerate(words) if _BEGIN.match(word)]
    if not begins or text.lstrip()[:1] == "{":
        return text
    found: dict[Invitation | ShortLink | str, str] = {}
    left = TRIES_MAX
    for begin, end in pairwise([*begins, len(words)]):
        for upto in range(begin + 1, min(end, begin + PIECES_MAX, begin + left) + 1):  # may be broken into lines
            left -= 1
            piece = "".join(words[begin:upto]).strip(_AROUND)
            if (read := _read(piece)) is not None:
                if isinstance(read, ShortLink):
                    piece = _whole_short_link(words[begin:end]) or piece
                    read = ShortLink(piece)
                found.setdefault(read.id if isinstance(read, OutOfBand) else read, piece)
                break
    long = [piece for read, piece in found.items() if not isinstance(read, ShortLink)]
    pieces = long or list(found.values())
    if len(pieces) > 1:
        one, other = pieces[:2]
        same = next(place for place in range(len(one) + 1) if one[: place + 1] != other[: place + 1])
        raise SeveralInvitations(one=one[same : same + 12], other=other[same : same + 12])
    if not pieces:
        return words[begins[0]] if begins[0] else text
    return pieces[0]


def _whole_short_link(words: list[str]) -> str | None:
    """The short link of a mediator at the start of these words, perhaps broken into lines; None: it is another one. A
    part of a short link is a short link too, so only its known length shows where it ends."""
    text = "".join(words[:SHORT_PIECES_MAX])
    found = _SEALED_LINK.match(text)
    return found[1] if found else None


def _read(piece: str) -> Invitation | OutOfBand | ShortLink | None:
    """The invitation in a link or a code; None: invalid or incomplete."""
    try:
        return parse_invitation(piece, 0)
    except LocalError:
        pass
    try:
        return read_invitation(piece)
    except (RemoteError, LocalError):
        return None
