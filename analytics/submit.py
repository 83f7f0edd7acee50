"""Entry point for `spark-submit analytics/submit.py run --in EXPORTS --out FOLDER` on a cluster.

Spark puts this file's folder on the import path; it is replaced by its parent, which contains the package.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [str(HERE.parent), *(place for place in sys.path if Path(place or ".").resolve() != HERE)]

from analytics.cli import main  # noqa: E402 - the path comes first  # after the path is set

sys.exit(main())
