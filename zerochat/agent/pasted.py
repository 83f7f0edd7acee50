"""Reads what somebody pasted to connect with an agent that may be of any make; a refusal is a sentence for a person.

An invitation to one of our groups is told from it by its goal, so that nobody makes a connection of what was meant for
`zerochat join`. Nothing is fetched here: a short link is followed by the face, before the agent gets to see it.
"""

from datetime import UTC, datetime

from zerochat.didcomm.invitation import CODE_PREFIX, GOAL_CODE
from zerochat.didcomm.protocols.oob import OutOfBand, ShortLink, read_invitation
from zerochat.errors import LocalError, RemoteError


class BadLink(LocalError):
    """This is no invitation to connect with: {why}. Ask for a fresh one, and paste the whole link."""


class ForAGroup(LocalError):
    """This is an invitation to a group. Join it with `zerochat join`, or with /join in the chat."""


def read_pasted(text: str, now_s: int) -> OutOfBand:
    """The Out-of-Band invitation in a link, or in JSON; `now_s` in UTC seconds. Raises BadLink or ForAGroup."""
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
