"""The commands of who runs queuecast: topics, schema, worker, serve, doctor, access, and those about one site."""

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer

from streams.cli.options import arg, changed, flag, known_sites, names_in, opt, print_json, settings_of, tell
from streams.errors import UserError, read_as
from streams.text.terminal import printable, show_table, show_wrapped

if TYPE_CHECKING:
    from models.records import AnyOperation
    from streams.settings import ServeSettings

commands = typer.Typer()

RECORDS = names_in("streams.broker.schema", "RECORDS")


@commands.command(epilog="Example: queuecast topics --partitions 24 --replication 3")
def topics(
    context: typer.Context,
    partitions: Annotated[
        int | None, opt("Partitions of those made now; with --rehash of all. Default: settings'.", min=1, max=10_000)
    ] = None,
    replication: Annotated[int | None, opt("Copies of those made now. Default: the settings'.", min=1, max=32)] = None,
    rehash: Annotated[bool, flag("--rehash", "Add partitions, and move the sites to theirs.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the topics as JSON.")] = False,
) -> None:
    """Make the topics that are missing, and print them all.

    With --rehash they get more partitions (--partitions), or all as many as one
    of them has already, and the sites' states move to where their names belong
    then. Stop all workers and sources before.
    """
    from streams.broker.admin import check_topics, create_topics, partitions_of
    from streams.broker.topics import configurations

    settings = settings_of(context)
    if rehash:
        from streams.operate.rehash import rehash as move_sites

        for site, (before, now) in sorted(move_sites(settings, partitions).items()):
            tell(f"{printable(site)}: partition {before} -> {now}")
    settings = changed(settings, "topics", partitions=partitions, replication=replication)
    made = create_topics(settings)
    counts, configured = partitions_of(settings), configurations(settings)
    if partitions is not None and (others := set(counts.values()) - {partitions}):
        numbers = " and ".join(map(str, sorted(others)))
        tell(
            f"the topics have {numbers} partitions and keep them: of {partitions}, most sites would belong to others "
            "than those where they are; --rehash adds partitions and moves the sites with all that they know"
        )
    kept = {name: _retention(configured[name]) for name in made}
    if as_json:
        print_json(
            [{"topic": name, "partitions": counts[name], "kept": kept[name], "made": made[name]} for name in made]
        )
    else:
        cells = [[name, str(counts[name]), kept[name], "made" if new else ""] for name, new in made.items()]
        show_table(["topic", "partitions", "kept", ""], cells)
    check_topics(settings, dict.fromkeys(counts, "describe"))


def _retention(configuration: dict[str, str]) -> str:
    if configuration["cleanup.policy"] == "compact":
        return "latest of each site"
    hours = int(configuration["retention.ms"]) // 3_600_000
    kept = f"{hours // 24} days" if hours % 24 == 0 and hours > 24 else f"{hours} h"
    return f"latest of each shape, {kept}" if "compact" in configuration["cleanup.policy"] else kept


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
    processes: Annotated[int | None, opt("Processes. Default: the settings', else the cores.", min=1, max=256)] = None,
    web_port: Annotated[int | None, opt("Port of /metrics.", min=1, max=65535)] = None,
    log_level: Annotated[Literal["debug", "info", "warning", "error"] | None, opt("What to log.")] = None,
) -> None:
    """Run a worker: events in, predictions and outcomes out, until it is told to stop.

    Its processes share the partitions, and one web port. One that ends is started
    again.
    """
    from streams.worker.run import run_worker

    settings = settings_of(context)
    run_worker(changed(settings, "worker", processes=processes, web_port=web_port, log_level=log_level))


@commands.command(epilog="Example: queuecast --config /etc/queuecast.toml serve --web-port 8080")
def serve(
    context: typer.Context,
    web_host: Annotated[str | None, opt("Where to listen. Default: this machine only.")] = None,
    web_port: Annotated[int | None, opt("The port to listen at.", min=1, max=65535)] = None,
    log_level: Annotated[Literal["debug", "info", "warning", "error"] | None, opt("What to log.")] = None,
) -> None:
    """Serve estimates, questions and rankings over HTTP, with a page, until it is told to stop."""
    from streams.serve.run import run_serve
    from streams.settings import settings_file

    settings = settings_of(context)
    own = changed(settings, "serve", web_host=web_host, web_port=web_port, log_level=log_level)
    run_serve(own, settings_file(context.obj))


@commands.command(epilog="Example: queuecast --config /etc/queuecast.toml doctor")
def doctor(
    context: typer.Context,
    as_json: Annotated[bool, flag("--json", "Print the results as JSON lines.")] = False,
    source: Annotated[list[str] | None, opt("Look at the source with this web port; repeatable.", "HOST:PORT")] = None,
    notify: Annotated[
        list[str] | None, opt("Look at the `notify` with this web port; repeatable.", "HOST:PORT")
    ] = None,
    slurm: Annotated[
        list[str] | None, opt("Compare a site with its slurmctld's metrics; repeatable.", "SITE=HOST:PORT")
    ] = None,
) -> None:
    """Look at Kafka, its topics, the workers and Redis, and say what is wrong and what to do.

    A line a check: ok, warn or fail. The exit code is 1 where any has failed.
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


@commands.command(epilog="Example: queuecast access --curl | curl --config - http://127.0.0.1:6067/v1/sites")
def access(
    context: typer.Context,
    curl: Annotated[bool, flag("--curl", "The service's token, for `curl --config -`.")] = False,
    java: Annotated[bool, flag("--java", "Properties for Kafka's own tools, with the password.")] = False,
    kcat: Annotated[bool, flag("--kcat", "The same for kcat and others on librdkafka.")] = False,
    link: Annotated[
        bool, flag("--link", "A link that lets a browser in: once, within ten minutes, for a week.")
    ] = False,
    of: Annotated[str | None, opt("With --link: by the token of this name.", "--for", "NAME")] = None,
    url: Annotated[
        str | None, opt("With --link: the service's address in the browser. Default: this machine's.")
    ] = None,
    as_json: Annotated[bool, flag("--json", "Arguments for kafka-python, with the password.")] = False,
) -> None:
    """Say how programs of yours enter Kafka and the HTTP service.

    Without an option, where both are, and no secrets. With one, what a program
    reads, secrets and all: for a pipe, or a file that is yours alone.
    """
    from streams.running import curl_config, kafka_properties, service_url

    if curl + java + kcat + link + as_json > 1:
        raise typer.BadParameter("--curl, --java, --kcat, --link and --json: expected one of them.")
    if not link and (of or url):
        raise typer.BadParameter("--for and --url go with --link.")
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
        asked = f"{kafka.protocol}, {kafka.mechanism}, user {kafka.username}" if kafka.sasl else kafka.protocol
        token = "no token" if serve.token is None else "a token"
        lines = [f"Kafka    {kafka.bootstrap}  {asked}", f"service  {service_url(serve)}  {token}"]
        lines += [f"settings {context.obj}"] if context.obj else []
        sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


def _login_link(serve: "ServeSettings", name: str | None, url: str) -> str:
    """A link to the service at this address that lets in whom the token of this name lets in. Raises UserError: there
    is no such token.
    """
    from streams.serve.sessions import LINK_S, signed

    tokens = serve.all_tokens()
    chosen = name or ("token" if "token" in tokens else next(iter(tokens), None))
    if chosen not in tokens:
        known = f"the settings have tokens of: {', '.join(tokens)}" if tokens else "the settings have no token"
        raise UserError(f"no link can be made: {known}")
    key = signed("link", chosen, tokens[chosen].token, time.time() + LINK_S)
    return f"{url.rstrip('/')}/login?key={quote(key, safe='')}"


site_commands = typer.Typer(no_args_is_help=True)
commands.add_typer(site_commands, name="site")

Why = Annotated[str, opt("Why; it is kept with the change.")]
Yes = Annotated[bool, flag("--yes", "Do it.")]


@site_commands.callback(epilog="Example: queuecast site ctc show")
def site(
    context: typer.Context,
    name: Annotated[str, arg("The site's name.", "NAME", autocompletion=known_sites)],
) -> None:
    """Look at one site, or mend it.

    A change goes among the site's events: it survives crashes, and `show` says who made it, when and why.
    Who may write the site's events may make it.
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
    said = f"sent; `queuecast site {shlex.quote(site)} show` says what became of it"
    sys.stdout.write(printable(said) + "\n")


@site_commands.command(epilog="Example: queuecast site ctc show")
def show(
    context: typer.Context,
    as_json: Annotated[bool, flag("--json", "Print the answer as JSON.")] = False,
) -> None:
    """Print the site's size, jobs and age, what is wrong with it, and what operators changed."""
    import msgspec

    from streams.operate.site import ask, lines

    name = _split(context)
    found = ask(settings_of(context), name)
    text = msgspec.json.encode(found).decode() if as_json else "\n".join(map(printable, lines(found)))
    sys.stdout.write(text + "\n")


@site_commands.command("forget-job", epilog="Example: queuecast site ctc forget-job 4711 --why 'its end was lost'")
def forget_job(
    context: typer.Context,
    job: Annotated[str, arg("The job's id.", "JOB")],
    attempt: Annotated[int, opt("Which attempt.", min=0)] = 0,
    why: Why = "",
) -> None:
    """Take a job out that queues or runs no longer: neither scored nor learnt, and no later event revives it."""
    from models.records import ForgetJob

    _send(context, ForgetJob, why, job=job, attempt=attempt)


@site_commands.command("set-capacity", epilog="Example: queuecast site ctc set-capacity --cpus 430 --why 'grown'")
def set_capacity(
    context: typer.Context,
    cpus: Annotated[int, opt("Processors.", min=1, max=1_000_000_000)],
    nodes: Annotated[int | None, opt("Nodes.", min=1, max=1_000_000_000)] = None,
    down_nodes: Annotated[int, opt("Nodes that are down.", min=0)] = 0,
    why: Why = "",
) -> None:
    """Say how large the site is; its own next capacity event counts again."""
    from models.records import SetCapacity

    _send(context, SetCapacity, why, cpus=cpus, nodes=nodes, down_nodes=down_nodes)


@site_commands.command("use-prior", epilog="Example: queuecast site ctc use-prior grid.prior --why 'as new'")
def use_prior(
    context: typer.Context,
    file: Annotated[Path, arg("What `queuecast prior` has written.", "FILE")],
    why: Why = "",
) -> None:
    """Let the site's forests start from what other sites of yours taught.

    Until it has a model of its own again, some jobs later, only that speaks: it is for sites that are young.
    """
    from models.records import UsePrior
    from streams.offline.prior import read_prior

    _send(context, UsePrior, why, prior=read_prior(file))


@site_commands.command("begin-anew", epilog="Example: queuecast site ctc begin-anew --yes --why 'another machine'")
def begin_anew(context: typer.Context, yes: Yes = False, why: Why = "") -> None:
    """Forget all that was learnt of the site, where another machine has its name; its size and live jobs stay."""
    from models.records import BeginAnew

    if not yes:
        raise UserError("all that it has learnt will be lost; say --yes to do it")
    _send(context, BeginAnew, why)


@site_commands.command(epilog="Example: queuecast site ctc rebuild --yes --why 'engine_failed in the dead letters'")
def rebuild(context: typer.Context, yes: Yes = False, why: Why = "") -> None:
    """Make the site's state and histories again from its events.

    What it learnt before the oldest event that the topic still has is lost. Its worker reads some 2500 events a
    second meanwhile, and processes no others.
    """
    from models.records import Rebuild

    if not yes:
        raise UserError("what it learnt before its oldest event on the topic will be lost; say --yes to do it")
    _send(context, Rebuild, why)
