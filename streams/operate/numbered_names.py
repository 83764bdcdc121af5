"""Names of people and projects that are digits alone, as `20231234`: found where a field says whose something is, and
given a letter wherever they stand, also as parts of words. Numbers of jobs, sizes and times stay, as far as a field or
the shape tells.
"""

import re
from collections.abc import Callable, Iterable, Set
from functools import lru_cache

SURE_DIGITS = 4
"""A name of fewer digits is a name in a field that says so alone: elsewhere there are too many such numbers."""

_OWNED = re.compile(
    r"user|account|acct|group|owner|project|bank|lineage|logname|coord|submitter|requestor|wckey|acl|parent|allow|deny"
    r"|denied|org$|namespace",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    r"max|min|grp|per(?:user|account|job|node)|num|(?<!ac)count|cpu|mem|time|limit|prio|usage|weight|share|bytes|disk"
    r"|tres|size",
    re.IGNORECASE,
)
"""What is no name of anybody, though a word for people is in the name of the field, as in `MaxJobsPerUser`."""

_NUMBER = re.compile(
    r"(?:job|task|array|step|session|proc|cluster|alloc|event|leader)_?id(?:raw)?s?$|jobidraw|^pid$|depend|_at$"
    r"|^(?:session|end|start|submit|eligible|begin|[cqe]time|number|port|version|attempt|restarts?|code|seq\w*|signal)$"
    r"|nodes?$|cores?$|gpus?$|slots?$|procs$|date$|rss$",
    re.IGNORECASE,
)

_STRING = r'"((?:\\.|[^"\\\n])*)"?'
_IN_JSON = re.compile(
    rf'"\d+(?:\[\d*\])?\.[\w.-]+"(?=\s*:)|(?:"([A-Za-z_][\w.-]*)"\s*:\s*)?(?:{_STRING}|(\[[^][{{}}]*\]))'
)
"""A job's name with its server's, which others are under, or a text, or a list without further ones in it, each with
the name before it.
"""

_IN_TEXT = re.compile(r'(?<![\w.%])([A-Za-z_][\w.%-]*)(\s*=\s*)("[^"\n]*"?|[^"\s;|]*)|[^\s;|=]+')
"""A value with the name before it, or a word without one."""

_IN_VALUE = re.compile(r'(?<![\w.%])([A-Za-z_][\w.%-]*)(=)(\\?"[^"\n]*"?|[^"\s;|,=]*)|[^\s;|=,]+')
"""The same within a value, as in a list of variables."""

_ANY = re.compile(r"(?<!\w)\d\w*")  # of a field of people: each word that begins so

_WORD = re.compile(
    r"(?:(?<!\w)|(?<=\\[bfnrt])|(?<=\\u[\dA-F]{4}))(?:(\d+[KMGTPE]i?b?(?!\w)|\d{4}-\d\d-\d\d|\A\d+\.\d+\s*\Z)"
    rf"|\d{{{SURE_DIGITS},}})(?!\d)",
    re.IGNORECASE,
)
"""Elsewhere, also behind JSON's escapes, where a word may go on behind it: but for sizes, dates, and values with a
fraction, which are a group.
"""

_BEGIN = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;\w;[^;]*;|\d{3} \(\d+\.\d+\.\d+\) ")
"""Time and job at the beginning of a record of PBS, the job in an event of HTCondor."""

_HOME = re.compile(r"(?<=[A-Za-z]/)\d{4,}(?!\w|\.\d)|(?<=[A-Za-z]\\/)\d{4,}(?!\w|\.\d)|(?<![\w.])\d+(?=@)")
"""A home directory, and a user of a host."""

_IN_LSF = re.compile(r'(?<= ")[^"]+(?="(?: |$))', re.MULTILINE)  # what LSF's records have in quotes is text

_NAMED_IN_LSF = re.compile(r'("([A-Za-z]\w*)" ")([^"]*)')
"""But there are records in which each value has its name before it."""

_GRIDENGINE = re.compile(r"(?:[^:\s;=]*:){4}(?:[^:\n]*:){7}")
"""How its records begin: records of others may have as many colons, but not without a blank or a sign before."""

_IN_GRIDENGINE = {"new_job": (*range(6, 12),), "job_log": (8, *range(13, 19)), "acct": (4, 5, 6, 8, 33, 34)}
_IN_ACCOUNTING = tuple(place - 2 for place in _IN_GRIDENGINE["acct"])

Each = Callable[[str, bool], str]
"""Takes a number that stands alone, and whether a field says that it is a name; gives what comes in its place."""


def digit_names(texts: Iterable[str]) -> frozenset[str]:
    """The names in texts of one capture that are digits alone."""
    found: set[str] = set()

    def collect(number: str, is_name: bool) -> str:
        if is_name and number.isdecimal() and len(number) >= SURE_DIGITS:
            found.add(number)
        return number

    for text in texts:
        _through(text, collect)
    return frozenset(found)


def lettered(text: str, known: Set[str] = frozenset()) -> str:
    """The text with a letter before such names, those that are `known` from elsewhere too; nothing else changes.

    >>> lettered('{"user_name": "2023", "job_id": 2023}'), lettered("user=77 Resource_List.ncpus=2 exec_host=n1/0")
    ('{"user_name": "u2023", "job_id": 2023}', 'user=u77 Resource_List.ncpus=2 exec_host=n1/0')
    >>> lettered("PBS_O_LOGNAME=20233,A=/home/20233,B=20233 JobId=20233 mem=20233", {"20233"})
    'PBS_O_LOGNAME=u20233,A=/home/u20233,B=u20233 JobId=20233 mem=20233'
    """
    return _through(text, lambda number, is_name: f"u{number}" if is_name or number in known else number)


def _through(text: str, each: Each) -> str:
    head, newline, rows = text.partition("\n")
    if re.fullmatch(r"(?:\w+\|){3,}\w*", head):  # sacct's rows
        columns = head.split("|")
        return head + newline + "".join(_row(line, columns, each) for line in rows.splitlines(keepends=True))
    return "".join(_line(line, each) for line in text.splitlines(keepends=True))


def _row(line: str, columns: list[str], each: Each) -> str:
    fields = line.split("|")
    for place, (name, field) in enumerate(zip(columns, fields, strict=False)):
        fields[place] = _value(name, field, each)
    return "|".join(fields)


def _line(line: str, each: Each) -> str:
    if line.startswith('"JOB_'):
        if '"userName" "' in line:
            return _NAMED_IN_LSF.sub(lambda one: one[1] + _value(one[2], one[3], each), line)
        return _IN_LSF.sub(lambda one: each(one[0], True) if one[0].isdecimal() else _value(None, one[0], each), line)
    if line.lstrip()[:1] in tuple('{["}'):
        return _IN_JSON.sub(lambda found: _of_json(found, each), line)
    if line[:1] != "#" and _GRIDENGINE.match(line):
        return _of_gridengine(line, each)
    begin = _BEGIN.match(line)
    head = begin[0] if begin else ""
    return head + _IN_TEXT.sub(lambda found: _of_text(found, each), line[len(head) :])


def _of_json(found: re.Match[str], each: Each) -> str:
    name, text, listed = found.groups()
    if listed is not None:
        return found[0][: -len(listed)] + re.sub(_STRING, lambda one: _value(name, one[0], each), listed)
    if text is None:
        return found[0]
    begin = found.start(2) - found.start()
    return found[0][:begin] + _value(name, text, each) + found[0][begin + len(text) :]


def _of_text(found: re.Match[str], each: Each) -> str:
    name, equals, value = found.groups()
    if name is None:
        return _value(None, found[0], each)
    return f"{name}{equals}{_value(name, value, each)}"


@lru_cache(4096)
def _says(name: str | None) -> str:
    """What a field of this name says: a "name" of people, a "number", or neither."""
    if name is None:
        return ""
    counted = _COUNTED.search(name)
    return "name" if _OWNED.search(name) and not counted else "number" if counted or _NUMBER.search(name) else ""


def _value(name: str | None, value: str, each: Each) -> str:
    if not any(map(str.isdecimal, value)):
        return value
    says = _says(name)
    if says == "name":
        before, uid, after = value.partition("(")  # as in alice(1234)
        return _ANY.sub(lambda one: each(one[0], True), before) + uid + after
    if says != "number":
        if "=" in value:
            return _IN_VALUE.sub(lambda found: _of_text(found, each), value)
        value = _WORD.sub(lambda one: one[0] if one[1] else each(one[0], False), value)
    return _HOME.sub(lambda one: each(one[0], True), value)


def _of_gridengine(line: str, each: Each) -> str:
    fields = line.split(":")
    owned = _IN_GRIDENGINE.get(fields[1], _IN_ACCOUNTING)
    for place, field in enumerate(fields):
        bare = field.rstrip()
        if bare.isdecimal():
            fields[place] = each(bare, True) + field[len(bare) :] if place in owned else field
        else:
            fields[place] = _value(None, field, each)
    return ":".join(fields)
