"""The command that says how programs enter: access."""

import sys
from typing import Annotated

import typer

from streams.cli.options import settings_of
from streams.cli.output import print_json
from streams.text.terminal import printable

commands = typer.Typer()


@commands.command(epilog="Example: queuecast access --curl | curl --config - http://127.0.0.1:6067/v1/sites")
def access(
    context: typer.Context,
    curl: Annotated[bool, typer.Option("--curl", help="The service's token, for `curl --config -`.")] = False,
    java: Annotated[bool, typer.Option("--java", help="Properties for Kafka's own tools, with the password.")] = False,
    kcat: Annotated[bool, typer.Option("--kcat", help="The same for kcat and others on librdkafka.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Arguments for kafka-python, with the password.")] = False,
) -> None:
    """Say how programs of yours enter Kafka and the HTTP service.

    Without an option, where both are, and no secrets. With one, what a program
    reads, secrets and all: for a pipe, or a file that is yours alone.
    """
    from streams.running import curl_config, kafka_properties, service_url

    if curl + java + kcat + as_json > 1:
        raise typer.BadParameter("--curl, --java, --kcat and --json: expected one of them.")
    settings = settings_of(context)
    if curl:
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
