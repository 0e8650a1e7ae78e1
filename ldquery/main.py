"""``ldquery``: SQL over the live state of a cluster."""

from __future__ import annotations

import argparse
import sys

from client.cli.options import ProgramParser, cluster_option, program_options
from client.cli.program import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNANSWERED,
    EXIT_USAGE,
    OutputError,
    discard_output,
    exit_status,
    parse_timeout,
    put,
    say,
    standard_output,
    token_file_option,
)
from ldquery.formats import FOR_PEOPLE, FORMATS, LSN_CHOICES
from ldquery.session import DEADLINE, ROWS_PER_NODE_MAX, LDQuery, QueryResult
from logdevice_py.core.status import LogDeviceError, Status

NAME = "ldquery"
_EPILOG = (
    "Exit status: 0 done; 1 failed; 2 wrong use, or a statement that is refused; 4 some nodes did not answer: their rows are missing; "
    "130 interrupted. docs/tables.md lists the tables."
)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = ProgramParser(prog=NAME, description=__doc__, epilog=_EPILOG)
    cluster_option(options)
    program_options(options)
    token_file_option(options)
    options.add_argument(
        "sql",
        nargs="?",
        metavar="SQL",
        help="one SELECT; without it, a terminal is asked for statements, and of a pipe or file everything is one",
    )
    options.add_argument("--format", choices=list(FORMATS), default="table", help="how rows are printed")
    options.add_argument(
        "--lsn", choices=LSN_CHOICES, help="LSNs like e3n17, or as integers (default: text in tables and lines)"
    )
    options.add_argument(
        "--timeout",
        type=parse_timeout,
        default=DEADLINE,
        metavar="T",
        help=f"how long nodes get to answer a statement (default {DEADLINE:g}s)",
    )
    options.add_argument(
        "--full",
        action="store_true",
        help=f"fetch tables of more than {ROWS_PER_NODE_MAX} rows a node",
    )
    options.add_argument(
        "--counts", action="store_true", help="say on standard error how many requests and rows the answer took"
    )
    return options


def show(result: QueryResult, form: str, lsn: str | None, *, counts: bool = False) -> int:
    """Print a result, then what is missing; the exit status."""
    lsn_text = form in FOR_PEOPLE if lsn is None else lsn == "text"
    put(standard_output(), FORMATS[form](result, lsn_text).encode())
    for failure in result.failures:
        say(NAME, f"rows are missing: {failure}", alarm=sys.stderr.isatty())
    if counts:
        say(NAME, f"{result.requests} requests, {result.rows_fetched} rows fetched, {result.seconds:.3f} s")
    return EXIT_UNANSWERED if result.failures else EXIT_OK


def run(arguments: argparse.Namespace) -> int:
    """The program, after its options."""
    with LDQuery(
        arguments.config, deadline=arguments.timeout, full=arguments.full, token_file=arguments.token_file
    ) as session:
        sql = arguments.sql
        if sql is None and sys.stdin.isatty():
            from ldquery.shell import QueryShell

            return QueryShell(session, arguments.format, arguments.lsn).run()
        result = session.query(sys.stdin.read() if sql is None else sql)
        return show(result, arguments.format, arguments.lsn, counts=arguments.counts)


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    arguments = parser().parse_args(argv)
    try:
        return run(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return EXIT_OK
    except OutputError as error:
        discard_output()
        say(NAME, str(error))
        return EXIT_FAILED
    except LogDeviceError as error:
        say(NAME, str(error))
        return EXIT_USAGE if error.status is Status.TOOBIG else exit_status(error)


if __name__ == "__main__":
    sys.exit(main())
