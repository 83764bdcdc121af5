"""A history of jobs, as squeue, sacct and jobcomp/kafka would print it at any time."""

import json
import random
from datetime import UTC, datetime
from typing import Any

import msgspec

NOON = 1767355200
"""Unix time of 2026-01-02 12:00 UTC, when the histories begin."""

FOREVER = 1 << 40


class MadeJob(msgspec.Struct, kw_only=True):
    """An attempt at a job; times are seconds after noon. Without a start it was cancelled in the queue, at its end."""

    number: int
    submit: int
    start: int | None = None
    end: int = FOREVER
    state: str = "COMPLETED"
    restarts: int = 0
    cpus: int = 4
    held: tuple[int, int] | None = None
    suspended: tuple[int, int] | None = None
    array: int | None = None
    task: int | None = None
    user: str = "ada"
    expected: int | None = None

    @property
    def name(self) -> str:
        """As sacct shows it."""
        return str(self.number) if self.array is None else f"{self.array}_{self.task}"

    def state_at(self, at: int) -> str:
        """Its state, in Slurm's words."""
        if at >= self.end:
            return self.state
        if self.start is None or at < self.start:
            return "PENDING"
        return "SUSPENDED" if self.suspended and self.suspended[0] <= at < self.suspended[1] else "RUNNING"

    @property
    def eligible(self) -> int:
        """Since when it may start."""
        return self.submit if self.held is None else self.held[1]


def _number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def squeue(jobs: list[MadeJob], at: int) -> bytes:
    """`squeue --json` at that time: queued arrays are one row, the last attempt alone is shown."""
    last = {job.name: job for job in sorted(jobs, key=lambda job: job.submit) if job.submit <= at}
    rows = [_row(job, at) for job in last.values() if job.array is None or job.state_at(at) != "PENDING"]
    waiting: dict[int, list[MadeJob]] = {}
    for job in last.values():
        if job.array is not None and job.state_at(at) == "PENDING":
            waiting.setdefault(job.array, []).append(job)
    for array, tasks in waiting.items():
        row = _row(tasks[0], at)
        row |= {
            "job_id": array,
            "array_task_id": _number(None),
            "array_task_string": ",".join(str(t.task) for t in tasks),
        }
        rows.append(row)
    return json.dumps({"jobs": rows, "last_update": _number(NOON + at), "errors": []}).encode()


def _row(job: MadeJob, at: int) -> dict[str, Any]:
    state = job.state_at(at)
    held = job.held is not None and job.held[0] <= at < job.held[1]
    started = job.start is not None and at >= job.start
    begin = job.start if started else job.end if at >= job.end else job.expected
    return {
        "job_id": job.number,
        "job_state": [state],
        "submit_time": _number(NOON + job.submit),
        "eligible_time": _number(0 if held else NOON + job.eligible),
        "start_time": _number(0 if begin is None else NOON + begin),
        "end_time": _number(NOON + job.end if at >= job.end else 0),
        "suspend_time": _number(NOON + max(t for t in (*job.suspended, 0) if t <= at) if job.suspended else 0),
        "time_limit": _number(60),
        "restart_cnt": job.restarts,
        "array_job_id": _number(job.array or 0),
        "array_task_id": _number(job.task),
        "array_task_string": "",
        "user_name": job.user,
        "partition": "batch",
        "cpus": _number(job.cpus),
        "node_count": _number(1),
        "tres_req_str": f"cpu={job.cpus},node=1",
        "tres_alloc_str": f"cpu={job.cpus},node=1" if started else "",
        "nodes": "n1" if started else "",
        "state_reason": "JobHeldUser" if held else "Priority" if state == "PENDING" else "None",
        "priority": _number(0 if held else 1000),
    }


SACCT = "JobID|JobIDRaw|Submit|Eligible|Start|End|State|TimelimitRaw|Partition|User|NNodes|NodeList|ReqTRES|AllocTRES"


def sacct(jobs: list[MadeJob], at: int, since: int = 0) -> str:
    """`sacct --parsable2 --duplicates` at that time, of the jobs that lived since then; requeued ones show it."""
    lines = [SACCT]
    for job in jobs:
        if job.submit > at or job.end < since:
            continue
        started, ended = job.start is not None and at >= job.start, at >= job.end
        fields = [
            job.name,
            str(job.number),
            stamp(job.submit),
            stamp(job.eligible),
            stamp(job.start) if started else "Unknown",
            stamp(job.end) if ended else "Unknown",
            job.state_at(at),
            "60",
            "batch",
            job.user,
            "1",
            "n1" if started else "None assigned",
            f"cpu={job.cpus},node=1",
            f"cpu={job.cpus},node=1" if started else "",
        ]
        lines.append("|".join(fields))
    return "\n".join(lines) + "\n"


def sacct_json(jobs: list[MadeJob], at: int, since: int = 0) -> bytes:
    """As `sacct`, by `--json`."""
    lived = [job for job in jobs if job.submit <= at and job.end >= since]
    return json.dumps(
        {"meta": {"plugin": {"type": "data_parser"}}, "jobs": [_accounted(job, at) for job in lived]}
    ).encode()


def _accounted(job: MadeJob, at: int) -> dict[str, Any]:
    started, ended = job.start is not None and at >= job.start, at >= job.end
    times = {"submission": job.submit, "eligible": job.eligible, "start": job.start if started else None}
    times["end"] = job.end if ended else None
    tres = [{"type": "cpu", "name": "", "count": job.cpus}, {"type": "node", "name": "", "count": 1}]
    return {
        "job_id": job.number,
        "array": {"job_id": job.array or 0, "task_id": _number(job.task)},
        "time": {name: 0 if time is None else NOON + time for name, time in times.items()} | {"limit": _number(60)},
        "state": {"current": [job.state_at(at)], "reason": "None"},
        "tres": {"requested": tres, "allocated": tres if started else []},
        "user": job.user,
        "partition": "batch",
        "nodes": "n1" if started else "None assigned",
    }


def history(seed: int, count: int = 25) -> list[MadeJob]:
    """Jobs that wait, run, are cancelled, and run again."""
    draw, jobs = random.Random(seed), []
    for number in range(1, count + 1):
        submit = draw.randrange(2000)
        if draw.random() < 0.15:
            jobs.append(MadeJob(number=number, submit=submit, end=submit + draw.randrange(1, 300), state="CANCELLED"))
            continue
        for restarts in range(draw.choice((1, 1, 1, 2, 3))):
            start = submit + draw.randrange(1, 400)
            jobs.append(MadeJob(number=number, submit=submit, start=start, end=start + draw.randrange(1, 300)))
            jobs[-1].restarts, submit = restarts, jobs[-1].end
            if restarts:
                jobs[-2].state = "REQUEUED"
    return jobs


def records(job: MadeJob) -> list[tuple[int, bytes]]:
    """What jobcomp/kafka sends of it, with the seconds after noon: a start, and an end."""
    common = {
        "jobid": job.number,
        "username": job.user,
        "partition": "batch",
        "total_cpus": job.cpus,
        "total_nodes": 1,
        "@submit": stamp(job.submit),
        "@eligible": stamp(job.eligible),
        "time_limit": 3600,
        "tres_req": f"cpu={job.cpus},node=1",
    }
    if job.array is not None:
        common |= {"array_job_id": job.array, "array_task_id": job.task}
    found: list[tuple[int, bytes]] = []
    if job.start is not None:
        ran = {"@start": stamp(job.start), "nodes": "n1", "tres_alloc": f"cpu={job.cpus},node=1"}
        found.append((job.start, json.dumps(common | ran | {"state": None}).encode()))
        if job.end != FOREVER:
            state = "PENDING" if job.state == "REQUEUED" else job.state
            end = {"@end": stamp(job.end), "elapsed": job.end - job.start, "state": state}
            found.append((job.end, json.dumps(common | ran | end).encode()))
    elif job.end != FOREVER:
        end = {"@start": stamp(job.end), "@end": stamp(job.end), "elapsed": 0, "nodes": None, "state": job.state}
        found.append((job.end, json.dumps(common | end).encode()))
    return found


def stamp(seconds: int) -> str:
    """A time as Slurm writes it."""
    return datetime.fromtimestamp(NOON + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
