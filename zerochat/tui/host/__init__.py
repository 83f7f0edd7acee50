"""Host integration: terminal keys and mouse, clipboard, desktop notifications."""
