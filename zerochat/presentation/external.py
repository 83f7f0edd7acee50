"""Words for messages to and from external connections."""

from zerochat.rpc import ConnectionMessage


def author_text(message: ConnectionMessage, peer: str) -> str:
    """The author of a message, with the fate of an own one that the peer's endpoint has not accepted."""
    if not message.mine:
        return peer
    match message.status:
        case "waiting":
            return "you (waiting)"
        case "failed":
            return "you (not delivered)"
        case _:
            return "you"
