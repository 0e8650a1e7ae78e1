"""``ldwrite``: appends the lines of standard input to a log."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable

from client.cli.encryption_keys import keys_of, keys_option
from client.cli.input_lines import InputLines, standard_input
from client.cli.line_writer import LineGuards, LineWriter, WriteAccount
from client.cli.options import ProgramParser
from client.cli.positions import parse_guard_number, parse_record_position
from client.cli.program import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    Attendant,
    common_options,
    compact_json,
    put,
    run_program,
    say,
    standard_output,
)
from client.cli.record_lines import check_record_options, parse_of, record_options
from logdevice_py.core.status import LogDeviceError

_SHOWN_EVERY = 0.25


class ProgressLine:
    """What was done so far, on a terminal, four times a second."""

    def __init__(self, account: WriteAccount, *, shown: bool) -> None:
        self._account = account
        self._shown = shown
        self._drawn = False

    async def show(self) -> None:
        """Draw until cancelled."""
        while self._shown:
            await asyncio.sleep(_SHOWN_EVERY)
            done = self._account
            text = f"{done.acknowledged:,} of {done.records:,} records acknowledged, {done.rate:,.0f}/s"
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = True

    def clear(self) -> None:
        """Leave no half line behind."""
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = False


async def run(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    from client.client import Client

    if arguments.json:
        standard_output()  # refuses before anything is written
    account = WriteAccount()
    interrupted = asyncio.Event()
    progress = ProgressLine(account, shown=sys.stderr.isatty() and not arguments.quiet)

    def note(program: str, text: str) -> None:
        progress.clear()
        say(program, text)

    async with Client(arguments.config, name="ldwrite") as client:
        attendant = Attendant("ldwrite", client, timeout=arguments.timeout, say=note)
        log = await attendant.attend(attendant.find(client.known_log(arguments.log, arguments.timeout)))
        descriptor = standard_input()
        options = {} if arguments.timeout is None else {"timeout_us": round(arguments.timeout * 1e6)}
        writer = client.buffered_writer(compression=arguments.compression, encryption=keys_of(arguments), **options)
        lines = LineWriter(
            client,
            log,
            writer,
            account,
            parse=parse_of(arguments),
            synced=arguments.synced,
            guards=guards_of(arguments),
        )

        def interrupt() -> None:
            interrupted.set()
            lines.interrupt()

        _on_interruption(interrupt)
        attendant = Attendant("ldwrite", client, log, say=note)
        attendant.progress = lambda: account.acknowledged

        def waits_for() -> str | None:
            if account.records == account.acknowledged:
                return None
            what = f"{account.records - account.acknowledged:,} of {account.records:,} records to be acknowledged"
            why = writer.waiting_for(log)
            return what if why is None else f"{what}: for {why}"

        attendant.waits_for = waits_for
        shower = asyncio.create_task(progress.show())
        try:
            await attendant.attend(lines.run(InputLines(descriptor, b"\0" if arguments.null else b"\n")))
        except LogDeviceError as error:
            account.fail(error)
        finally:
            shower.cancel()
            await asyncio.gather(shower, return_exceptions=True)
            progress.clear()
    return report(account, arguments, interrupted=interrupted.is_set())


def _on_interruption(interrupt: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, interrupt)


def report(account: WriteAccount, arguments: argparse.Namespace, *, interrupted: bool) -> int:
    """Say what came of it; the exit status."""
    if account.records and not arguments.json and (not arguments.quiet or account.error):
        place = f", {account.first} to {account.last}" if account.first else ""
        say(
            "ldwrite",
            f"{account.acknowledged} of {account.records} records acknowledged in {account.seconds:.3f} s "
            f"({account.rate:,.0f}/s){place}",
        )
        if arguments.synced and account.unsynced:
            say("ldwrite", f"{account.unsynced} of those acknowledged may not be synced on all their shards")
        if account.in_doubt:
            say("ldwrite", f"{account.in_doubt} of the others may be stored although nobody acknowledged them")
    if account.error:
        say("ldwrite", account.error)
    if arguments.json:
        put(standard_output(), compact_json(account.summary()))
    if interrupted:
        return EXIT_INTERRUPTED
    if account.error:
        return account.status
    return EXIT_OK if account.acknowledged == account.records else EXIT_FAILED


def guards_of(arguments: argparse.Namespace) -> LineGuards:
    """What the lines ask of the end of the log."""
    return LineGuards(arguments.txid, arguments.expect, arguments.fence, arguments.atomic)


def check_guard_options(options: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuse what does not go together."""
    if arguments.expect is not None and not arguments.atomic:
        options.error(
            "--expect goes with --atomic: other lines may be spread over entries, and others come between them"
        )
    if arguments.txid is not None and (arguments.key_delimiter is not None or arguments.format == "json"):
        options.error("--txid goes with whole lines: a transaction id is the key of its record")


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = ProgramParser(
        prog="ldwrite",
        description="Append each line of standard input, without its newline, to a log. Lines keep their order and none is stored twice. "
        "Exits with 0 only when every line was acknowledged; stops at the first that fails. "
        "SIGINT and SIGTERM end it in order; a second one at once.",
    )
    common_options(options, timeout="default: 2min, or as [settings.client] says")
    record_options(options, raw="each line is a record", null="records end with")
    options.add_argument(
        "--compression", choices=("none", "lz4", "zstd"), default="none", help="of batches (default: none)"
    )
    keys_option(options, "encrypt batches by the first key in the file")
    options.add_argument(
        "--synced",
        action="store_true",
        help="have lines acknowledged only when all their copies are synced to disk, also where the log is async",
    )
    options.add_argument(
        "--atomic",
        action="store_true",
        help="all lines are one batch, of which readers see all or nothing; it must fit into one entry (max_payload_bytes of the log)",
    )
    options.add_argument(
        "--expect",
        type=parse_record_position,
        metavar="POSITION",
        help="with --atomic: only if this is the last record of the log, like e3n17+2 (as --json prints it); start: if it has none",
    )
    options.add_argument(
        "--txid",
        type=parse_guard_number,
        metavar="N",
        help="transaction id of the first line, N + 1 of the next; refused below the log's greatest",
    )
    options.add_argument(
        "--fence",
        type=parse_guard_number,
        metavar="TOKEN",
        help="the own fence token: refused when the log has a higher one",
    )
    options.add_argument(
        "--json", action="store_true", help="print one JSON object about the outcome on standard output"
    )
    options.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary, errors only")
    return options


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    check_record_options(options, arguments)
    check_guard_options(options, arguments)
    return run_program("ldwrite", lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
