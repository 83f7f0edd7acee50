"""`python -m zerochat.sim`."""

import sys

from zerochat.sim.batch import main

if __name__ == "__main__":
    sys.exit(main())
