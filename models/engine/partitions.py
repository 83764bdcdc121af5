"""What a site's partitions mean for a job that is only considered, and how they are now."""

from models.engine.engine import Engine
from models.records import WaitQuestion
from models.site.extras import EXTRAS, Extras
from models.site.state import REQUEST, Job
from models.site.topology import Topology, cannot_run


def considered(question: WaitQuestion, now: float) -> Job:
    """The job that a question is about, as if it came now."""
    rare = {name: getattr(question, name) for name in Extras.__struct_fields__ if hasattr(question, name)}
    extras = Extras(**rare)
    request = {name: getattr(question, name) for name in REQUEST}
    return Job("", 0, now, extras=EXTRAS if extras == EXTRAS else extras, **request)


def never(engine: Engine, job: Job) -> str | None:
    """Why a job can never run at the site; None where it can, and where the site has no topology."""
    topology = Topology.of(engine.context.capacity)
    return None if topology is None else cannot_run(topology, job)


def left_out(engine: Engine, job: Job) -> dict[str, str]:
    """Of the partitions that a job names, those where it can never run, and why."""
    topology = Topology.of(engine.context.capacity)
    found: dict[str, str] = {}
    if topology is None:
        return found
    for name in job.extras.partitions or ():
        alone = Job("", 0, job.submit, **{**job.request, "extras": job.extras.but(partitions=[name])})
        reason = cannot_run(topology, alone) if name in topology.partitions else "there is no such partition"
        if reason is not None:
            found[name] = reason
    return found
