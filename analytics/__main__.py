"""`python -m analytics` is `zerochat-analytics`."""

import sys

from analytics.cli import main

sys.exit(main())
