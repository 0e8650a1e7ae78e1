"""``ldctl``: asks about nodes, logs and shards and acts on them."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from client.cli.options import ProgramParser, cluster_option, program_options
from client.cli.program import EXIT_STATUSES, parse_timeout, run_program, token_file_option
from ldquery.ctl.configuration import VERBS as CONFIGURATION_VERBS
from ldquery.ctl.doctor import VERBS as DOCTOR_VERBS
from ldquery.ctl.epoch_store import VERBS as EPOCH_STORE_VERBS
from ldquery.ctl.groups import VERBS as GROUP_VERBS
from ldquery.ctl.identity import VERBS as IDENTITY_VERBS
from ldquery.ctl.impact import VERBS as IMPACT_VERBS
from ldquery.ctl.locations import VERBS as LOCATION_VERBS
from ldquery.ctl.log_table import VERBS as TABLE_VERBS
from ldquery.ctl.log_tree import VERBS as TREE_VERBS
from ldquery.ctl.log_tree_copy import VERBS as TREE_COPY_VERBS
from ldquery.ctl.logs import VERBS as LOG_VERBS
from ldquery.ctl.maintenance import VERBS as MAINTENANCE_VERBS
from ldquery.ctl.nodes import VERBS as NODE_VERBS
from ldquery.ctl.placement import VERBS as PLACEMENT_VERBS
from ldquery.ctl.regions import VERBS as REGION_VERBS
from ldquery.ctl.segments import VERBS as SEGMENT_VERBS
from ldquery.ctl.shards import VERBS as SHARD_VERBS
from ldquery.ctl.verb import PROGRAM, Verb

VERBS: tuple[Verb, ...] = (
    *NODE_VERBS,
    *CONFIGURATION_VERBS,
    *REGION_VERBS,
    *DOCTOR_VERBS,
    *LOCATION_VERBS,
    *LOG_VERBS,
    *TABLE_VERBS,
    *PLACEMENT_VERBS,
    *IMPACT_VERBS,
    *MAINTENANCE_VERBS,
    *SEGMENT_VERBS,
    *GROUP_VERBS,
    *TREE_VERBS,
    *TREE_COPY_VERBS,
    *SHARD_VERBS,
    *IDENTITY_VERBS,
    *EPOCH_STORE_VERBS,
)

FAMILIES = {
    "config": "the configuration that the epoch store keeps",
    "nodes": "nodes of the stored configuration",
    "region": "the nodes of a region, all at once",
    "logs": "all logs, and their groups in the cluster file and the log tree",
    "settings": "settings of nodes that run",
    "identity": "certificates and tokens",
    "maintenance": "nodes and shards that are taken away when it is safe",
    "epoch-store": "copies of the epoch store",
}
"""Verbs of two words, by the first."""


def _shared_options(options: argparse.ArgumentParser, *, default: Any) -> None:
    """Options that may stand before the verb and behind it. Behind it nothing is their default, so that what stands before holds."""
    cluster_option(options, default=default)
    token_file_option(options, default=default)
    options.add_argument(
        "--json",
        action="store_true",
        default=default or False,
        help="print results as JSON, one object a line",
    )
    options.add_argument(
        "--timeout",
        type=parse_timeout,
        metavar="T",
        default=default,
        help="fail when the cluster does not answer for this long, like 10s or 2min (default: 10s)",
    )


def parser() -> argparse.ArgumentParser:
    """The verbs and their options."""
    options = ProgramParser(
        prog=PROGRAM,
        description="Ask about nodes, logs and shards and act on them. Results go to standard output, the rest to standard error.",
        epilog=EXIT_STATUSES,
    )
    _shared_options(options, default=None)
    program_options(options)
    verbs = options.add_subparsers(dest="verb", metavar="VERB", required=True)
    families: dict[str, Any] = {}
    for verb in VERBS:
        first, _, second = verb.name.partition(" ")
        if second and first not in families:
            words = ", ".join(other.name.partition(" ")[2] for other in VERBS if other.name.startswith(f"{first} "))
            family = verbs.add_parser(first, help=f"{words}: {FAMILIES[first]}", description=FAMILIES[first] + ".")
            families[first] = family.add_subparsers(dest="word", metavar="WORD", required=True)
        place, name = (families[first], second) if second else (verbs, first)
        own = place.add_parser(name, help=verb.help, description=verb.description, epilog=EXIT_STATUSES)
        verb.options(own)
        _shared_options(own, default=argparse.SUPPRESS)
        own.set_defaults(run=verb.run, needs_client=verb.needs_client)
    return options


async def run(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    if not arguments.needs_client:
        done: int = await arguments.run(None, arguments)
        return done
    from client.client import Client

    async with Client(arguments.config, name=PROGRAM) as client:
        await client.newest_config()  # the file may be older than what nodes use
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
