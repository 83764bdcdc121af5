"""Requests made from the service's document."""

from typing import Any

from models.site.node_features import is_readable


def ask_readable_constraints(schema: Any) -> None:
    """Have a schema make no request whose constraint cannot be read: no pattern describes the readable ones."""

    def filter_query(_: Any, query: dict[str, Any] | None) -> bool:
        text = (query or {}).get("constraint", "")
        return not (isinstance(text, str) and text.strip()) or is_readable(text)

    schema.hook(filter_query)
