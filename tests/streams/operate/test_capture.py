"""What `queuecast capture` records of schedulers with logs: no name is left, and the sources read the same of it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from models.records import Submit
from streams.bulk.anonymise import Anonymiser
from streams.cli.app import app
from streams.operate.capture import SCHEDULERS, capture, hidden
from streams.sources.contract import Source
from tests.streams.sources.schedulers import (
    test_flux,
    test_gridengine,
    test_htcondor,
    test_kueue,
    test_lsf,
    test_pbs,
    test_pbs_qstat,
)
from tests.support.source_contract import SourceContract, events_there

KINDS: list[tuple[str, SourceContract]] = [
    ("flux", test_flux.TestFluxLog()),
    ("gridengine", test_gridengine.TestGridEngine()),
    ("htcondor", test_htcondor.TestHTCondor()),
    ("kueue", test_kueue.TestKueueLog()),
    ("lsf", test_lsf.TestLsf()),
    ("pbs", test_pbs.TestPbs()),
    ("pbs", test_pbs_qstat.TestQstat()),
]


def written(contract: SourceContract, directory: Path) -> Path:
    directory.mkdir()
    path = Path(contract.write(directory))
    return min(path.iterdir()) if path.is_dir() else path


@pytest.mark.parametrize(("scheduler", "contract"), KINDS, ids=lambda one: getattr(one, "name", one))
def test_a_log_is_read_as_before_and_names_nobody(scheduler: str, contract: SourceContract, tmp_path: Path) -> None:
    log, folder = written(contract, tmp_path / "in"), tmp_path / "out"
    capture(scheduler, folder, [log], lambda _: None)
    about = msgspec.json.decode((folder / "about.json").read_bytes())
    assert (about["sources"], about["otherwise"]) == ([contract.name], 0) and about["events"]
    path = folder / "log1.txt"
    names = set(names_in(contract.open(str(log))))
    assert names and not names & set(re.findall(r"\w+", path.read_text()))


ENDED = "11/14/2023 22:13:20;E;7;"
TIMES = (
    "Resource_List.nodes=1:ppn=4 Resource_List.select=1:mem=8gb:ncpus=4 Resource_List.walltime=01:00:00"
    " resources_used.cput=00:10:00 resources_used.walltime=00:13:20"
)
"""With which a record has as many colons as one of Grid Engine."""

SECRETS: list[tuple[str, str, str]] = [
    ("slurm", '{"account": "ACME_MERGER", "name": "PHY_123 x"}', '{"account": "…", "name": "… …"}'),
    ("slurm", '{"job_state": ["NODE_FAIL"], "group_id": 1001}', '{"job_state": ["NODE_FAIL"], "group_id": 0}'),
    ("slurm", '{"comment": {"job": "bob=1"}, "group": "g"}', '{"comment": {"job": "…=1"}, "group": "…"}'),
    ("slurm", '{"name": "Jos\\u00e9\\nbob"}', '{"name": "…  …"}'),
    ("slurm", '{"submit_line": "sbatch --export=SECRETVAR=7", "cpus": 4}', '{"submit_line": "", "cpus": 4}'),
    ("slurm", "NodeName=n1 CPUTot=8 Owner=alice(1234) Gres=(null)", "NodeName=… CPUTot=8 Owner=…(0) Gres=(null)"),
    ("slurm", "NodeName=ip-10-20-30-40 Reason=ask bob=1", "NodeName=… Reason=… …=1"),
    ("pbs", '{"Account_Name": "PROJ_A", "job_state": "Q"}', '{"Account_Name": "…", "job_state": "Q"}'),
    ("pbs", '{"Variable_List": {"PROJECTX": "a}b", "B": 77}, "mem": "8gb"}', '{"Variable_List": {}, "mem": "8gb"}'),
    ("pbs", '11/14/2023 22:13:20;Q;7.srv;user=a account="x bob=1"', '11/14/2023 22:13:20;Q;7.…;user=… account="… …=…"'),
    ("pbs", "11/14/2023 22:13:20;Q;7.srv;group=g comment=for bob=1", "11/14/2023 22:13:20;Q;7.…;group=… …=… …=1"),
    ("pbs", "11/14/2023 22:13:20;S;7.srv;jobname=x BOB=1 queue=q", "11/14/2023 22:13:20;S;7.…;jobname=… …=1 queue=…"),
    ("htcondor", 'Environment = "AWS_SECRET_ACCESS_KEY=1234"\nCpus = 1', 'Environment = ""\nCpus = 1'),
    ("htcondor", '{"OsUser": "A_B", "Env": "KEY=1234"}', '{"OsUser": "…", "Env": ""}'),
    ("htcondor", "\tby bob=1 (a = 2)", "\tby …=1 (… = 2)"),
    ("kueue", '{"labels": {"alicejob": "12"}, "annotations": {"k": "{1"}}', '{"labels": {}, "annotations": {}}'),
    ("kueue", '{"env": [{"name": "PIN", "value": "12]34"}], "count": 3}', '{"env": [], "count": 3}'),
    ("lsf", '"JOB_NEW" "10.1" 1700000000 7 1000 "A_B" "JOB_NEW"', '"JOB_NEW" "10.1" 1700000000 7 0 "…" "…"'),
    ("gridengine", "-l h_rt=600 -v SECRETVAR=a", "-l h_rt=600 -v …=…"),
    ("slurm", '{"user_name": "2023", "job_id": 2023}', '{"user_name": "…", "job_id": 2023}'),
    ("slurm", '"current_working_directory": "\\/home\\/2023\\/x"', '"current_working_directory": " … … …"'),
    ("slurm", "ReservationName=r Users=2023,2024 StartTime=1", "ReservationName=… Users=…,… StartTime=1"),
    ("slurm", "JobID|User|Account|NCPUS\n2023|2023|2024|4\n", "JobID|User|Account|NCPUS\n2023|…|…|4\n"),
    ("pbs", "11/14/2023 22:13:20;Q;7.s;user=2023 exec_host=n1/0", "11/14/2023 22:13:20;Q;7.…;user=… exec_host=…/0"),
    ("pbs", '{"Job_Owner": "2023@login", "queue": "q"}', '{"Job_Owner": "…", "queue": "…"}'),
    ("lsf", '"JOB_NEW" "10.1" 1700000000 7 1000 "2023" 4 "5"', '"JOB_NEW" "10.1" 1700000000 7 0 "…" 4 "…"'),
    ("lsf", '"JOB_FINISH2" "10" 7 "userName" "23" "jStatus" "6"', '"JOB_FINISH2" "10" 7 "userName" "…" "jStatus" "6"'),
    ("gridengine", "q:h:2023:2024:x:43:sge:19:1:2:3:0:0:1", "…:…:…:…:…:43:sge:19:1:2:3:0:0:1"),
    ("htcondor", 'Owner = "2023"\nProcId = 2023', 'Owner = "…"\nProcId = 2023'),
    ("slurm", "A|B|C|D\nbob|NONE|x=1|N/A\n{\"bob\": 1", "A|B|C|D\n…|NONE|…=1|N/A\n{\"…\": 1"),
    ("slurm", "Account=2023 UserName=7 DefAccount=20 JobId=2023", "Account=… UserName=… DefAccount=… JobId=2023"),
    ("slurm", "AllowAccounts=2023,2024 Users=-2023 MaxNodes=2023", "AllowAccounts=…,… Users=-… MaxNodes=2023"),
    ("slurm", '{"parent_account": "20", "lineage": "\\/20\\/7\\/"}', '{"parent_account": "…", "lineage": " … … "}'),
    ("slurm", '{"groups": {"allowed": ["2023"], "deny": "7,8"}}', '{"groups": {"allowed": ["…"], "deny": "…,…"}}'),
    ("pbs", "11/14/2023 22:13:20;Q;7.s;a=PBS_O_LOGNAME=2023,b=1", "11/14/2023 22:13:20;Q;7.…;…=…=…,…=1"),
    ("pbs", "11/14/2023 22:13:20;Q;7.s;x=/home/2023,y=/u/2023", "11/14/2023 22:13:20;Q;7.…;…=/…/…,…=/…/…"),
    ("lsf", '"JOB_NEW" "10.1" 1700000000 7 1000 "x" "/home/2023/a"', '"JOB_NEW" "10.1" 1700000000 7 0 "…" "/…/…/…"'),
    ("pbs", f"{ENDED}account=\"2023\" {TIMES}", f"{ENDED}account=\"…\" {TIMES}"),
    ("pbs", f"{ENDED}{TIMES} account=2023", f"{ENDED}{TIMES} account=…"),
    ("gridengine", 'q:h:g:u:x:43:sge:19:1:2:3:0:0:-l account="2023"', '…:…:…:…:…:43:sge:19:1:2:3:0:0:-l …="…"'),
    ("slurm", "JobID|WCKey|Comment|End\n7|2023|/u/2024|2023-1\n", "JobID|WCKey|Comment|End\n7|…|/…/…|2023-1\n"),
    ("slurm", "UserId=2023(1001) GroupId=7(1) Coordinators=8", "UserId=…(0) GroupId=…(0) Coordinators=…"),
    ("kueue", '{"namespace": "2023", "count": "2023"}', '{"namespace": "…", "count": "2023"}'),
    ("htcondor", 'UserLog = "/home/2023/a"\nRequestMemory = 2023', 'UserLog = "/…/…/…"\nRequestMemory = 2023'),
    ("htcondor", 'AccountingGroup = "group_x.2023.2024"', 'AccountingGroup = "….….…"'),
    ("htcondor", 'AccountingGroup = "2023.bob"\nRemoteUserCpu = 2023', 'AccountingGroup = "….…"\nRemoteUserCpu = 2023'),
]  # fmt: skip


@pytest.mark.parametrize(("scheduler", "text", "expected"), SECRETS)
def test_no_secret_gets_out(scheduler: str, text: str, expected: str) -> None:
    found = hidden(text, SCHEDULERS[scheduler], Anonymiser(b"key"))
    assert re.sub("w[0-9a-f]{16}", "…", found) == expected


def test_a_name_of_digits_is_hidden_wherever_it_stands_but_in_numbers(tmp_path: Path) -> None:
    """A user's name is known from one log, and stands without a field in another."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("11/14/2023 22:13:20;Q;20233.srv;user=20233 group=7 queue=q ctime=1 Resource_List.ncpus=4\n")
    told = "jobname=run of 20233 Resource_List.mem=20233kb Resource_List.ncpus=20233 session=20233"
    second.write_text(f"11/14/2023 22:13:20;Q;20233.srv;user=ann {told} comment=by 20233,ann\n")
    capture("pbs", tmp_path / "out", [first, second], lambda _: None)
    one, other = ((tmp_path / "out" / f"log{number}.txt").read_text() for number in (1, 2))
    assert one.count("20233") == 1 and ";20233." in one
    assert re.sub("w[0-9a-f]{16}", "…", other.partition(";user=")[2]) == (
        "… jobname=… … … Resource_List.mem=20233kb Resource_List.ncpus=20233 session=20233 …=… …,…\n"
    )


KNOWN = [
    (
        "pbs",
        "11/14/2023 22:13:20;E;20233.s;jobname=20233_a 20233mb mem=20233kb",
        "11/14/2023 22:13:20;E;20233.…;jobname=… 20233mb mem=20233kb",
    ),
    (
        "pbs",
        "11/14/2023 22:13:20;E;7.s;Error_Path=h/20233.e7 exec_host=n20233/0",
        "11/14/2023 22:13:20;E;7.…;…=…/….… exec_host=…/0",
    ),
    (
        "pbs",
        '{"Jobs": {"20233.s": {"Error_Path": "/x/20233.out", "Keep": "x.20233"}}}',
        '{"Jobs": {"20233.…": {"Error_Path": "/…/….…", "Keep": "….…"}}}',
    ),
    (
        "slurm",
        '{"resv_name": "20233_1", "comment": "20233-12", "x": "20233.5"}',
        '{"resv_name": "…", "comment": "…-12", "x": "20233.5"}',
    ),
    (
        "slurm",
        "JobID|User|JobName|Start\n20233.0|ann|x.20233|2023-11-14\n",
        "JobID|User|JobName|Start\n20233.0|…|….…|2023-11-14\n",
    ),
    ("slurm", "ReservationName=20233_3 Nodes=n1 Users=20233_a,7b", "ReservationName=… Nodes=… Users=…,…"),
    (
        "htcondor",
        '000 (20233.000.000) 2023-11-14 10:00:00 of 20233.uni\nOut = "20233.out"',
        '000 (20233.000.000) 2023-11-14 10:00:00 of ….…\nOut = "….…"',
    ),
    ("gridengine", "q:h:g:u:x.20233:20233:sge:19:1:2:3:0:20233.5:1", "…:…:…:…:….…:20233:sge:19:1:2:3:0:20233.5:1"),
    (
        "lsf",
        '"JOB_NEW" "10.1" 1700000000 20233 7 "x" "a 20233.in" "20233.err"',
        '"JOB_NEW" "10.1" 1700000000 20233 0 "…" "… ….…" "….…"',
    ),
    ("slurm", '{"comment": "by\\n20233, J\\u00e920233 \\u2023"}', '{"comment": "by …, … …  "}'),
]


@pytest.mark.parametrize(("scheduler", "text", "expected"), KNOWN)
def test_a_known_name_of_digits_is_hidden_as_a_part_of_a_word_too(scheduler: str, text: str, expected: str) -> None:
    found = hidden(text, SCHEDULERS[scheduler], Anonymiser(b"key"), {"20233", "2023"})
    assert re.sub("w[0-9a-f]{16}", "…", found) == expected


def names_in(source: Source) -> Iterator[str]:
    """The names of people and of what they run."""
    for event in source.whole():
        if isinstance(event, Submit):
            found = (event.user, event.group, event.account, event.executable)
            yield from (name for name in found if name and not name.isdecimal())


@pytest.mark.parametrize(("scheduler", "contract"), KINDS, ids=lambda one: getattr(one, "name", one))
def test_from_every_cursor_of_it_the_source_goes_on(scheduler: str, contract: SourceContract, tmp_path: Path) -> None:
    folder = Path(os.environ.get("TESTS_CAPTURED_LOGS", tmp_path / "out"))
    if not folder.exists():
        capture(scheduler, folder, [written(contract, tmp_path / "in")], lambda _: None)
    for path in folder.glob("*.txt"):
        whole = events_there(contract.open(str(path)))
        assert whole
        for place, (_, cursor) in enumerate(whole, 1):
            if cursor is not None:
                rest = [event for event, _ in events_there(contract.open(str(path)), cursor)]
                assert rest == [event for event, _ in whole[place:]]


def test_what_a_command_answers_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = written(test_pbs_qstat.TestQstat(), tmp_path / "in")
    program = tmp_path / "qstat"
    program.write_text(f'#!/bin/sh\ntest "$1" = --version && echo "pbs_version = 23.06" || cat {answer}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    done = CliRunner().invoke(app, ["capture", "pbs", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["0001-qstat.txt", "about.json"]
    assert "23.06" in (tmp_path / "out" / "about.json").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lsf", "out"], "name its log with --log"),
        (["moab", "out"], f"expected {', '.join(SCHEDULERS)}"),
        (["slurm", "out", "--log", "squeue.json"], "slurm: its programs are asked"),
        (["pbs", "out", "--log", "absent"], "absent: cannot be read"),
    ],
)
def test_what_cannot_be_captured_is_told(words: list[str], told: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)
        done = CliRunner().invoke(app, ["capture", *words])
    assert done.exit_code != 0 and told in " ".join(str(done.exception or done.output).split())
