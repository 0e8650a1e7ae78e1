"""``ldquery``: SQL over the live state of a cluster."""

from __future__ import annotations

import argparse
import sys

from client.cli.options import ProgramParser, cluster_option, complete_files, hint_at, program_options
from client.cli.program import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    OutputError,
    discard_output,
    exit_status,
    parse_timeout,
    say,
    token_file_option,
)
from client.identity import ClientIdentity
from ldquery.formats import FORMATS, LSN_CHOICES
from ldquery.interpreter import NAME, Interpreter, Presentation, ShellError
from ldquery.literals import parse_parameter
from ldquery.session import DEADLINE, ROWS_PER_NODE_MAX, LDQuery
from logdevice_py.core.status import LogDeviceError, Status

_EPILOG = (
    "Exit status: 0 done; 1 failed; 2 wrong use, or a statement that is refused; 4 some nodes did not answer: their rows are missing; "
    "130 interrupted. docs/tables.md lists the tables."
)


def _parameter(text: str) -> tuple[str, int | float | str]:
    try:
        return parse_parameter(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = ProgramParser(prog=NAME, description=__doc__, epilog=_EPILOG)
    cluster_option(options)
    program_options(options)
    token_file_option(options)
    complete_files(
        options.add_argument(
            "--identity",
            metavar="FILE",
            help="a certificate and its key: who asks, where the cluster has TLS (default: $LOGDEVICE_IDENTITY, else the file beside the cluster file with "
            "its name and the suffix .pem)",
        )
    )
    options.add_argument(
        "sql",
        nargs="?",
        metavar="SQL",
        help="SELECT, or several with ; between them; without it a terminal, pipe or file is asked, which may also hold the shell's commands",
    )
    hint_at(options, "-f", "--file", text=f"statements of a file come from standard input: {NAME} < FILE")
    options.add_argument("--format", choices=list(FORMATS), default="table", help="how rows are printed")
    options.add_argument(
        "--lsn", choices=LSN_CHOICES, help="LSNs like e3n17, or as integers (default: text where people read)"
    )
    options.add_argument(
        "-p",
        "--param",
        action="append",
        default=[],
        type=_parameter,
        metavar="NAME=VALUE",
        help="what :NAME stands for in statements, like log=7; may be given several times",
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


def run(arguments: argparse.Namespace) -> int:
    """The program, after its options."""
    identity = None if arguments.identity is None else ClientIdentity(certificate=arguments.identity)
    with LDQuery(
        arguments.config,
        deadline=arguments.timeout,
        full=arguments.full,
        token_file=arguments.token_file,
        identity=identity,
    ) as session:
        at_terminal = arguments.sql is None and sys.stdin.isatty()
        presentation = Presentation(arguments.format, arguments.lsn, arguments.counts)
        interpreter = Interpreter(session, presentation, dict(arguments.param), at_terminal)
        if at_terminal:
            from ldquery.shell import QueryShell

            return QueryShell(interpreter).run()
        return interpreter.run(sys.stdin.read() if arguments.sql is None else arguments.sql)


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
    except ShellError as error:
        say(NAME, str(error))
        return EXIT_USAGE
    except LogDeviceError as error:
        say(NAME, str(error))
        return EXIT_USAGE if error.status is Status.TOOBIG else exit_status(error)


if __name__ == "__main__":
    sys.exit(main())
