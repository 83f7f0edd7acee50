"""Changes of external connections: storing one, and telling the user of its state."""

from zerochat.group.effects import Notify
from zerochat.group.notifications import ConnectionChanged
from zerochat.group.state import Connection
from zerochat.group.state.external import ConnectionState
from zerochat.group.transaction import Transaction


def put(tx: Transaction, one: Connection) -> None:
    """Store a connection."""
    tx.update_agent(connections={**tx.agent.connections, one.id: one})


def notify(tx: Transaction, one: Connection) -> None:
    """Tell the user that a connection was established or has ended."""
    text = (
        f"Connected with {one.label}."
        if one.state is ConnectionState.ESTABLISHED
        else f"{one.label} ended the connection."
    )
    tx.emit(Notify(ConnectionChanged(one.id, text)))
