"""Records of which not every field may be read by whoever prints them: keys, plain text, what opens a door."""

from typing import ClassVar

from msgspec import Struct


class Veiled(Struct, frozen=True):
    """A record that leaves the fields in `VEILED` out wherever it is shown, so in logs and exceptions too."""

    VEILED: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in self.VEILED)
        return f"{type(self).__name__}({', '.join(shown)})"
