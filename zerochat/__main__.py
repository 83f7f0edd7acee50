"""Entry point of `python -m zerochat`."""

import sys

from zerochat.cli import main

if __name__ == "__main__":
    sys.exit(main())
