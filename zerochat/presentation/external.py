"""Words for messages to and from external connections."""

from zerochat.rpc import ConnectionMessage, ConnectionMessageNotification


def author_text(message: ConnectionMessage, peer: str) -> str:
    """The author of a message, with the fate of an own one."""
    if not message.mine:
        return peer
    match message.status:
        case "waiting":
            return "you (waiting)"
        case "received":
            return "you (received)"
        case "failed":
            return "you (not delivered)"
        case _:
            return "you"


def text_of(message: ConnectionMessage | ConnectionMessageNotification) -> str:
    """The text of a message, unprintable characters included, and a line for each attachment."""
    lines = [f"[attachment: {name or 'without a name'}; not kept]" for name in message.attachments]
    return "\n".join([message.text, *lines] if message.text else lines)
