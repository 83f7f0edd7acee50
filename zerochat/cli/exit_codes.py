"""Exit codes: a stable interface for scripts."""

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """Exit code of a verb; `sentence` is its line in `zerochat --help`."""

    sentence: str

    def __new__(cls, value: int, sentence: str) -> Self:
        code = int.__new__(cls, value)
        code._value_ = value
        code.sentence = sentence
        return code

    OK = 0, "Success."
    REFUSED = 1, "The command failed; the message says why and what to do."
    USAGE = 2, "Invalid command line or setting."
    UNREACHABLE = 3, "No recipient is reachable; the message is queued and goes out later."
    CHANGED_IDENTITY = 4, "An identity is not trusted, or differs from the verified one."
    TIMEOUT = 5, "Timed out; standard output shows the result so far."
    UNAVAILABLE = 6, "No agent answers for this profile, or the profile cannot be opened."
    INTEGRITY = 7, "Integrity error: stored or received data is inconsistent."
    REMOVED = 8, "You are no longer a member of the group; its history stays readable."
    STUCK = 9, "A bot's handler hangs; restart the bot."
    OUTPUT = 10, "Standard output cannot be written; all changes have been made."
    INTERRUPTED = 130, "Interrupted with Ctrl+C."
    TERMINATED = 143, "Terminated by SIGTERM."
