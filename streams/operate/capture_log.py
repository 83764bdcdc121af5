"""What a scheduler answers or logs, recorded as text with other words: a folder that its source reads.

A word stays where the format's own vocabulary has it, or where it is the name of a field; each other one becomes a
hash, the same everywhere. Numbers stay, but users' and addresses. What the source makes of both texts is compared.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import Any

import msgspec

from streams.bulk.anonymise import STATES, Anonymiser
from streams.bulk.event_log import number_of
from streams.errors import UserError
from streams.sources.contract import Source
from streams.sources.formats import head_of
from streams.sources.registry import source_named

MAX_BYTES = 8 << 20
"""The most that is taken of a log, from its end."""

TIMEOUT_S = 300.0


class Scheduler(msgspec.Struct, frozen=True):
    """The sources that read its texts, first that of answers, the vocabulary of these, and what tells its version.

    `answer` is the command that answers; nothing where there are logs alone.
    """

    sources: tuple[str, ...]
    words: str
    version: tuple[str, ...]
    answer: tuple[str, ...] = ()

    def source_of(self, path: Path) -> type[Source]:
        """The source that recognises a file, else the first one."""
        found, head = [source_named(name) for name in self.sources], head_of(path)
        return next((source for source in found if source.recognises(head)), found[0])


_COMMON = """
Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec Mon Tue Wed Thu Fri Sat Sun UTC kb mb gb tb KB MB GB TB Ki Mi Gi Ti
true false null True False TRUE FALSE NONE none UNDEFINED undefined UNLIMITED unlimited type name job gpu gpus cpu mem
"""
_PBS = """
Resource_List resources_used select place ncpus mem vmem pmem walltime ngpus mpiprocs ppn nodes nodect procs mppwidth
lprocs excl exclhost scatter pack free shared vscatter depend afterok afterany afternotok beforeok qos advres
_pbs_project_default
"""
_LSF = """
select rusage span hosts ptile order same cu affinity ngpus_physical num mode exclusive_process shared mps block gmodel
any local done ended started exit post_done numdone userId userName numProcessors numAskedHosts numExHosts options
jStatus submitTime beginTime termTime startTime endTime resReq effectiveResReq execHosts jobName command dependCond
exitStatus exitInfo projectName runLimit idx jobId queue fromHost rLimits userGroup
"""
_GRIDENGINE = """
new_job job_log acct pending sent delivered deleted finished error suspended unsuspended released held hold migrated
restart host queue host_consumable queue_consumable sge pe h_rt s_rt h_vmem s_vmem mem_free slots defaultdepartment
"""
_HTCONDOR = """
Job submitted from host executing on was held released terminated evicted aborted suspended unsuspended Normal Abnormal
termination return value signal not checkpointed by the user Usr Sys Run Remote Local Total Usage Bytes Sent Received By
Partitionable Resources Request Allocated Cpus Disk Memory GPUs Assigned Image size of updated MemoryUsage MB KB Shadow
exception Code Subcode reconnection failed Number processes actually Event Trigger SubmitEvent ExecuteEvent
JobTerminatedEvent JobTerminated TerminatedNormally JobAdInformationEvent JobHeldEvent JobReleasedEvent JobEvictedEvent
JobAbortedEvent eventlog classads
"""
_FLUX = """
submit validate depend priority alloc start finish release free clean exception annotations memo urgency flux-restart
cancel timeout preempt node-failure jobspec-update dependency-add dependency-remove attributes system duration bank
project node core slot socket rank children R_lite jobspec status severity after-start begin-time
"""
_KUEUE = """
List Workload Job PodGroup JobSet ADDED MODIFIED DELETED kueue x-k8s io v1 v1beta1 v1beta2 nvidia com amd intel memory
PodsReady QuotaReserved Admitted Evicted Finished Requeued Preempted Pending Inadmissible Succeeded Failed JobFinished
OutOfSync Deactivated AdmissionCheck
"""
SCHEDULERS: Mapping[str, Scheduler] = MappingProxyType(
    {
        "pbs": Scheduler(("qstat", "pbs"), _PBS, ("qstat", "--version"), ("qstat", "-x", "-f", "-F", "json")),
        "lsf": Scheduler(("lsf",), _LSF, ("lsid",)),
        "gridengine": Scheduler(("gridengine",), _GRIDENGINE, ("qstat", "-help")),
        "htcondor": Scheduler(
            ("htcondor",), _HTCONDOR, ("condor_version",), ("condor_history", "-long", "-limit", "1000")
        ),
        "flux": Scheduler(("flux-log",), _FLUX, ("flux", "version")),
        "kueue": Scheduler(
            ("kueue-log",), _KUEUE, ("kubectl", "version"), ("kubectl", "get", "workloads", "-Ao", "json")
        ),
    }
)

_WORD = re.compile(
    r'(?P<key>(?<=")[A-Za-z_]\w*(?="\s*:)|(?<![\w./@-])[A-Za-z_][\w.]*(?=\s?=(?!=)))'
    r"|\d{4}-\d\d-\d\dT[\d:.]+|(?P<address>\b\d{1,3}(?:\.\d{1,3}){3}\b)|(?P<word>[^\W\d_][\w@]*(?:-(?=[^\W\d])[\w@]+)*|_\w+)"
)
_USERS = re.compile(
    r'("(?:userid|uid|user_id|gid)"\s*:\s*|"userId" "|^"JOB_(?:SWITCH|MOVE)" "[^"]*" \d+ '
    r'|^"JOB_(?:NEW|EXECUTE|FINISH|SIGNAL)" "[^"]*" \d+ \d+ )\d+(?=[",\s}])',
    re.MULTILINE,
)
"""Numbers of users: in JSON, by name, and where LSF's records have them without one."""

_TYPE = re.compile(r"[A-Z]+(?:_[A-Z0-9]+)+")
"""Types of LSF's records, such as JOB_NEW."""


def hidden(text: str, scheduler: Scheduler, names: Anonymiser) -> str:
    """The text with other words."""
    known = frozenset(f"{_COMMON} {scheduler.words}".split()) | STATES

    def replace(found: re.Match[str]) -> str:
        word = found["word"]
        if found["address"]:
            return "0.0.0.0"
        if word is None or len(word) == 1 or word in known or _TYPE.fullmatch(word):
            return found[0]
        return names.name("word", word)

    return _USERS.sub(r"\g<1>0", _WORD.sub(replace, text))


def capture_logs(name: str, directory: Path, logs: Sequence[Path], told: Callable[[str], None]) -> None:
    """Record what a scheduler's command answers, or the ends of its logs.

    Raises:
        UserError: the folder cannot be written, the command fails, a log cannot be read, or no source finds jobs in it.
    """
    scheduler, names = SCHEDULERS[name], Anonymiser()
    if not logs and not scheduler.answer:
        raise UserError(f"{name}: nothing can be asked; name its log with --log")
    texts = [_end_of(path) for path in logs] or [_answer(*scheduler.answer)]
    directory.mkdir(parents=True, exist_ok=True)
    events, otherwise, sources = 0, 0, set[str]()
    for number, text in enumerate(texts, 1):
        with NamedTemporaryFile("w", prefix="queuecast-", suffix=".txt") as original:
            original.write(text)
            original.flush()
            source = scheduler.source_of(Path(original.name))
            path = directory / f"{number:04}-{source.name}.txt"
            path.write_text(hidden(text, scheduler, names))
            before, after = (list(_shapes(source, one)) for one in (original.name, str(path)))
        events += len(before)
        otherwise += sum(one != other for one, other in zip_longest(before, after))
        sources.add(source.name)
    if not events:
        raise UserError(f"{directory}: {', '.join(sources)} finds no job in it")
    about = {
        "scheduler": name,
        "sources": sorted(sources),
        "version": hidden(_answer(*scheduler.version, check=False), scheduler, names).splitlines()[:3],
        "events": events,
        "otherwise": otherwise,
    }
    (directory / "about.json").write_bytes(msgspec.json.format(msgspec.json.encode(about)))
    told(f"{directory}: {events} events" + (f", {otherwise} of which are read otherwise" if otherwise else ""))


def _shapes(source: type[Source], location: str) -> Iterator[Any]:
    """What a source reads, without names."""
    for event in source.open(location, "here", lambda _: None).whole():
        yield _without_names(msgspec.to_builtins(event), "")


def _without_names(value: Any, field: str) -> Any:
    if isinstance(value, dict):
        return {name: _without_names(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_names(one, field) for one in value]
    if field in ("job", "array"):
        return number_of(value)
    return "…" if isinstance(value, str) and field not in ("type", "state") else value


def _end_of(path: Path) -> str:
    """The last whole lines of a log."""
    try:
        with path.open("rb") as file:
            start = max(file.seek(0, os.SEEK_END) - MAX_BYTES, 0)
            file.seek(start)
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return text.partition("\n")[2] if start else text


def _answer(*words: str, check: bool = True) -> str:
    """What a command prints; without `check` nothing where it cannot be run."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=check)
    except (OSError, subprocess.SubprocessError) as error:
        if check:
            raise UserError(f"{words[0]}: {getattr(error, 'strerror', None) or error}") from None
        return ""
    return done.stdout.decode("utf-8", "replace")
