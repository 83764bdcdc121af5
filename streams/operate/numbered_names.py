"""Names of users that are digits alone, as `20231234`, told from numbers by where they stand; they get a letter."""

import re

_FIELDS = (
    "users?|user_name|userName|euser|[Oo]wner|Job_Owner|OsUser|User|Users|UserId|accounts?|account_name|Account_Name"
    "|Accounts|AllowAccounts|DenyAccounts|[Aa]ccounting_?[Gg]roup|AcctGroup(?:User)?|groups?|group_name|egroup|GroupId"
    "|AllowGroups|project|department|bank"
)
_NAMED = re.compile(rf'((?:"(?:{_FIELDS})"\s*:?\s*"|(?<![\w"])(?:{_FIELDS})\s*=\s*"?))([^"\s;|]*)')
_WHOLE = re.compile(r"(?<![\w.(-])(?=\d+(?![\w.]))")
_ELSEWHERE = re.compile(r'(?:(?<=[A-Za-z]/)|(?<=[A-Za-z]\\/))(?=\d{4,}(?:[/\\"\s]|$))|\b(?=\d+@)', re.MULTILINE)
"""A home directory, and a user of a host."""

_IN_LSF = re.compile(r'(?<= ")(?=\d+"(?: |$))', re.MULTILINE)
"""What LSF's records have in quotes is text, but where each value has its name before it."""

_IN_GRIDENGINE = {"new_job": range(6, 12), "job_log": (8, *range(13, 19)), "acct": (4, 5, 6, 8, 33, 34)}
_IN_ACCOUNTING = tuple(place - 2 for place in _IN_GRIDENGINE["acct"])
_IN_SACCT = frozenset({"User", "Account", "Group"})


def lettered(text: str, columns: str = "") -> str:
    """The text with a letter before such names; nothing else changes.

    Parameters:
        columns: the header of sacct's rows, where it is such.

    >>> lettered('{"user_name": "2023", "job_id": 2023}'), lettered("user=77 Resource_List.ncpus=2 exec_host=n1/0")
    ('{"user_name": "u2023", "job_id": 2023}', 'user=u77 Resource_List.ncpus=2 exec_host=n1/0')
    """
    if columns:
        places = [place for place, name in enumerate(columns.strip().split("|")) if name in _IN_SACCT]
        return "".join(_at(line, "|", places) for line in text.splitlines(keepends=True))
    text = _NAMED.sub(lambda found: found[1] + _WHOLE.sub("u", found[2]), text)
    return "".join(_of_records(line) for line in _ELSEWHERE.sub("u", text).splitlines(keepends=True))


def _of_records(line: str) -> str:
    """A line of LSF's or Grid Engine's records, whose fields have no names."""
    if line.startswith('"JOB_'):
        return line if '"userName" "' in line else _IN_LSF.sub("u", line)
    if line.count(":") < 11 or line[:1] in '{["# ':
        return line
    return _at(line, ":", _IN_GRIDENGINE.get(line.split(":", 2)[1], _IN_ACCOUNTING))


def _at(line: str, separator: str, places: "tuple[int, ...] | range | list[int]") -> str:
    fields = line.split(separator)
    for place in places:
        if place < len(fields) and fields[place].rstrip().isdecimal():
            fields[place] = f"u{fields[place]}"
    return separator.join(fields)
