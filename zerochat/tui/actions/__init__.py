"""Handlers of commands, keys and clicks on the chat screen: they call the agent or open a dialog."""
