"""The pictures and captures of the chat that are kept in assets, and what makes them (`scripts/screenshots.py`)."""
