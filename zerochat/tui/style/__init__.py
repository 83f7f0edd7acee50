"""How things look, wherever they stand: clocks, wrapping and names as text, themes, keymaps."""
