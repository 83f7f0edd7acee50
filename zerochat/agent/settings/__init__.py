"""The settings file: its table of options, reading, checking, changing and reloading."""
