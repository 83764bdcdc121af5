"""Round trip of generated jobs through the log format of each scheduler, with all legal variants."""

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.written_jobs import ODD, JobFacts, WrittenJob, facts, jobs, lists_of, read_back

RAN = lists_of(jobs().filter(lambda job: job.start is not None))
KNOWN = st.one_of(st.just(0.0), st.integers(1, 10_000).map(lambda minutes: minutes * 60.0))
IN_LINE = st.text(st.sampled_from(ODD.replace("\t", "")), min_size=1, max_size=12)


def clock(seconds: float) -> str:
    """Format a duration as schedulers print it."""
    if seconds == float("inf"):
        return "UNLIMITED"
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def expected(listed: list[WrittenJob], name: str = "{}", **changed: Any) -> dict[str, JobFacts]:
    return {name.format(job.number): facts(job)._replace(**changed) for job in listed}


@given(st.data(), lists_of(jobs()), st.sampled_from(",;\t"))
def test_table_round_trips(data: st.DataObject, listed: list[WrittenJob], separator: str) -> None:
    header = data.draw(st.permutations(["id", "sub", "beg", "fin", "cpu", "lim", "name", "state"]))
    words = {0.0: ["", "NaN", "Partition_Limit", "4294967294", "-1"], float("inf"): ["4294967295", "UNLIMITED", "inf"]}
    file = io.StringIO()
    rows = csv.writer(file, delimiter=separator, lineterminator=data.draw(st.sampled_from(["\n", "\r\n"])))
    rows.writerow(header)
    for job in data.draw(st.permutations(listed)):
        limit = data.draw(st.sampled_from(words.get(job.limit_s) or [f"{job.limit_s / 60:.0f}", clock(job.limit_s)]))
        cells = {"id": job.number, "sub": job.submit, "beg": job.start, "fin": job.end, "cpu": job.cpus, "lim": limit}
        cells |= {"name": job.text, "state": "CANCELLED" if job.start is None else "COMPLETED"}
        if job.start is None:
            cells["beg"] = data.draw(st.sampled_from(["", "Unknown", "0", "None"]))
        rows.writerow([cells[name] for name in header])
    mapping = (
        f"separator = {json.dumps(separator)}\n[columns]\n"
        'job = "id"\nsubmit = "sub"\nstart = "beg"\nend = "fin"\ncpus = "cpu"\nexecutable = "name"\nstate = "state"\n'
        'walltime = { column = "lim", unit = "minutes" }\n'
    )
    found, report = read_back(file.getvalue(), "table", ["map=FOLDER/map.toml"], {"map.toml": mapping})
    assert not report.skipped and not report.left_out
    assert found == expected(listed)


@given(lists_of(jobs(limit=KNOWN)))
def test_pbs_accounting_round_trips(listed: list[WrittenJob]) -> None:
    lines = []
    for job in listed:
        limit = f" Resource_List.walltime={clock(job.limit_s)}" if job.limit_s else ""
        own = f"user={job.user} group=g jobname=w queue=q ctime={job.submit} qtime={job.submit} etime={job.submit}"
        resources = f"Resource_List.ncpus={job.cpus}{limit}"
        entries = [(job.submit, "Q", f"{own} {resources}")]
        if job.start is None:
            entries.append((job.end, "D", "requestor=x"))
        else:
            run = f"{own} start={job.start} exec_host=n1/0*{job.cpus} {resources}"
            entries += [(job.start, "S", run), (job.end, "E", f"{run} session=1 end={job.end} Exit_status=0")]
        lines += [(at, f"{job.number}.head", kind, rest) for at, kind, rest in entries]
    lines.sort(key=lambda line: line[0])
    text = "".join(
        f"{datetime.fromtimestamp(at, UTC):%m/%d/%Y %H:%M:%S};{k};{job};{rest}\n" for at, job, k, rest in lines
    )
    found, report = read_back(text, "pbs", ["timezone=UTC"])
    assert not report.skipped
    assert found == expected(listed, "{}.head")


def strings(escaped: bool) -> st.SearchStrategy[str]:
    """Generate user text as qstat prints it: quotes escaped or not, other characters unchanged."""
    typed = st.text(st.sampled_from(ODD.replace('"', "").replace("\\", "") + "\n\x01"), max_size=12)
    odd = st.sampled_from(["\\,", "\\'", "\\x", '\\"', "\\\n", ""] if escaped else ['"no" ', '"', "\\,", ""])
    return st.tuples(typed, odd, typed).map(lambda parts: "".join(parts) + "z")


@given(st.data(), lists_of(jobs(limit=KNOWN).map(lambda job: job._replace(start=None))), st.booleans())
def test_qstat_with_invalid_json_text_round_trips(data: st.DataObject, listed: list[WrittenJob], wide: bool) -> None:
    looks = []
    for job in listed:
        at = f"{datetime.fromtimestamp(job.submit, UTC):%a %b %d %H:%M:%S %Y}"
        attributes = {"Job_Name": "w", "Job_Owner": f"{job.user}@h", "job_state": "Q", "queue": "q"}
        attributes |= dict.fromkeys(("ctime", "qtime", "etime"), at)
        lines = [f'            "{name}":"{value}"' for name, value in attributes.items()]
        limit = f',"walltime":"{clock(job.limit_s)}"' if job.limit_s else ""
        lines.append(f'            "Resource_List":{{"ncpus":{job.cpus}{limit}}}')
        lines.append(f'            "comment":"{data.draw(strings(escaped=False))}"')
        number = data.draw(st.sampled_from(["007", "0x1f", "1", "nan"]))
        lines.append(f'            "Variable_List":{{"A":"{data.draw(strings(escaped=True))}","N":{number}}}')
        looks.append(f'        "{job.number}.head":{{\n' + ",\n".join(lines) + "\n        }")
    text = (
        '{\n    "timestamp":1760000000,\n    "pbs_version":"23",\n    "Jobs":{\n' + ",\n".join(looks) + "\n    }\n}\n"
    )
    found, report = read_back(text * (2 if wide else 1), "qstat", ["timezone=UTC"])
    assert not report.skipped and not report.left_out
    assert found == expected(listed, "{}.head", cancel=None)


@given(st.data(), lists_of(jobs(IN_LINE, KNOWN)))
def test_gridengine_accounting_round_trips(data: st.DataObject, listed: list[WrittenJob]) -> None:
    name = st.text(st.sampled_from("ab:.-_ 019ß"), min_size=1, max_size=10).filter(lambda text: not text.isdecimal())
    lines = []
    for job in listed:
        limit = f"h_rt={job.limit_s:.0f}" if data.draw(st.booleans()) else f"h_rt={clock(job.limit_s)}"
        category = f"-l {limit},m_mem_free=1G -pe smp {job.cpus}" if job.limit_s else f"-pe smp {job.cpus}"
        start, failed = (0, 100) if job.start is None else (job.start, 0)
        ran_s = job.end - start if start else 0
        zeros = ":".join(["0"] * 17)
        lines.append(
            f"q:n1:g:{job.user}:{data.draw(name)}:{job.number}:sge:0:{job.submit}:{start}:{job.end}:{failed}:0:{ran_s}:{zeros}"
            f":NONE:dep:smp:{job.cpus}:0:0.1:0.0:0.0:{category}:0.0:NONE:0.0:0:0\n"
        )
    found, report = read_back("".join(lines), "gridengine")
    assert not report.skipped
    assert found == expected(listed)


@given(st.data(), RAN)
def test_lsf_stream_round_trips(data: st.DataObject, listed: list[WrittenJob]) -> None:
    lines = []
    for job in listed:
        hosts = data.draw(st.integers(1, min(job.cpus, 4)))
        shares = [job.cpus // hosts + (place < job.cpus % hosts) for place in range(hosts)]
        pairs: list[tuple[str, object]] = [("userName", job.user), ("numProcessors", job.cpus), ("options", 0)]
        pairs += [("jStatus", 64), ("submitTime", job.submit), ("startTime", job.start), ("endTime", job.end)]
        pairs += data.draw(st.permutations([("queue", "q"), ("command", job.text), ("projectName", job.text)]))
        if 0 < job.limit_s < float("inf"):
            pairs.append(("runLimit", round(job.limit_s)))
        for place, share in enumerate(shares):
            pairs += [("execHosts", f"n{place}"), ("slotUsages", share)]
        words = " ".join(f'"{name}" "{str(value).replace(chr(34), chr(34) * 2)}"' for name, value in pairs)
        lines.append(f'"JOB_FINISH2" "10.1" {job.end} {job.number} {len(pairs)} {words}\n')
    found, report = read_back("".join(lines), "lsf")
    assert not report.skipped
    assert found == {
        f"{job.number}": facts(job)._replace(limit_s=job.limit_s if job.limit_s < float("inf") else 0.0)
        for job in listed
    }


@given(st.data(), lists_of(jobs(limit=KNOWN)))
def test_htcondor_history_round_trips(data: st.DataObject, listed: list[WrittenJob]) -> None:
    ads = []
    for job in listed:
        ad: dict[str, Any] = {"ClusterId": job.number, "ProcId": 0, "Owner": job.user, "QDate": job.submit}
        ad |= {"JobStatus": 3 if job.start is None else 4, "RequestCpus": job.cpus, "ExitCode": 0}
        if job.start is None:
            ad["EnteredCurrentStatus"] = job.end
        else:
            ad |= {"JobStartDate": job.start, "JobCurrentStartDate": job.start, "CompletionDate": job.end}
            ad |= {"NumJobStarts": 1, "RemoteWallClockTime": float(job.end - job.start)}
        if job.limit_s:
            ad["AllowedJobDuration"] = round(job.limit_s)
        ad["Arguments"] = job.text
        items = data.draw(st.permutations(list(ad.items())))
        body = "".join(
            f"{name} = {json.dumps(v, ensure_ascii=False) if isinstance(v, str) else v}\n" for name, v in items
        )
        ads.append(body + "*** Offset = 0\n")
    found, report = read_back("".join(ads), "htcondor")
    assert not report.skipped
    assert found == expected(listed, "{}.0")


@given(st.data(), lists_of(jobs()))
def test_flux_journal_round_trips(data: st.DataObject, listed: list[WrittenJob]) -> None:
    entries: list[tuple[float, dict[str, Any]]] = []
    for job in listed:
        system: dict[str, Any] = {"job": {"name": job.text}}
        if job.limit_s:
            system["duration"] = job.limit_s if job.limit_s < float("inf") else 0
        spec = {"resources": [{"type": "slot", "count": 1, "with": [{"type": "core", "count": job.cpus}]}]}
        spec["attributes"] = {"system": system}  # type: ignore[assignment]
        found: list[tuple[float, str, Any]] = [(job.submit, "submit", {"userid": 5}), (job.submit, "depend", None)]
        if job.start is None:
            found.append((job.end, "exception", {"type": "cancel", "severity": 0}))
            if data.draw(st.booleans()):
                found += [(job.end + 0.1, "alloc", None), (job.end + 0.2, "free", None)]
        else:
            found += [(job.start, "alloc", None), (job.start, "start", None)]
            if data.draw(st.booleans()):
                found.append((job.end, "finish", {"status": 0}))
            found.append((job.end, "free", None))
        found.append((job.end + 0.3, "clean", None))
        for at, name, context in found:
            event = {"timestamp": at, "name": name} | ({"context": context} if context else {})
            entry = {"id": job.number, "events": [event]} | ({"jobspec": spec} if name == "submit" else {})
            entries.append((at, entry))
    entries.sort(key=lambda entry: entry[0])
    text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for _, entry in entries)
    read, report = read_back(text, "flux-log")
    assert not report.skipped
    assert sorted(read.values()) == sorted(facts(job) for job in listed)


@given(st.data(), RAN)
def test_kueue_workloads_round_trip(data: st.DataObject, listed: list[WrittenJob]) -> None:
    def at(seconds: float | None) -> str:
        return datetime.fromtimestamp(seconds or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    items = []
    for job in listed:
        cpus = data.draw(st.sampled_from([str(job.cpus), f"{job.cpus * 1000}m"]))
        container = {"name": "c", "resources": {"requests": {"cpu": cpus}}}
        first = {"name": "i", "resources": {"requests": {"cpu": str(data.draw(st.integers(0, job.cpus)))}}}
        pods = {
            "name": "main",
            "count": 1,
            "template": {"spec": {"containers": [container], "initContainers": [first]}},
        }
        conditions = [("Admitted", job.start), ("QuotaReserved", job.start), ("Finished", job.end)]
        spec: dict[str, Any] = {"queueName": "q", "podSets": [pods]}
        if 0 < job.limit_s < float("inf"):
            spec["maximumExecutionTimeSeconds"] = round(job.limit_s)
        status = {
            "admission": {"clusterQueue": "c"},
            "conditions": [
                {
                    "type": kind,
                    "status": "True",
                    "lastTransitionTime": at(time),
                    "message": job.text,
                    "reason": "JobFinished",
                }
                for kind, time in data.draw(st.permutations(conditions))
            ],
        }
        metadata = {"name": f"w{job.number}", "namespace": "n", "creationTimestamp": at(job.submit)}
        items.append({"kind": "Workload", "metadata": metadata, "spec": spec, "status": status})
    text = json.dumps({"kind": "List", "items": items}, indent=data.draw(st.sampled_from([2, 4])), ensure_ascii=False)
    found, report = read_back(text + "\n", "kueue-log")
    assert not report.skipped
    known = {f"n/w{job.number}": facts(job) for job in listed}
    assert found == {
        name: one._replace(limit_s=one.limit_s if one.limit_s < 1e12 else 0.0) for name, one in known.items()
    }
