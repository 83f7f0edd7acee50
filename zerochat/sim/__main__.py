"""`python -m zerochat.sim`."""

import sys

from zerochat.sim.history import main

if __name__ == "__main__":
    sys.exit(main())
