"""What the fields of records may hold, as types that are checked when a message is read."""

from typing import Annotated

from msgspec import Meta

VERSION = 1

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Text = Annotated[str, Meta(max_length=1024)]
Time = Annotated[float, Meta(ge=0.0, le=1e11)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e11)]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Rank = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]
"""What is only compared: the higher goes first."""
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
Size = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Names = Annotated[list[Name], Meta(max_length=256)]
Alternatives = Annotated[list[Names], Meta(max_length=64)]
"""Lists of names, of one of which all are wanted."""
Counts = Annotated[dict[Name, Count], Meta(max_length=64)]
"""How many of each kind, such as {"a100": 4}."""
Version = Annotated[int, Meta(ge=1, le=VERSION)]

JobKey = tuple[str, int]
"""A job within its site: (job id, attempt)."""
