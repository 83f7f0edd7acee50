"""`python -m zerochat`: the same as the command `zerochat`."""

import sys

from zerochat.cli import main

if __name__ == "__main__":
    sys.exit(main())
