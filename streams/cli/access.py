"""The command that says how programs enter: access."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli.options import settings_of
from streams.cli.output import print_json
from streams.errors import UserError
from streams.text.terminal import printable

if TYPE_CHECKING:
    from streams.settings import ServeSettings

commands = typer.Typer()


@commands.command(epilog="Example: queuecast access --curl | curl --config - http://127.0.0.1:6067/v1/sites")
def access(
    context: typer.Context,
    curl: Annotated[bool, typer.Option("--curl", help="The service's token, for `curl --config -`.")] = False,
    java: Annotated[bool, typer.Option("--java", help="Properties for Kafka's own tools, with the password.")] = False,
    kcat: Annotated[bool, typer.Option("--kcat", help="The same for kcat and others on librdkafka.")] = False,
    link: Annotated[
        bool, typer.Option("--link", help="A link that lets a browser in: once, within ten minutes, for a week.")
    ] = False,
    of: Annotated[
        str | None, typer.Option("--for", metavar="NAME", help="With --link: by the token of this name.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="With --link: the service's address in the browser. Default: this machine's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Arguments for kafka-python, with the password.")] = False,
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
    """A link to the service at this address that lets in whom the token of this name lets in.

    Raises:
        UserError: there is no such token.
    """
    from streams.serve.access import LINK_S, signed

    tokens = serve.all_tokens()
    chosen = name or ("token" if "token" in tokens else next(iter(tokens), None))
    if chosen not in tokens:
        known = f"the settings have tokens of: {', '.join(tokens)}" if tokens else "the settings have no token"
        raise UserError(f"no link can be made: {known}")
    return f"{url.rstrip('/')}/login?key={signed('link', chosen, tokens[chosen].token, time.time() + LINK_S)}"
