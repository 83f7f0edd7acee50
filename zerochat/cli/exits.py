"""The exit codes: a promise to scripts, so none ever changes its meaning."""

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """What a verb's exit code says; `sentence` is how the help puts it."""

    sentence: str

    def __new__(cls, value: int, sentence: str) -> Self:
        code = int.__new__(cls, value)
        code._value_ = value
        code.sentence = sentence
        return code

    OK = 0, "It is done."
    REFUSED = 1, "It cannot be done; the message says why, and what to do."
    USAGE = 2, "The command line or a setting is wrong."
    UNREACHABLE = 3, "Nobody could be reached; what was sent is queued and goes out later."
    CHANGED_IDENTITY = 4, "Somebody's identity is not trusted, or not the one from before."
    TIMEOUT = 5, "The wait ended before everything had happened; stdout says what had."
    UNAVAILABLE = 6, "No agent answers for this profile, or the profile cannot be opened."
    INTEGRITY = 7, "What is stored or was received contradicts itself."
    REMOVED = 8, "Others have put you out of this group; its history stays readable."
    STUCK = 9, "A handler of a bot found no end; run the bot again."
    INTERRUPTED = 130, "Ctrl+C ended it."
    TERMINATED = 143, "SIGTERM ended it."
