"""Code blocks of the bot manual."""

import re
from pathlib import Path

MANUAL = Path(__file__).parents[2] / "zerochat" / "manual" / "bots.md"

BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", MANUAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
