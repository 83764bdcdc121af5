"""How good the predictions are: each method beside the trivial rules, by site."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.panels import Column, Query, bars, columns, laid_out, lines, listed, values_of, window
from deploy.grafana.promql import OTHER_WAITS, RUNS, SITES, TRIVIAL_WAITS, WAITS, gauge, increase, mean, portion, share

ERROR, PPE = "queuecast_wait_error_seconds", "queuecast_wait_error_response_ratio"
JOBS = f"{ERROR}_count"
WITHIN_2, WITHHELD = "queuecast_within_factor_2_jobs_total", "queuecast_withheld_jobs_total"
HELD, BOUNDED = "queuecast_bound_held_jobs_total", "queuecast_bound_jobs_total"
RUN_ERROR = "queuecast_run_error_seconds"
NOMINAL = "bound:queuecast_bound:nominal"

ANSWER_ERROR, BY_KIND, SITE_KIND = "queuecast_answer_error_seconds", "site, kind", "{{site}} {{kind}}"

EACH, BY_SITE, ROLES = "method", "site, method", "site, role, method"
METHOD, SITE_METHOD = "{{method}}", "{{site}} {{method}}"

ERROR_IS = "Mean absolute error of the predicted wait (AAE); no estimate counts as a prediction of none."
PPE_IS = "Mean of the wait's error over the job's response time (PPE); always zero is hard to beat in it."
WITHIN_2_IS = "Share of jobs whose predicted and actual wait, each a minute at least, are within a factor of two."
WITHHELD_IS = "Share of jobs that left the queue without an estimate."
COVERAGE_IS = "Share of jobs whose wait was at or below the bound, by its probability"
ROLES_ARE = (
    "Which method does what: what wait and run predict goes out, bounds lends its bounds to it, what_if answers "
    "questions; shadow and run_shadow are only tried."
)
ANSWERS_ARE = (
    "Standing estimates, by the next job of their shape; answers, by the job that was asked about; and the last "
    "estimate of jobs that were estimated again while they queued (expected)."
)
GAIN_IS = "By how much the method's mean error is below that of the better trivial rule; below 0 it is worse than none."

BEST_TRIVIAL = f"min by (site) ({mean(ERROR, BY_SITE, TRIVIAL_WAITS)})"
GAIN = f"1 - ({mean(ERROR, BY_SITE, OTHER_WAITS)}) / on (site) group_left () ({BEST_TRIVIAL} > 0)"
WEIGHTS = gauge("queuecast_feature_weight", "site, feature", SITES)
COVERAGE = f"({portion(HELD, BOUNDED, 'site, method, bound', WAITS)})"


def accuracy() -> Dashboard:
    """The dashboard."""
    return laid_out(
        "accuracy",
        "Each method beside the trivial rules, by site.",
        [
            values_of("site", "Site", "queuecast_events_total", "site"),
            values_of("method", "Method", "queuecast_predictions_total", "method"),
            values_of("run_method", "Run times by", "queuecast_run_predictions_total", "method"),
            values_of("jobs", "Jobs that were", JOBS, "jobs"),
            window("1d", "1h", "6h", "12h", "7d", "30d"),
        ],
        {
            "All sites chosen": [
                [
                    bars("Mean error", ERROR_IS, "s", Query(mean(ERROR, EACH, WAITS), METHOD)),
                    bars("Error over response time", PPE_IS, "percentunit", Query(mean(PPE, EACH, WAITS), METHOD)),
                    bars("Within ×2", WITHIN_2_IS, "percentunit", Query(portion(WITHIN_2, JOBS, EACH, WAITS), METHOD)),
                ],
                [
                    bars("Withheld", WITHHELD_IS, "percentunit", Query(portion(WITHHELD, JOBS, EACH, WAITS), METHOD)),
                    listed("Roles", ROLES_ARE, gauge("queuecast_method_info", ROLES, SITES), *ROLES.split(", ")),
                ],
            ],
            "Waits, by site": [
                [
                    lines("Mean error", ERROR_IS, "s", Query(mean(ERROR, BY_SITE, WAITS), SITE_METHOD)),
                    lines("Gain over the better trivial rule", GAIN_IS, "percentunit", Query(GAIN, SITE_METHOD)),
                ],
                [
                    lines("Error over response time", PPE_IS, "percentunit", _by_site(mean(PPE, BY_SITE, WAITS))),
                    lines("Within ×2", WITHIN_2_IS, "percentunit", _by_site(portion(WITHIN_2, JOBS, BY_SITE, WAITS))),
                    lines("Withheld", WITHHELD_IS, "percentunit", _by_site(portion(WITHHELD, JOBS, BY_SITE, WAITS))),
                ],
                [
                    columns(
                        "Sites and methods",
                        "What the panels above say, over the same stretch of time, as it stands now.",
                        Column("jobs", increase(JOBS, BY_SITE, WAITS), "short"),
                        Column("mean error", mean(ERROR, BY_SITE, WAITS), "s"),
                        Column("gain", GAIN, "percentunit"),
                        Column("over response time", mean(PPE, BY_SITE, WAITS), "percentunit"),
                        Column("within ×2", portion(WITHIN_2, JOBS, BY_SITE, WAITS), "percentunit"),
                        Column("withheld", portion(WITHHELD, JOBS, BY_SITE, WAITS), "percentunit"),
                    )
                ],
            ],
            "Bounds": [
                [
                    lines(
                        "Coverage",
                        f"{COVERAGE_IS}, which is drawn dashed.",
                        "percentunit",
                        Query(portion(HELD, BOUNDED, "method, bound", WAITS), "{{method}} {{bound}}"),
                        Query(NOMINAL, "nominal {{bound}}"),
                    ),
                    lines(
                        "Coverage less the nominal, by site",
                        f"{COVERAGE_IS}, less that: below 0 the bound is too low.",
                        "percentunit",
                        Query(f"{COVERAGE} - on (bound) group_left () {NOMINAL}", "{{site}} {{method}} {{bound}}"),
                    ),
                ]
            ],
            "What people act on, by site": [
                [
                    lines("Mean error", ANSWERS_ARE, "s", Query(mean(ANSWER_ERROR, BY_KIND, SITES), SITE_KIND)),
                    lines(
                        "Within ×2",
                        f"Share of them that are within a factor of two. {ANSWERS_ARE}",
                        "percentunit",
                        Query(
                            portion(
                                "queuecast_answer_within_factor_2_jobs_total", f"{ANSWER_ERROR}_count", BY_KIND, SITES
                            ),
                            SITE_KIND,
                        ),
                    ),
                    lines(
                        "Coverage",
                        f"Share of jobs whose wait was at or below the bound that was told. {ANSWERS_ARE}",
                        "percentunit",
                        Query(
                            portion(
                                "queuecast_answer_bound_held_jobs_total",
                                "queuecast_answer_bound_jobs_total",
                                f"{BY_KIND}, bound",
                                SITES,
                            ),
                            f"{SITE_KIND} {{{{bound}}}}",
                        ),
                    ),
                ]
            ],
            "Run times, by site": [
                [
                    lines(
                        "Mean error",
                        "Mean absolute error of the run time predicted at the submission.",
                        "s",
                        _by_site(mean(RUN_ERROR, BY_SITE, RUNS)),
                    ),
                    lines(
                        "Error over run time",
                        "That error as a share of the mean run time.",
                        "percentunit",
                        _by_site(share(f"{RUN_ERROR}_sum", "queuecast_run_seconds_total", BY_SITE, RUNS)),
                    ),
                    lines(
                        "Within the interval",
                        "Share of jobs that ran within the interval that the method gave for their run time.",
                        "percentunit",
                        _by_site(
                            portion(
                                "queuecast_run_interval_held_jobs_total",
                                "queuecast_run_interval_jobs_total",
                                BY_SITE,
                                RUNS,
                            )
                        ),
                    ),
                ]
            ],
            "What waits go with": [
                [
                    bars(
                        "Feature weights",
                        "Absolute rank correlation of each feature with the wait, over the history: the mean of the "
                        "sites chosen.",
                        "percentunit",
                        Query(
                            f"sort_desc(avg by (feature) ({WEIGHTS}))",
                            "{{feature}}",
                        ),
                    ),
                    lines(
                        "Largest feature weights, by site",
                        "The three largest of each site, over time.",
                        "percentunit",
                        Query(f"topk by (site) (3, {WEIGHTS})", "{{site}} {{feature}}"),
                    ),
                ]
            ],
        },
    )


def _by_site(expr: str) -> Query:
    return Query(expr, SITE_METHOD)
