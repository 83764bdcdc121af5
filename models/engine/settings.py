"""Settings of the engine and of the sites in rankings."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from models.method_registry import DEFAULT, DEFAULT_RUN, TRIVIAL


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Methods and limits of each site's engine.

    `method` makes the published predictions. `shadows` run beside it for their accuracy, and are published too with
    `publish_shadows`. `runtimes` predicts the published run times, which simulated schedules use too; `run_shadows` run
    beside it. `bounds` names the method whose upper bounds complete predictions without bounds ("": none).

    `what_if_method` answers questions about jobs that are not submitted ("": `method`), except at the sites in
    `policy_by_site`, which name their own. It runs at each submission too, so that its accuracy is measured.

    `history` is the number of jobs to compare with. `live_jobs` bounds the live jobs of a site; further submissions are
    rejected. No wait is predicted while more than `max_down_fraction` of the site's nodes are down (Murali and Vadhiyar
    2015, section 5). A requested walltime above `max_walltime_s` counts as none. `parameters` holds parameters of
    methods, by the method's name. `prior` selects the pre-trained forests: those that an operator sent (`LoadPrior`),
    else the package's ("grid"); the package's only ("wheel"); none ("none"). `max_label_values` bounds the cardinality
    of the queue and account labels of the wait metrics; further names are counted together.
    """

    method: str = DEFAULT
    shadows: tuple[str, ...] = TRIVIAL
    runtimes: str = DEFAULT_RUN
    run_shadows: tuple[str, ...] = ()
    bounds: str = ""
    what_if_method: str = ""
    policy_by_site: dict[str, str] = {}
    publish_shadows: bool = False
    history: Annotated[int, Meta(ge=2, le=1_000_000)] = 6000
    live_jobs: Annotated[int, Meta(ge=1, le=100_000_000)] = 1_000_000
    max_walltime_s: Annotated[float, Meta(gt=0.0, le=400 * 86_400.0)] = 100 * 86_400.0
    max_down_fraction: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.5
    parameters: dict[str, dict[str, bool | int | float | str | list[str]]] = {}
    max_label_values: Annotated[int, Meta(ge=0, le=1000)] = 10
    prior: Literal["grid", "wheel", "none"] = "grid"

    @property
    def methods(self) -> tuple[str, ...]:
        """Every method for waits that runs at any site, the default method first."""
        return tuple(dict.fromkeys((self.method, *self.shadows, *filter(None, [self.bounds]))))

    def methods_at(self, site: str) -> tuple[str, ...]:
        """Return the wait methods of a site; their what-if answers are scored like their predictions."""
        return tuple(dict.fromkeys((*self.methods, self.what_if_at(site))))

    def what_if_at(self, site: str) -> str:
        """Return the method that answers questions about considered jobs at a site."""
        return self.policy_by_site.get(site) or self.what_if_method or self.method

    @property
    def run_methods(self) -> tuple[str, ...]:
        """Every method for run times that runs, the default method first."""
        return tuple(dict.fromkeys((self.runtimes, *self.run_shadows)))


class SiteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Properties of a site in rankings that its events do not contain: `[serve.sites.NAME]`.

    `speed` is the site's speed relative to the reference: a job runs 1/`speed` times as long there. `max_cpus` and
    `max_walltime` (seconds) are the limits of one job.
    """

    speed: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
    max_cpus: Annotated[int, Meta(ge=1)] | None = None
    max_walltime: Annotated[float, Meta(gt=0.0)] | None = None
