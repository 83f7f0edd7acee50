"""What the machine and its terminal offer: their keys and mouse, the clipboard, word to somebody who is not looking."""
