"""What a pasted text refers to on servers: the invitation behind a short link, and the documents of did:web."""

import time
from typing import ClassVar, Final

from zerochat.agent.invitations.pasted_text import read_pasted, web_dids
from zerochat.agent.network.web.did_web import fetch_document
from zerochat.agent.network.web.short_link_fetch import (
    NoInvitationThere,
    ShortLinkGone,
    ShortLinkUnanswered,
    fetch_invitation,
)
from zerochat.agent.settings.reader import load_settings
from zerochat.agent.settings.values import ALWAYS
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.crypto.encoding import b64url
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.invitation import URL_PREFIX
from zerochat.errors import LocalError

SHORT_LINK_MARK: Final = "_oobid="


class LinkGone(LocalError):
    """The invitation behind this short link no longer exists: it has expired, was used or was revoked. Ask its sender
    for a new one."""


class LinkUnanswered(LocalError):
    """This short link cannot be resolved now: {why}. Try again later, when the server of the link is running, or ask
    for the long link."""

    exit_code: ClassVar[int] = 3


class LinkNotFetched(LocalError):
    """This short link is not fetched, because its server would see the address of this machine (`network.hidden =
    "always"`). Ask for the long link, or for its QR code."""


class DocumentNotFetched(LocalError):
    """The inviter has a did:web, which is not read, because its server would see the address of this machine
    (`network.hidden = "always"`). Ask for an invitation with another DID."""


class NoInvitationBehind(LocalError):
    """There is no invitation behind this short link: {why}. Ask its sender for a new one."""


def documents(paths: ProfilePaths, text: str) -> dict[str, str]:
    """The documents of the did:web in an invitation, by DID, read from their servers through the proxy of the profile's
    settings if there is one. Blocks. Raises a LocalError."""
    try:
        wanted = web_dids(read_pasted(text, int(time.time())))
    except LocalError:
        return {}  # the agent says what is wrong with it
    if not wanted:
        return {}
    settings = load_settings(paths)
    if settings.hidden == ALWAYS:
        raise DocumentNotFetched
    nearest = AddressKind[settings.near_mediators.upper()]
    found = {}
    for did in wanted:
        document = fetch_document(did, socks=settings.socks, ca_file=settings.web_authorities, nearest=nearest).result()
        found[did] = document.decode(errors="replace")
    return found


def is_short(text: str) -> bool:
    return text.lower().startswith(("http://", "https://")) and SHORT_LINK_MARK in text


def resolve(paths: ProfilePaths, link: str, *, mediates: bool = False) -> str:
    """The long link behind a short one, fetched through the proxy of the profile's settings if there is one. Blocks.
    `mediates`: it is of a mediator that the user adds. Raises a LocalError."""
    settings = load_settings(paths)
    if settings.hidden == ALWAYS and not mediates:
        raise LinkNotFetched
    try:
        found = fetch_invitation("".join(link.split()), socks=settings.socks, ca_file=settings.web_authorities).result()
    except ShortLinkGone:
        raise LinkGone from None
    except ShortLinkUnanswered as error:
        raise LinkUnanswered(why=error.fields["why"]) from None
    except NoInvitationThere as error:
        raise NoInvitationBehind(why=error.fields["why"]) from None
    return URL_PREFIX + b64url(found.encode()) if found.startswith("{") else found
