"""Operator commands: topics, schema, worker, serve, doctor, credentials, and those for one site."""

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer

from streams.cli.options import arg, changed, flag, known_sites, names_in, opt, print_json, settings_of, warn
from streams.errors import UserError, read_as
from streams.text.terminal import printable, show_table, show_wrapped

if TYPE_CHECKING:
    from models.records import AnyOperation
    from streams.settings import ServeSettings, Settings

commands = typer.Typer()

RECORDS = names_in("streams.broker.schema", "RECORDS")


topics_commands = typer.Typer(no_args_is_help=True)
commands.add_typer(topics_commands, name="topics")

AsJson = Annotated[bool, flag("--json", "Print the topics as JSON.")]


@topics_commands.callback(epilog="Example: queuecast topics create --partitions 24 --replication 3")
def topics() -> None:
    """Create, list or repartition the Kafka topics."""


@topics_commands.command(epilog="Example: queuecast topics create --partitions 24 --replication 3")
def create(
    context: typer.Context,
    partitions: Annotated[
        int | None, opt("Partitions of new topics. Default: from the settings.", min=1, max=10_000)
    ] = None,
    replication: Annotated[
        int | None, opt("Replication factor of new topics. Default: from the settings.", min=1, max=32)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create the missing topics, and list all of them."""
    from streams.broker.admin import create_topics

    settings = changed(settings_of(context), "topics", partitions=partitions, replication=replication)
    made = create_topics(settings)
    counts = _show_topics(settings, made, as_json)
    if partitions is not None and (others := set(counts.values()) - {partitions}):
        numbers = " and ".join(map(str, sorted(others)))
        warn(
            f"existing topics keep their {numbers} partitions; "
            f"`queuecast topics repartition --partitions {partitions}` adds partitions and moves the sites"
        )


@topics_commands.command("list", epilog="Example: queuecast topics list --json")
def list_topics(context: typer.Context, as_json: AsJson = False) -> None:
    """List the topics with their partitions and retention; fail if one is missing or cannot be used."""
    _show_topics(settings_of(context), {}, as_json)


@topics_commands.command(epilog="Example: queuecast topics repartition --partitions 24")
def repartition(
    context: typer.Context,
    partitions: Annotated[
        int | None, opt("New number of partitions. Default: that of the largest topic.", min=1, max=10_000)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add partitions to the topics, and move the sites' states to their new partitions.

    Stop all workers and sources first.
    """
    from streams.operate.repartition import repartition as move_sites

    settings = settings_of(context)
    for site, (before, now) in sorted(move_sites(settings, partitions).items()):
        warn(f"{printable(site)}: partition {before} -> {now}")
    _show_topics(settings, {}, as_json)


def _show_topics(settings: "Settings", made: dict[str, bool], as_json: bool) -> dict[str, int]:
    """Print the topics, mark those just created, and return the number of partitions of each.

    Raises:
        UserError: A topic is missing, differs in its number of partitions, or cannot be used.
    """
    from streams.broker.admin import check_topics, partitions_of
    from streams.broker.topics import configurations

    counts, configured = partitions_of(settings), configurations(settings)
    kept = {name: _retention(configured[name]) for name in counts}
    if as_json:
        print_json(
            [
                {"topic": name, "partitions": counts[name], "retention": kept[name], "created": made.get(name, False)}
                for name in counts
            ]
        )
    else:
        cells = [[name, str(counts[name]), kept[name], "created" if made.get(name) else ""] for name in counts]
        show_table(["topic", "partitions", "retention", ""], cells)
    check_topics(settings, dict.fromkeys(counts, "describe"))
    return counts


def _retention(configuration: dict[str, str]) -> str:
    if configuration["cleanup.policy"] == "compact":
        return "latest per site"
    hours = int(configuration["retention.ms"]) // 3_600_000
    kept = f"{hours // 24} days" if hours % 24 == 0 and hours > 24 else f"{hours} h"
    return f"latest per shape, {kept}" if "compact" in configuration["cleanup.policy"] else kept


@commands.command(epilog="Example: queuecast schema prediction > prediction.schema.json")
def schema(
    record: Annotated[
        str | None,
        arg(
            "event, prediction, outcome, dead-letter, estimate, question, answer, notice. Default: all.",
            autocompletion=RECORDS,
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of the records on the topics."""
    import json

    from streams.broker.schema import schema as schema_of

    sys.stdout.write(json.dumps(schema_of(record), indent=2) + "\n")


@commands.command(epilog="Example: queuecast --config /etc/queuecast.toml worker --web-port 6068")
def worker(
    context: typer.Context,
    processes: Annotated[
        int | None, opt("Number of processes. Default: from the settings, else the number of CPUs.", min=1, max=256)
    ] = None,
    web_port: Annotated[int | None, opt("Port of /metrics.", min=1, max=65535)] = None,
    log_level: Annotated[Literal["debug", "info", "warning", "error"] | None, opt("Log level.")] = None,
) -> None:
    """Run a worker: consume events, publish predictions and outcomes, until it is stopped.

    Its processes share the partitions and one web port. A process that ends is
    restarted.
    """
    from streams.worker.startup import run_worker

    settings = settings_of(context)
    run_worker(changed(settings, "worker", processes=processes, web_port=web_port, log_level=log_level))


@commands.command(epilog="Example: queuecast --config /etc/queuecast.toml serve --web-port 8080")
def serve(
    context: typer.Context,
    web_host: Annotated[str | None, opt("Address to listen on. Default: loopback.")] = None,
    web_port: Annotated[int | None, opt("Port to listen on.", min=1, max=65535)] = None,
    log_level: Annotated[Literal["debug", "info", "warning", "error"] | None, opt("Log level.")] = None,
) -> None:
    """Serve the HTTP API and the web pages until stopped."""
    from streams.serve.http_server import run_serve
    from streams.settings import settings_file

    settings = settings_of(context)
    own = changed(settings, "serve", web_host=web_host, web_port=web_port, log_level=log_level)
    run_serve(own, settings_file(context.obj))


@commands.command(epilog="Example: queuecast --config /etc/queuecast.toml doctor")
def doctor(
    context: typer.Context,
    as_json: Annotated[bool, flag("--json", "Print the results as JSON lines.")] = False,
    source: Annotated[
        list[str] | None, opt("Also check the source with this web port; repeatable.", "HOST:PORT")
    ] = None,
    notify: Annotated[
        list[str] | None, opt("Also check the `notify` with this web port; repeatable.", "HOST:PORT")
    ] = None,
    slurm: Annotated[
        list[str] | None, opt("Compare a site with its slurmctld's metrics; repeatable.", "SITE=HOST:PORT")
    ] = None,
) -> None:
    """Check Kafka, its topics, the workers and Redis, and print problems with their fixes.

    One line per check: ok, warn or fail. The exit code is 1 if any check failed.
    """
    from functools import partial
    from itertools import chain

    import msgspec

    from streams.operate.checks import CheckResult, check_notifier, check_slurm, check_source, page_of, url_of
    from streams.operate.doctor import examine

    settings, failed = settings_of(context), False
    looks: list[tuple[str, Callable[[str], object], Callable[[str], CheckResult], str]] = [
        *(("--source", url_of, check_source, one) for one in source or ()),
        *(("--notify", url_of, check_notifier, one) for one in notify or ()),
        *(("--slurm", page_of, partial(check_slurm, settings), one) for one in slurm or ()),
    ]
    for option, read, _, given in looks:
        read_as(option, read, given)
    for result in chain(examine(settings), (check(given) for _, _, check, given in looks)):
        if as_json:
            sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        else:
            show_wrapped(str(result))
        failed |= result.state == "fail"
    raise typer.Exit(int(failed))


@commands.command(epilog="Example: queuecast credentials --curl | curl --config - http://127.0.0.1:6067/v1/sites")
def credentials(
    context: typer.Context,
    curl: Annotated[bool, flag("--curl", "Print the token of the service, for `curl --config -`.")] = False,
    java: Annotated[bool, flag("--java", "Print properties for Kafka's Java tools, with the password.")] = False,
    kcat: Annotated[bool, flag("--kcat", "Print properties for kcat and other librdkafka clients.")] = False,
    link: Annotated[
        bool, flag("--link", "Print a login link for a browser: valid once, for ten minutes; the session lasts a week.")
    ] = False,
    of: Annotated[str | None, opt("With --link: name of the token to log in with.", "--for", "NAME")] = None,
    url: Annotated[str | None, opt("With --link: base URL of the service. Default: this machine.")] = None,
    as_json: Annotated[bool, flag("--json", "Print arguments for kafka-python, with the password.")] = False,
) -> None:
    """Print the connection details of Kafka and the HTTP service.

    Without an option: the addresses, without secrets. With one: configuration for
    a client, including secrets; send it to a pipe or a private file.
    """
    from streams.running import curl_config, kafka_properties, service_url

    if curl + java + kcat + link + as_json > 1:
        raise typer.BadParameter("--curl, --java, --kcat, --link and --json: expected one of them.")
    if not link and (of or url):
        raise typer.BadParameter("--for and --url require --link.")
    settings = settings_of(context)
    if link:
        sys.stdout.write(f"{_login_link(settings.serve, of, url or service_url(settings.serve))}\n")
    elif curl:
        sys.stdout.write(curl_config(settings))
    elif java or kcat:
        sys.stdout.write(kafka_properties(settings, java))
    elif as_json:
        options = settings.kafka.client_options()
        if options.pop("ssl_context", None) is not None:
            options["ssl_cafile"] = settings.kafka.ca_file
        print_json(options)
    else:
        kafka, serve = settings.kafka, settings.serve
        login = f"{kafka.protocol}, {kafka.mechanism}, user {kafka.username}" if kafka.sasl else kafka.protocol
        token = "no token" if serve.token is None else "a token"
        lines = [f"Kafka    {kafka.bootstrap}  {login}", f"service  {service_url(serve)}  {token}"]
        lines += [f"settings {context.obj}"] if context.obj else []
        sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


def _login_link(serve: "ServeSettings", name: str | None, url: str) -> str:
    """Return a login link to the service at this address, signed by the token of this name.

    Raises:
        UserError: there is no such token.
    """
    from streams.serve.sessions import LINK_S, signed

    tokens = serve.all_tokens()
    chosen = name or ("token" if "token" in tokens else next(iter(tokens), None))
    if chosen not in tokens:
        known = f"the settings have tokens of: {', '.join(tokens)}" if tokens else "the settings have no token"
        raise UserError(f"cannot create a link: {known}")
    key = signed("link", chosen, tokens[chosen].token, time.time() + LINK_S)
    return f"{url.rstrip('/')}/login?key={quote(key, safe='')}"


site_commands = typer.Typer(no_args_is_help=True)
commands.add_typer(site_commands, name="site")

Why = Annotated[str, opt("Reason, stored with the change.")]
Yes = Annotated[bool, flag("--yes", "Confirm.")]


@site_commands.callback(epilog="Example: queuecast site ctc show")
def site(
    context: typer.Context,
    name: Annotated[str, arg("Site name.", "NAME", autocompletion=known_sites)],
) -> None:
    """Inspect or repair one site.

    A change is sent as one of the site's events, so it survives crashes. `show` lists the operator, the time and the
    reason of each change. It needs write access to the site's events.
    """
    context.obj = (context.obj, name)


def _split(context: typer.Context) -> str:
    config, name = context.obj
    context.obj = config
    return str(name)


def _send(context: typer.Context, kind: "type[AnyOperation]", why: str, **fields: Any) -> None:
    from streams.operate.site import operator, send

    site, settings = _split(context), settings_of(context)
    send(settings, kind(site=site, time=time.time(), by=operator(settings), why=why, **fields))
    notice = f"sent; `queuecast site {shlex.quote(site)} show` prints the result"
    sys.stdout.write(printable(notice) + "\n")


@site_commands.command(epilog="Example: queuecast site ctc show")
def show(
    context: typer.Context,
    as_json: Annotated[bool, flag("--json", "Print the answer as JSON.")] = False,
) -> None:
    """Print the size, jobs, data age, problems and operator changes of the site."""
    import msgspec

    from streams.operate.site import lines, query_site

    name = _split(context)
    found = query_site(settings_of(context), name)
    text = msgspec.json.encode(found).decode() if as_json else "\n".join(map(printable, lines(found)))
    sys.stdout.write(text + "\n")


@site_commands.command("forget-job", epilog="Example: queuecast site ctc forget-job 4711 --why 'its end was lost'")
def forget_job(
    context: typer.Context,
    job: Annotated[str, arg("Job id.", "JOB")],
    attempt: Annotated[int, opt("Attempt number.", min=0)] = 0,
    why: Why = "",
) -> None:
    """Remove a job that no longer exists: it is not scored, and later events do not restore it."""
    from models.records import ForgetJob

    _send(context, ForgetJob, why, job=job, attempt=attempt)


@site_commands.command("set-capacity", epilog="Example: queuecast site ctc set-capacity --cpus 430 --why 'grown'")
def set_capacity(
    context: typer.Context,
    cpus: Annotated[int, opt("CPUs.", min=1, max=1_000_000_000)],
    nodes: Annotated[int | None, opt("Nodes.", min=1, max=1_000_000_000)] = None,
    down_nodes: Annotated[int, opt("Nodes that are down.", min=0)] = 0,
    why: Why = "",
) -> None:
    """Set the size of the site until its next capacity event."""
    from models.records import SetCapacity

    _send(context, SetCapacity, why, cpus=cpus, nodes=nodes, down_nodes=down_nodes)


@site_commands.command("load-prior", epilog="Example: queuecast site ctc load-prior grid.prior --why 'new site'")
def load_prior(
    context: typer.Context,
    file: Annotated[Path, arg("Prior written by `queuecast prior`.", "FILE")],
    why: Why = "",
) -> None:
    """Load forests pre-trained on other sites.

    Until the site has trained its own forests, its predictions come from these. Use it for sites with little history.
    """
    from models.records import LoadPrior
    from streams.offline.pretraining import read_prior

    _send(context, LoadPrior, why, prior=read_prior(file))


@site_commands.command("reset", epilog="Example: queuecast site ctc reset --yes --why 'another machine'")
def reset(context: typer.Context, yes: Yes = False, why: Why = "") -> None:
    """Discard everything learned about the site, for a new machine under the same name; size and live jobs stay."""
    from models.records import ResetSite

    if not yes:
        raise UserError("this discards everything learned about the site; add --yes to confirm")
    _send(context, ResetSite, why)


@site_commands.command(epilog="Example: queuecast site ctc rebuild --yes --why 'engine_failed in the dead letters'")
def rebuild(context: typer.Context, yes: Yes = False, why: Why = "") -> None:
    """Rebuild the state and histories of the site from its events on the topic.

    Everything learned before the oldest event on the topic is lost.
    """
    from models.records import Rebuild

    if not yes:
        raise UserError("this discards everything learned before the oldest event on the topic; add --yes to confirm")
    _send(context, Rebuild, why)
