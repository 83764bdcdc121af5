"""The result of one check."""

from typing import Literal

import msgspec


class CheckResult(msgspec.Struct, frozen=True):
    """What a check found and, unless all is well, what to do."""

    check: str
    state: Literal["ok", "warn", "fail"]
    found: str
    advice: str | None = None

    def __str__(self) -> str:
        return f"{self.state:<4}  {self.check}: {self.found}" + (f"; {self.advice}" if self.advice else "")
