"""For `spark-submit analytics/submit.py run --in EXPORTS --out FOLDER`: the same command on a cluster.

Spark puts this file's folder on the path, where the package is not; so its parent takes that place.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [str(HERE.parent), *(place for place in sys.path if Path(place or ".").resolve() != HERE)]

from analytics.cli import main  # noqa: E402 - the path comes first

sys.exit(main())
