"""Runs `zerochat-analytics` as `python -m analytics`."""

import sys

from analytics.cli import main

sys.exit(main())
