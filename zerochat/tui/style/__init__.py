"""Presentation helpers: text and names, themes, keymaps."""
