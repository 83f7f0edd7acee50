"""Sentences about private conversations."""

from collections.abc import Callable

from zerochat.rpc import GroupInfo


def state_text(info: GroupInfo, name_of: Callable[[str], str]) -> str:
    """The state of a private conversation, without a full stop; empty for other groups. `name_of` sanitises a name."""
    if info.private is None:
        return ""
    who = name_of(info.private.nick)
    if info.private.state != "waiting":
        return f"{who} has left" if info.private.state == "left" else f"with {who}"
    if not info.private.expires_at:
        return f"{who} has not joined, and your invitation has expired"
    if not info.private.sent_at:
        return f"waiting for {who}, who gets your invitation once connected"
    return f"waiting for {who} to accept"


def invited_sentence(nicks: list[str]) -> str:
    """The members that invite us, without the way to answer. `nicks` are sanitised."""
    verb = "invites" if len(nicks) == 1 else "invite"
    return f"{' and '.join(nicks)} {verb} you to a private conversation."
