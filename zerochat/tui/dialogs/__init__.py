"""Screens that lie over the chat: something to read, to choose, to fill in. Imported where they are opened."""
