"""Times as the control protocol writes them."""

from datetime import UTC, datetime


def timestamp(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds; a time that no calendar has becomes the nearest one that has."""
    bounded = min(max(ms, 0), 253_402_300_799_999)
    return datetime.fromtimestamp(bounded / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
