"""What can go wrong. Errors can be pickled, so that they travel between processes."""
from typing import Tuple, Type


class StepzeroError(ValueError):
    """Something about the world: a file, a name, a number. `hint` says what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class BusyError(StepzeroError):
    """Another process is writing there: trying again later may succeed."""


class LibraryNotFound(ImportError):
    """The compiled library is not where the package looks for it."""


def error_of(status: int, message: str, hint: str) -> Exception:
    kinds: Tuple[Tuple[int, Type[StepzeroError]], ...] = ((3, BusyError),)
    for number, kind in kinds:
        if status == number:
            return kind(message, hint)
    return StepzeroError(message, hint)
