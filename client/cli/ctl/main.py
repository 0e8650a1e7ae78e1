"""``ldctl``: asks about logs and shards and acts on them."""

from __future__ import annotations

import argparse
import sys

from client.cli.ctl.logs import VERBS as LOG_VERBS
from client.cli.ctl.shards import VERBS as SHARD_VERBS
from client.cli.ctl.verb import PROGRAM, Verb
from client.cli.program import EXIT_STATUSES, parse_timeout, run_program

VERBS: tuple[Verb, ...] = (*LOG_VERBS, *SHARD_VERBS)


def parser() -> argparse.ArgumentParser:
    """The verbs and their options."""
    options = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Ask about logs and shards and act on them. Results go to standard output, the rest to standard error.",
        epilog=EXIT_STATUSES,
    )
    options.add_argument("-c", "--config", required=True, metavar="FILE", help="the cluster file")
    options.add_argument("--json", action="store_true", help="print results as JSON, one object a line")
    options.add_argument(
        "--timeout",
        type=parse_timeout,
        metavar="T",
        help="give up when the cluster does not answer for this long, like 10s or 2min (default: 10s)",
    )
    verbs = options.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        own = verbs.add_parser(verb.name, help=verb.help, description=verb.description, epilog=EXIT_STATUSES)
        verb.options(own)
        own.set_defaults(run=verb.run)
    return options


async def run(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    from client.client import Client

    async with Client(arguments.config, name=PROGRAM) as client:
        status: int = await arguments.run(client, arguments)
        return status


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    if arguments.verb == "find-key":
        try:
            arguments.key = bytes.fromhex(arguments.key) if arguments.hex else arguments.key.encode()
        except ValueError:
            options.error(f"argument KEY: {arguments.key!r} is not written in hexadecimal digits")
    return run_program(PROGRAM, lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
