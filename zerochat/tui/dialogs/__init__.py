"""Dialogs over the chat screen, imported when they are opened."""
