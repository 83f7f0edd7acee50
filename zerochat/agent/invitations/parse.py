"""Reads what somebody pasted: finds the invitation in it, and for a connection with an agent of any make reads that.

People paste whole sentences, quoted mails, and all that `zerochat invite` has printed. An invitation to one of our
groups is told from one to connect by its goal, so that nobody makes a connection of what was meant for `zerochat join`.
Nothing is fetched here: a short link is followed by the face, before the agent gets to see it. A refusal is a sentence
for a person.
"""

import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from zerochat.didcomm.invitation import CODE_PREFIX, GOAL_CODE, Invitation, parse_invitation
from zerochat.didcomm.protocols.oob_read import OutOfBand, ShortLink, read_invitation
from zerochat.errors import BadInvitation, LocalError, RemoteError

PIECES_MAX: Final = 80
"""So many lines a mail program makes of one link at the most."""
MEDIATE: Final = "request-mediate"
"""The goal code that mediators of several makers write into their invitations."""
TRIES_MAX: Final = 1_000
"""So many pieces are tried in all: a page of links takes a few hundred, and who writes "ZC:" ten thousand times shall
not have the agent busy for the better part of a second."""
_QUOTED = re.compile(r"^[ \t]*(?:>[ \t]?)+", re.MULTILINE)
"""Before each line of a mail that is answered."""
_BEGIN = re.compile(r"[<\"'`(\[]*([A-Za-z][A-Za-z0-9+.-]*://|ZC:)", re.IGNORECASE)
_AROUND: Final = "<>\"'`()[].,;:!?"
"""What may stand around an invitation, none of which is part of it."""


class SeveralInvitations(LocalError):
    """There are several invitations in this, and they are not the same: one has …{one}… in it where another one has
    …{other}…. Paste only the one that you mean."""


class BadLink(LocalError):
    """This is no invitation to connect with: {why}. Ask for a fresh one, and paste the whole link."""


class ForAGroup(LocalError):
    """This is an invitation to a group. Join it with `zerochat join`, or with /join in the chat."""


class ForAMediator(LocalError):
    """This link is a mediator's, and leads into no group. `zerochat route add` asks it to take in what is for you."""


class ForAConnection(LocalError):
    """This link leads to a connection with one agent, and into no group. Use it with `zerochat connect`."""


def read_pasted(text: str, now_s: int) -> OutOfBand:
    """The Out-of-Band invitation in a link, or in JSON; `now_s` in UTC seconds. Raises BadLink, ForAGroup or
    SeveralInvitations."""
    text = only_invitation(text)
    if text.lstrip()[: len(CODE_PREFIX)].upper() == CODE_PREFIX:
        raise ForAGroup
    try:
        found = read_invitation(text)
    except RemoteError as error:
        raise BadLink(why=error.fields.get("why", "it does not open")) from None
    if isinstance(found, ShortLink):
        raise BadLink(why="it is a short link to an invitation that lies elsewhere")
    if found.goal_code == GOAL_CODE:
        raise ForAGroup
    if found.expires_time is not None and found.expires_time <= now_s:
        ended = datetime.fromtimestamp(max(found.expires_time, 0), UTC)
        raise BadLink(why=f"it expired at {ended:%Y-%m-%d %H:%M} UTC")
    return found


def read_for_group(text: str, now_s: int) -> Invitation:
    """The invitation to a group that was pasted; `now_s` in UTC seconds. Raises BadInvitation, InvitationExpired,
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
    """The one invitation in what somebody pasted, be it in two forms; without it, the text as it is, for whoever reads
    that to say what is wrong with it. A short link counts where there is nothing else. Raises SeveralInvitations."""
    words = _QUOTED.sub("", text).split()
    begins = [place for place, word in enumerate(words) if _BEGIN.match(word)]
    if not begins or text.lstrip()[:1] == "{":
        return text
    found: dict[Invitation | ShortLink | str, str] = {}
    left = TRIES_MAX
    for begin, end in pairwise([*begins, len(words)]):
        for upto in range(begin + 1, min(end, begin + PIECES_MAX, begin + left) + 1):  # it may be broken into lines
            left -= 1
            piece = "".join(words[begin:upto]).strip(_AROUND)
            if (read := _read(piece)) is not None:
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


def _read(piece: str) -> Invitation | OutOfBand | ShortLink | None:
    """The whole invitation in a link or a code; None: it is none, or not all of it."""
    try:
        return parse_invitation(piece, 0)
    except LocalError:
        pass
    try:
        return read_invitation(piece)
    except (RemoteError, LocalError):
        return None
