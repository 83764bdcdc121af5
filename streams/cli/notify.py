"""The command that tells of jobs while they queue: notify."""

import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli.look import Sites
from streams.cli.options import changed, names, settings_of
from streams.cli.output import print_json
from streams.errors import read_as
from streams.text.terminal import minute, show_line

if TYPE_CHECKING:
    from models.records import Notice

commands = typer.Typer()


@commands.command(epilog="Example: queuecast notify --user ada --webhook https://chat.example.org/hooks/queuecast")
def notify(
    context: typer.Context,
    site: Sites = None,
    user: Annotated[list[str] | None, typer.Option(help="This user's jobs only; repeatable.")] = None,
    job: Annotated[list[str] | None, typer.Option(help="This job only; repeatable.")] = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long before its start a job is told. Default: 15m."),
    ] = None,
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="Where notices go. Default: as set.")] = None,
    web_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of /metrics. Default: as set, else none.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the notices as JSON lines.")] = False,
) -> None:
    """Tell when a queued job is about to start, has slipped, or comes sooner, until it is told to stop.

    Notices go to the topic `notices`, to a webhook where there is one, and to
    stdout, a line each. What was told before a restart is not told again; one
    that was on its way comes twice, with the same id. The secret that signs
    what goes to the webhook is in the settings (notify.secret).
    """
    import asyncio

    from streams.notify.run import configure_logs, run_notify
    from streams.notify.watching import NoticeFilter
    from streams.text.durations import seconds_of

    if webhook is not None and not webhook.startswith(("http://", "https://")):
        raise typer.BadParameter("--webhook: expected an address that begins with http:// or https://.")
    chosen = (names("--site", site or ()), names("--user", user or ()), names("--job", job or ()))
    wanted = NoticeFilter(*map(frozenset, chosen))
    before_s = None if before is None else read_as("--before", seconds_of, before)
    settings = settings_of(context)
    settings = changed(settings, "notify", before_seconds=before_s, webhook=webhook, web_port=web_port)
    configure_logs(settings)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def tell(notice: "Notice") -> None:
        if as_json:
            print_json(notice)
        else:
            show_line(f"{minute(notice.at)}  {notice.kind.replace('_', ' ')}  {notice.text}")

    asyncio.run(run_notify(settings, wanted, tell))
