"""Resources as context managers: closed at the end of the block."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A resource whose `with` block ends with `close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release the resource."""
