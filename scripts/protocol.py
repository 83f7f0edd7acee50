"""Write zerochat/agent/api/PROTOCOL.md anew, from the shapes in zerochat/agent/schema.

scripts/protocol.py           write it
scripts/protocol.py --check   say whether it is as it would be written
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from zerochat.agent.api.reference import document  # noqa: E402

PAGE = ROOT / "zerochat" / "agent" / "PROTOCOL.md"


def main() -> int:
    wanted = document()
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != wanted:
            print(f"{PAGE} is not as it would be written: run scripts/protocol.py", file=sys.stderr)
        return int(current != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
