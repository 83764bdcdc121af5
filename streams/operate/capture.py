"""What a site's scheduler answers or logs, recorded as text with other words: a folder that its source reads.

A word stays where the format's own vocabulary has it, or where it is the name of a field; each other one becomes a
hash, the same everywhere. Numbers stay, but users' and addresses. Environments, arguments and labels are left out.
What the source makes of both texts is compared.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from models.site.reasons import is_known
from streams.bulk.anonymise import STATES, Anonymiser
from streams.bulk.event_log import job_number
from streams.errors import UserError, of_file
from streams.operate.numbered_names import digit_names, lettered
from streams.process.scratch import scratch
from streams.sources.contract import Source
from streams.sources.registry import head_of, source_named
from streams.sources.schedulers.pbs_request import KEYS as PBS_KEYS
from streams.sources.slurm.calls import COLUMNS, ENVIRONMENT, SEPARATOR
from streams.sources.slurm.rows import hosts

MAX_BYTES = 8 << 20  # the most that is taken of a log, from its end
TIMEOUT_S = 300.0

Words = tuple[str, ...]
_NONE = r"(?!)"  # a pattern of nothing


class CaptureKind(msgspec.Struct, frozen=True):
    """The sources that read its texts, the vocabulary of these, and the commands that tell its version and answer.

    Answers are by the ends of their files' names; one alone of them has to be there, the first. None where there are
    logs alone. `looks` is how often they are asked for where nobody says it. Where `as_folder`, they are read together.
    `fields` is a pattern of names of fields in text that is no JSON; by default there are none.
    """

    sources: tuple[str, ...]
    words: str
    version: Words
    answers: Mapping[str, Words] = MappingProxyType({})
    looks: int = 1
    as_folder: bool = False
    fields: str = _NONE

    def source_of(self, path: Path) -> type[Source]:
        """The source that recognises a file, else the first one."""
        found, head = [source_named(name) for name in self.sources], b"" if path.is_dir() else head_of(path)
        return next((source for source in found if source.recognises(head)), found[0])


_COMMON = """
Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec Mon Tue Wed Thu Fri Sat Sun UTC kb mb gb tb KB MB GB TB Ki Mi Gi Ti
true false null True False TRUE FALSE NONE none UNDEFINED undefined UNLIMITED unlimited type name job gpu gpus cpu mem
"""
_PBS = """
Resource_List resources_used select place ncpus mem vmem pmem walltime ngpus mpiprocs ppn nodes nodect procs mppwidth
lprocs excl exclhost scatter pack free shared vscatter depend afterok afterany afternotok beforeok qos advres
_pbs_project_default pbs_version tasks memory swap
"""
_LSF = """
select rusage span hosts ptile order same cu affinity ngpus_physical num mode exclusive_process shared mps block gmodel
any local done ended started exit post_done numdone userId userName numProcessors numAskedHosts numExHosts options
jStatus submitTime beginTime termTime startTime endTime resReq effectiveResReq execHosts jobName command dependCond
ngpus ngpus_excl_p ngpus_shared exitStatus exitInfo projectName runLimit idx jobId queue fromHost rLimits userGroup
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
_SLURM = f"""
{COLUMNS} ALL YES NO N/A UP DOWN INACTIVE IDLE MIXED ALLOCATED DRAIN DRAINED DRAINING FAIL FAILING MAINT RESERVED INVAL
PLANNED CLOUD UNKNOWN Unknown PENDING RUNNING COMPLETED COMPLETING CONFIGURING CANCELLED FAILED TIMEOUT PREEMPTED HOLD
SUSPENDED DEADLINE REQUEUED RESIZING REVOKED SIGNALING STOPPED STAGING EXPEDITING by assigned cpus node nodes billing
gres license energy disk vmem fs afterok afterany afternotok aftercorr after singleton unfulfilled fulfilled slurm
Gn Gc Mn Mc Kn Kc SUCCESS ERROR SIGNALED NODE_FAIL OUT_OF_MEMORY BOOT_FAIL SPECIAL_EXIT STAGE_OUT LAUNCH_FAILED
RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD UPDATE_DB RECONFIG_FAIL POWER_UP_NODE NOT_RESPONDING NO_RESPOND POWER_DOWN
POWERED_DOWN POWERING_DOWN POWER_UP POWERING_UP POWER_DRAIN REBOOT_ISSUED REBOOT_REQUESTED REBOOT_CANCELED DYNAMIC_NORM
DYNAMIC_FUTURE INVALID_REG FUTURE BLOCKED DEFAULT SPEC_NODES ALL_NODES ANY_NODES PART_NODES IGNORE_JOBS OVERLAP FLEX
NO_HOLD_JOBS_AFTER_END TIME_FLOAT PURGE_COMP REPLACE REPLACE_DOWN USER_DELETE FORCE_START STATIC MAGNETIC HOURLY DAILY
WEEKLY WEEKDAY WEEKEND KILL_INVALID_DEPENDENCY NO_KILL_INVALID_DEPENDENCY HAS_STATE_DIRECTORY TESTING_BACKFILL
BACKFILL_SCHEDULER BACKFILL_ATTEMPTED SCHEDULING_ATTEMPTED ACCRUE_COUNT_CLEARED JOB_WAS_RUNNING JOB_ACCRUE_TIME_RESET
GRES_BINDING_ENFORCED GRES_BINDING_DISABLED SEND_JOB_ENVIRONMENT SPREAD_JOB USE_MINIMUM_NODE_COUNT PARTITION_ASSIGNED
USING_DEFAULT_ACCOUNT USING_DEFAULT_PARTITION USING_DEFAULT_QOS USING_DEFAULT_WCKEY HETEROGENEOUS_JOB CRON_JOB
CLEAR_SCHEDULING JOB_ACCRUE_OVER JOB_CPUS_SET JOB_MEM_SET NOT_SET ONE_ROW PREEMPT_DYNAMIC SHOW_ALL SHOW_DETAIL
SHOW_LOCAL STARTED_ON_BACKFILL STARTED_ON_SCHEDULE STARTED_ON_SUBMIT START_RECEIVED
EXACT_TASK_COUNT_REQUESTED EXACT_CPU_COUNT_REQUESTED EXACT_MEMORY_REQUESTED TOP_PRIORITY_JOB DEPENDENT STEPMGR_ENABLED
"""
_KUEUE = """
List Workload Job PodGroup JobSet ADDED MODIFIED DELETED kueue x-k8s io v1 v1beta1 v1beta2 nvidia com amd intel memory
PodsReady QuotaReserved Admitted Evicted Finished Requeued Preempted Pending Inadmissible Succeeded Failed JobFinished
OutOfSync Deactivated AdmissionCheck
"""
_FIELD = r"(?<!\S)[A-Za-z_][\w.]*(?==(?!=))"
"""A name before an equals sign, at the beginning of a line or after a blank."""

_SHOW = ("scontrol", "--oneliner", "show")
_SACCT = ("sacct", "--allusers", "--allocations", "--duplicates", "--parsable2", f"--delimiter={SEPARATOR}")

SCHEDULERS: Mapping[str, CaptureKind] = MappingProxyType(
    {
        "slurm": CaptureKind(
            ("slurm",),
            _SLURM,
            ("squeue", "--version"),
            {
                "squeue.json": ("squeue", "--json", "--all", "--states=all"),
                "nodes.txt": (*_SHOW, "node"),
                "partitions.txt": (*_SHOW, "partition"),
                "reservations.txt": (*_SHOW, "reservation"),
                "sacct.txt": (*_SACCT, "--format=ALL", "--starttime=now-1hour"),
            },
            5,
            True,
            _FIELD,
        ),
        "pbs": CaptureKind(
            ("qstat", "pbs"),
            _PBS,
            ("qstat", "--version"),
            {"qstat.txt": ("qstat", "-x", "-f", "-F", "json")},
            fields=rf"(?<![^\s;])(?:{PBS_KEYS})(?==)|(?<=\d;)[A-Za-z](?=;)",
        ),
        "lsf": CaptureKind(("lsf",), _LSF, ("lsid",), fields=r'^"[A-Z]+(?:_[A-Z0-9]+)+"(?= "[\d.]+" \d+ )'),
        "gridengine": CaptureKind(("gridengine",), _GRIDENGINE, ("qstat", "-help")),
        "htcondor": CaptureKind(
            ("htcondor",),
            _HTCONDOR,
            ("condor_version",),
            {"history.txt": ("condor_history", "-long", "-limit", "1000")},
            fields=r"^\s*[A-Za-z_]\w*(?= = )",
        ),
        "flux": CaptureKind(("flux-log",), _FLUX, ("flux", "version")),
        "kueue": CaptureKind(
            ("kueue-log",),
            _KUEUE,
            ("kubectl", "version"),
            {"workloads.txt": ("kubectl", "get", "workloads", "-A", "-o", "json")},
        ),
    }
)

_TABLE = re.compile(r"\A(?:\w+\|){3,}\w*\n")  # the header of sacct's rows
_FIELDS_OF_JSON = r'"job_state"\s*:\s*"[A-Z]"|"[A-Za-z_]\w*"(?=\s*:)'

_WORDS = (
    r'\bN/A\b|(?<![^\s:="])-[A-Za-z](?=\s)|\\(?P<escape>u[\da-fA-F]{4}|["\\/nrtbf])|\d{4}-\d\d-\d\dT[\d:.]+Z?'
    r"|(?P<address>\b\d{1,3}(?:\.\d{1,3}){3}\b)"
    r"|(?P<word>[^\W\d_][\w@]*(?:-(?=[^\W\d])[\w@]+)*(?:(?:-\d{1,3}){4})?|_\w+)"
)
"""What is no name of a field: options and times stay; the address of a host may be the end of its name."""

_WORD, _LINE = re.compile(_WORDS), re.compile(r"[^\n]+")
_FREE = r"\b(?:Reason|\w*[Cc]omment|Extra|[Ss]ubmit_arg\w*|Variable_List)=.*"
_QUOTED = r'"(?:\\.|""|[^"\\\n])*"?'  # what a user may have written: no word in it is the name of a field

_LEFT_OUT = re.compile(
    r'("(?:labels|annotations|nodeSelector|matchLabels|environment|Variable_List)"\s*:\s*\{)'
    r'(?:"(?:\\.|[^"\\])*"|\{[^{}]*\}|[^"{}])*'
    r'|("(?:env|args|Submit_arguments)"\s*:\s*\[)(?:"(?:\\.|[^"\\])*"|[^"\]])*'
    r'|("(?:submit_line|Submit_arguments|Env|Environment|Args|Arguments)"\s*:\s*")(?:\\.|[^"\\])*'
    r"|(^[ \t]*(?:Env|Environment|Args|Arguments)\s*=\s?).*",
    re.MULTILINE,
)
"""What no source reads, and what may hold secrets; in JSON, and in HTCondor's lines."""

_USERS = re.compile(
    r'("(?:userid|uid|user_id|gid|group_id|runAsUser|runAsGroup|fsGroup)"\s*:\s*(?:\{[^{}]*"number"\s*:\s*)?"?'
    r'|"userId" "|CANCELLED by |\b(?:Owner|User|UserId|GroupId)=[^\s()]*\(|^"JOB_(?:SWITCH|MOVE)" "[^"]*" \d+ '
    r'|^"JOB_(?:NEW|EXECUTE|FINISH|SIGNAL)" "[^"]*" \d+ \d+ )\d+(?=[",\s}|)])',
    re.MULTILINE,
)
"""Numbers of users: in JSON, by name, and where LSF's records have them without one."""

_HOSTS = re.compile(r"[A-Za-z][\w.-]*\[[\d,-]+\][\w.-]*")  # several nodes of Slurm's by one name


def hidden(text: str, scheduler: CaptureKind, names: Anonymiser, digits: Set[str] = frozenset()) -> str:
    """The text with other words; `digits` are names that are no words, see `numbered_names`."""
    known = frozenset(f"{_COMMON} {scheduler.words}".split()) | STATES

    def word(found: re.Match[str]) -> str:
        if found["address"]:
            return "0.0.0.0"
        if found["escape"]:
            return " "
        name, at = found["word"], found.start()
        if name is None or name in known or is_known(name):
            return found[0]
        if len(name) == 1 and found.string[at - 1 : at].isdigit():  # a unit
            return found[0]
        return names.name("word", name)

    def part(found: re.Match[str]) -> str:
        if found["field"]:
            return found[0]
        return _WORD.sub(word, found[0]) if found["free"] or found["quoted"] else word(found)

    table = _TABLE.match(text)
    head = table[0] if table else ""
    plain = _parts(_NONE if table else scheduler.fields)
    of_json = plain if table or "lsf" in scheduler.sources else _parts(_FIELDS_OF_JSON)

    def line(found: re.Match[str]) -> str:
        return (of_json if found[0].lstrip()[:1] in tuple('{["}') else plain).sub(part, found[0])

    named = lettered(_LEFT_OUT.sub(_emptied, text), digits)
    return head + _USERS.sub(r"\g<1>0", _LINE.sub(line, named[len(head) :]))


def _parts(fields: str) -> re.Pattern[str]:
    """What a line is made of, with names of fields by this pattern."""
    return re.compile(f"(?P<free>{_FREE})|(?P<field>{fields})|(?P<quoted>{_QUOTED})|{_WORDS}")


def _emptied(found: re.Match[str]) -> str:
    """What is before that which is left out."""
    return f'{found[4]}""' if found[4] else found[1] or found[2] or found[3]


def capture(
    name: str,
    directory: Path,
    logs: Sequence[Path],
    told: Callable[[str], None],
    looks: int | None = None,
    every_s: float = 30.0,
) -> None:
    """Record what a scheduler's commands answer, some times, or the ends of its logs. Raises UserError: the folder
    cannot be written, the first command fails, a log cannot be read, or there is no job.
    """
    scheduler, names = SCHEDULERS[name], Anonymiser()
    if logs and scheduler.as_folder:
        raise UserError(f"{name}: its programs are asked, and no log is read")
    if not logs and not scheduler.answers:
        raise UserError(f"{name}: nothing can be asked; name its log with --log")
    directory.mkdir(parents=True, exist_ok=True)
    with scratch() as original:
        asked = _looks(scheduler, looks or scheduler.looks, every_s, told)
        for file, text in ((f"log{n}.txt", _end_of(path)) for n, path in enumerate(logs, 1)) if logs else asked:
            (original / file).write_text(_plain(text) if name == "slurm" else text)
        texts = sorted(original.glob("*.txt")) + sorted(original.glob("*.json"))
        digits = digit_names(path.read_text() for path in texts)
        for path in texts:
            (directory / path.name).write_text(hidden(path.read_text(), scheduler, names, digits))
        pairs = [(original, directory)]
        if not scheduler.as_folder:
            pairs = [(path, directory / path.name) for path in texts]
        events, otherwise, sources = 0, 0, set[str]()
        for before, after in pairs:
            source = scheduler.source_of(before)
            shapes = list(_shapes(source, before))
            sources.add(source.name)
            events += len(shapes)
            otherwise += sum(one != other for one, other in zip_longest(shapes, _shapes(source, after)))
    about = {
        "scheduler": name,
        "sources": sorted(sources),
        "version": hidden(_answer(*scheduler.version) or "", scheduler, names).splitlines()[:3],
        "events": events,
        "otherwise": otherwise,
    }
    (directory / "about.json").write_bytes(msgspec.json.format(msgspec.json.encode(about)))
    told(f"{directory}: {events} events" + (f", {otherwise} of which are read otherwise" if otherwise else ""))


def _looks(
    scheduler: CaptureKind, looks: int, every_s: float, told: Callable[[str], None]
) -> Iterator[tuple[str, str]]:
    for number in range(1, looks + 1):
        if number > 1:
            time.sleep(every_s)
        for place, (ending, words) in enumerate(scheduler.answers.items()):
            text = _answer(*words)
            if text is not None:
                yield f"{number:04}-{ending}", text
            elif not place:
                raise UserError(f"{words[0]}: cannot be run, or fails")
            else:
                told(f"{' '.join(words[:4])}: cannot be run, or fails")
        told(f"look {number} of {looks}")


def _plain(text: str) -> str:
    """What Slurm's programs print, of sacct's columns those that are read, with each node's own name."""
    if SEPARATOR in text:
        head, _, rows = text.partition("\n")
        columns = head.split(SEPARATOR)
        read = [place for place, column in enumerate(columns) if column in COLUMNS.split()]
        row = re.compile(rf"(?:[^{SEPARATOR}]*{SEPARATOR}){{{len(columns) - 1}}}[^{SEPARATOR}\n]*\n?")
        whole = [columns, *(found[0].removesuffix("\n").split(SEPARATOR) for found in row.finditer(rows))]
        text = "".join("|".join(fields[place].replace("|", " ") for place in read) + "\n" for fields in whole)
    return _HOSTS.sub(lambda found: ",".join(hosts(found[0])), text)


def _shapes(source: type[Source], location: Path) -> Iterator[Any]:
    """What a source reads, without names."""
    for event in source(str(location), "here", lambda _: None).whole():
        yield _without_names(msgspec.to_builtins(event), "")


def _without_names(value: Any, field: str) -> Any:
    if isinstance(value, dict):  # a record; one within it says how many of each name there are
        return {
            name: sorted(one.values()) if isinstance(one, dict) else _without_names(one, name)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_without_names(one, field) for one in value]
    if field in ("job", "array"):
        return job_number(value)
    return "…" if isinstance(value, str) and field not in ("type", "state") else value


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            start = max(file.seek(0, os.SEEK_END) - MAX_BYTES, 0)
            file.seek(start)
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        raise of_file(path, error) from None
    return text.partition("\n")[2] if start else text


def _answer(*words: str) -> str | None:
    """What a command prints, with times in UTC; None where it cannot be run, or fails."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=True, env=os.environ | ENVIRONMENT)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")
