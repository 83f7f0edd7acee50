"""The pictures and captures of the chat in assets, and their generators (`scripts/screenshots.py`)."""
