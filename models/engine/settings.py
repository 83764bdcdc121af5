"""How a site is predicted: which methods run, with which parameters, and how much is kept; and what rankings know."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from models.registry import DEFAULT, DEFAULT_RUN, TRIVIAL


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a site is predicted.

    `method` is the one whose predictions go out; `shadows` run beside it, for their accuracy, and their predictions go
    out too where `publish_shadows`. `runtimes` predicts the run times that go out and that waits are simulated with;
    `run_shadows` are to it what `shadows` are to `method`. `bounds` names the method whose bounds go with predictions
    that have none of their own ("": no method). `what_if` answers for jobs that are only considered ("": `method`, so
    that such a job is told the same as one that is submitted), and at the sites in `policies` the method named there;
    it runs beside the others at each submission, so that it is known how right it is.
    `history` counts the jobs that are compared with. At most `live_jobs` are live at once, for each takes
    memory; those that come on top are rejected. No wait is predicted while more than the share
    `withhold_down` of the site's nodes is down (Murali and Vadhiyar 2015, section 5). A requested walltime above
    `max_walltime_s` seconds counts as none. `parameters` are the methods'
    own, by the method's name; those that are not given have the method's defaults. `prior` says from what forests
    start: what an operator sends (`UsePrior`), and until then what the package holds ("grid"); the package's alone
    ("wheel"); nothing ("none"). Waits are counted for Prometheus by queue and by account: of each the first
    `counted_names` by name, the others together.
    """

    method: str = DEFAULT
    shadows: tuple[str, ...] = TRIVIAL
    runtimes: str = DEFAULT_RUN
    run_shadows: tuple[str, ...] = ()
    bounds: str = ""
    what_if: str = ""
    policies: dict[str, str] = {}
    publish_shadows: bool = False
    history: Annotated[int, Meta(ge=2, le=1_000_000)] = 6000
    live_jobs: Annotated[int, Meta(ge=1, le=100_000_000)] = 1_000_000
    max_walltime_s: Annotated[float, Meta(gt=0.0, le=400 * 86_400.0)] = 100 * 86_400.0
    withhold_down: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.5
    parameters: dict[str, dict[str, bool | int | float | str | list[str]]] = {}
    counted_names: Annotated[int, Meta(ge=0, le=1000)] = 10
    prior: Literal["grid", "wheel", "none"] = "grid"

    @property
    def methods(self) -> tuple[str, ...]:
        """Every method for waits that runs at any site, the one that counts first."""
        return tuple(dict.fromkeys((self.method, *self.shadows, *filter(None, [self.bounds]))))

    def methods_at(self, site: str) -> tuple[str, ...]:
        """Every method for waits that runs at a site: what it would have answered is scored like what it predicts."""
        return tuple(dict.fromkeys((*self.methods, self.what_if_at(site))))

    def what_if_at(self, site: str) -> str:
        """The method that answers at a site for jobs that are only considered."""
        return self.policies.get(site) or self.what_if or self.method

    @property
    def run_methods(self) -> tuple[str, ...]:
        """Every method for run times that runs, the one that counts first."""
        return tuple(dict.fromkeys((self.runtimes, *self.run_shadows)))


class SiteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a ranking has to know of a site beyond its events: `[serve.sites.NAME]`.

    `speed`: how many times faster than the reference jobs run there. `max_cpus` and `max_walltime` (seconds): the
    largest job that it takes.
    """

    speed: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
    max_cpus: Annotated[int, Meta(ge=1)] | None = None
    max_walltime: Annotated[float, Meta(gt=0.0)] | None = None
