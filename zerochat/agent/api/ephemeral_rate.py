"""How often something told in passing goes out, and is heard of one member. What comes too soon is passed over."""

from typing import Final

from msgspec import Struct, field

TYPING_SENT_S: Final = 4.0
READ_SENT_S: Final = 2.0
TYPING_HEARD_S: Final = 1.0
"""Of one member in one group. Whoever keeps the rules says it every four seconds."""
REMEMBERED_S: Final = 10.0
KEYS_MAX: Final = 4_096
"""More than this many things at once are passed over too."""


class Pace(Struct):
    """By what it is about, when it was last let through, on a clock that nobody can set."""

    _last: dict[tuple[str, ...], float] = field(default_factory=dict)

    def allows(self, every_s: float, now: float, *about: str) -> bool:
        """Whether it is time for this again, which then counts as done. `now`: seconds of the monotonic clock."""
        if now - self._last.get(about, -REMEMBERED_S) < every_s:
            return False
        if about not in self._last and len(self._last) >= KEYS_MAX:
            self._last = {key: at for key, at in self._last.items() if now - at < REMEMBERED_S}
            if len(self._last) >= KEYS_MAX:
                return False
        self._last[about] = now
        return True
