"""Host integration: terminal output, keys and mouse, clipboard, desktop notifications."""
