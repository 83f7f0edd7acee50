"""`python -m zerochat.sim`."""

import sys

from zerochat.sim import main

sys.exit(main())
