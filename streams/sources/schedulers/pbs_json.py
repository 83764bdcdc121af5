"""Answers of `qstat -f -F json` that are no JSON: PBS does not escape what users put into names and variables.

There are invalid escapes, raw control characters, quotes inside strings, and numbers that are none. A string ends
where what follows it continues the object. What cannot be repaired costs one job.
"""

import json
import re
from collections.abc import Iterator

from streams.sources.logs.fields import Object

_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_KEY_ENDS = re.compile(r'"\s*:')
_VALUE_ENDS = re.compile(r'"\s*(?:,\s*"(?:[^"\\\n]|\\.){1,300}"\s*:|[}\]]\s*(?:[,}\]]|$))')
_BARE = re.compile(r'[^\s,}\]"{\[:]+')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,18})?|true|false|null", re.ASCII)
_JOB = re.compile(r'"(\d[^"\s]*)"\s*:\s*\{\s*"Job_Name"')
_TIMESTAMP = re.compile(r'"timestamp"\s*:\s*(\d{9,10})')


def repaired(text: str) -> str:
    """Return the text with valid JSON strings and numbers.

    >>> repaired('{"a": "x\\\\,y", "b": "he said "no"", "c": 005}')
    '{"a": "x\\\\\\\\,y", "b": "he said \\\\"no\\\\"", "c": "005"}'
    """
    return "".join(_pieces(text))


def _pieces(text: str) -> Iterator[str]:
    place, is_key = 0, True
    while place < len(text):
        sign = text[place]
        if sign == '"':
            end = _end_of(text, place + 1, is_key)
            yield f'"{"".join(_inside(text, place + 1, end))}"'
            place = end + 1
            continue
        if sign in "{,":
            is_key = True
        elif sign in ":[":
            is_key = False
        bare = _BARE.match(text, place)
        if bare is None:
            yield sign
            place += 1
        else:
            yield bare[0] if _NUMBER.fullmatch(bare[0]) else json.dumps(bare[0])
            place = bare.end()


def _end_of(text: str, begin: int, is_key: bool) -> int:
    """Find the quote that ends a string; the end of the text if there is none."""
    ends, place = _KEY_ENDS if is_key else _VALUE_ENDS, begin
    while (place := text.find('"', place)) >= 0:
        if ends.match(text, place) and not (_is_escaped(text, begin, place) and not _ends_line(text, place)):
            return place
        place += 1
    return len(text)


def _is_escaped(text: str, begin: int, place: int) -> bool:
    """Check if an odd number of backslashes precedes this place."""
    count = 0
    while place - count > begin and text[place - count - 1] == "\\":
        count += 1
    return count % 2 == 1


def _ends_line(text: str, place: int) -> bool:
    """Check if the line ends after a quote, or after a comma behind it: PBS writes one attribute a line."""
    return text[place + 1 : place + 3].lstrip(",").startswith("\n")


def _inside(text: str, begin: int, end: int) -> Iterator[str]:
    """Return the escaped content of a string."""
    place = begin
    while place < end:
        sign = text[place]
        if sign == "\\":
            found = _ESCAPE.match(text, place, end)
            yield found[0] if found is not None else "\\\\"
            place = found.end() if found is not None else place + 1
            continue
        yield '\\"' if sign == '"' else sign if sign >= " " else f"\\u{ord(sign):04x}"
        place += 1


def jobs_of(text: str) -> tuple[float, dict[str, Object], list[str]] | None:
    """Return the time of a response, its jobs by id, and the ids of unreadable jobs.

    Returns:
        None if the text has no job, or no time.
    """
    found, headers = _TIMESTAMP.search(text), list(_JOB.finditer(text))
    if found is None or not headers:
        return None
    jobs: dict[str, Object] = {}
    bad: list[str] = []
    for job, following in zip(headers, [*headers[1:], None], strict=True):
        end = following.start() if following is not None else len(text)
        part = _job_of(text[text.index("{", job.end(1)) : end])
        if part is None:
            bad.append(job[1])
        else:
            jobs[job[1]] = part
    return float(found[1]), jobs, bad


def _job_of(text: str) -> Object | None:
    """Return the object at the beginning of a text; the rest belongs to the response."""
    for candidate in (text, repaired(text)):
        try:
            found, _ = json.JSONDecoder(strict=False).raw_decode(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None
