"""``ldstream``: creates streams, writes, reads and truncates them."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from client.cli.encryption_keys import keys_of, keys_option
from client.cli.input_lines import InputLines, standard_input
from client.cli.line_writer import LineWriter, WriteAccount
from client.cli.options import ProgramParser, cluster_option, program_options
from client.cli.output import Printer, format_timestamp
from client.cli.positions import Anchor, parse_position
from client.cli.program import (
    EXIT_INTERRUPTED,
    EXIT_STATUSES,
    Attendant,
    compact_json,
    make_safe,
    parse_timeout,
    put,
    run_program,
    say,
    standard_output,
)
from client.cli.record_lines import LineError, Parse, Records, keyed_lines, parse_delimiter, whole_lines
from client.cli.tail import last_of_two, last_records, parse_count
from client.encryption import KEYS_VARIABLE, EncryptionKeys
from client.guards import Position
from client.read.batch import RecordBatch
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import utc_datetime
from streams import cli_subscriptions
from streams.attributes import Roll, StreamAttributes, StreamWriters, TransactionIds
from streams.records import StreamBatch, StreamRecord, TxId, within
from streams.stream_subscriptions import Subscription
from streams.subscription_reader import SubscriptionReader
from streams.upkeep.verbs import UPKEEP_VERBS, unattended, upkeep_info
from streams.writers import ExclusiveWriter, SharedWriter

if TYPE_CHECKING:
    from client.client import Client
    from client.receipt import Receipts
    from logdevice_py.core.ids import LogId
    from streams.namespace import Namespace, StreamInfo
    from streams.reading import StreamReader
    from streams.stream import Stream

PROGRAM: Final = "ldstream"
_AT_ONCE: Final = 10_000
_DIGITS_MAX: Final = 40
"""Of a transaction id, leading zeros included."""
_PLACES: Final = "oldest, end, a position like e3n17+2, txid:7, a time with its zone like 2026-01-31T12:00:00Z, or -1h for an hour ago"
Place = Position | TxId | Any
Run = Callable[["Namespace", argparse.Namespace], Awaitable[int]]


# What people write


def parse_place(text: str) -> Place:
    """A place in a stream, or one of the words ``oldest`` and ``end``; for `argparse`."""
    word = text.strip().lower()
    if word in ("oldest", "end"):
        return word
    if word.startswith("txid:"):
        if not word[5:].isdecimal():
            raise argparse.ArgumentTypeError(f"{text!r}: a transaction id is a number")
        return TxId(int(word[5:]))
    try:
        if word[:1] == "e":
            return Position.parse(word)
        place = parse_position(text)
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is no place in a stream: write {_PLACES}") from None
    if place.anchor is not Anchor.TIME:
        raise argparse.ArgumentTypeError(f"{text!r} is no place in a stream: write {_PLACES}")
    return utc_datetime(place.value)


def parse_position_in_stream(text: str) -> Position:
    """``e3n17+2``; for `argparse`."""
    try:
        return Position.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def _resolved(stream: Stream, place: Place) -> Place:
    if place == "oldest":
        return stream.oldest
    return await stream.end() if place == "end" else place


def _name(arguments: argparse.Namespace, given: str) -> str:
    """A stream's name: as it is, or with the namespace's path before it."""
    prefix = f"{arguments.namespace.rstrip('/')}/"
    return given.removeprefix(prefix)


async def _opened(namespace: Namespace, arguments: argparse.Namespace) -> Stream:
    return await namespace.open(_name(arguments, arguments.stream), timeout=arguments.timeout)


# Streams


async def _create(namespace: Namespace, arguments: argparse.Namespace) -> int:
    roll = None
    if arguments.roll_every is not None or arguments.roll_bytes is not None:
        roll = Roll(arguments.roll_every, arguments.roll_bytes)
    stream = await namespace.create(
        _name(arguments, arguments.stream),
        txid=arguments.txid,
        writers=arguments.writers,
        ttl=arguments.ttl,
        truncated_retention=arguments.truncated_retention,
        roll=roll,
        cold=arguments.cold,
        cold_ttl=arguments.cold_ttl,
        log_attributes=dict(arguments.set or ()),
        timeout=arguments.timeout,
    )
    say(PROGRAM, f"{stream.name}: created, log {stream.log}")
    if text := unattended(namespace, stream, datetime.now(UTC)):
        say(PROGRAM, text)
    return 0


async def _list(namespace: Namespace, arguments: argparse.Namespace) -> int:
    streams = await namespace.list(_name(arguments, arguments.directory).strip("/"), timeout=arguments.timeout)
    if arguments.json:
        for info in streams:
            put(standard_output(), compact_json(_info_as_json(info)))
        return 0
    rows = [("STREAM", "STATE", "WRITERS", "TXID", "LOG")]
    for info in streams:
        attributes = info.attributes
        rows.append((info.name, info.state, attributes.writers.value, attributes.txid.value, str(info.log)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        put(standard_output(), line.rstrip().encode() + b"\n")
    return 0


def _info_as_json(info: StreamInfo) -> dict[str, Any]:
    return {
        "stream": info.name,
        "number": info.number,
        "state": info.state,
        "version": str(info.version),
        "log": info.log,
        **info.attributes.shown(),
    }


async def _delete(namespace: Namespace, arguments: argparse.Namespace) -> int:
    name = _name(arguments, arguments.stream)
    if not arguments.yes:
        say(PROGRAM, f"{name} and all its records would be gone for good. Give --yes if that is meant.")
        return 2
    await namespace.delete(name, timeout=arguments.timeout)
    say(PROGRAM, f"{name}: deleted")
    return 0


async def _rename(namespace: Namespace, arguments: argparse.Namespace) -> int:
    name, to = _name(arguments, arguments.stream), _name(arguments, arguments.to)
    await namespace.rename(name, to, timeout=arguments.timeout)
    say(PROGRAM, f"{name}: is {to} now")
    return 0


async def _info(namespace: Namespace, arguments: argparse.Namespace) -> int:
    stream = await _opened(namespace, arguments)
    timeout = arguments.timeout
    first, last = await stream.first(timeout=timeout), await stream.last(timeout=timeout)
    (info,) = [each for each in await namespace.list(timeout=timeout) if each.number == stream.number]
    found = _info_as_json(info) | {
        "truncated_before": str(stream.min_active) if stream.min_active.lsn else None,
        "first": None if first is None else str(first.position),
        "last": None if last is None else str(last.position),
        "last_txid": None if last is None else last.txid,
        "last_confirmed": str(await stream.last_confirmed(timeout=timeout)),
    }
    found |= upkeep_info(namespace, stream)
    if stream.attributes.writers is StreamWriters.EXCLUSIVE:
        owner = await stream.owner(timeout=timeout)
        found["owner"] = None if owner is None else owner.owner
        found["token"] = None if owner is None else owner.token
    if arguments.json:
        put(standard_output(), compact_json(found))
        return 0
    width = max(map(len, found))
    for key, value in found.items():
        put(standard_output(), f"{key.ljust(width)}  {'-' if value is None else value}\n".encode())
    if text := unattended(namespace, stream, datetime.now(UTC)):
        say(PROGRAM, text)
    return 0


async def _truncate(namespace: Namespace, arguments: argparse.Namespace) -> int:
    stream = await _opened(namespace, arguments)
    await stream.truncate(arguments.position, timeout=arguments.timeout)
    say(PROGRAM, f"{stream.name}: begins at {stream.min_active}")
    return 0


async def _untruncate(namespace: Namespace, arguments: argparse.Namespace) -> int:
    stream = await _opened(namespace, arguments)
    await stream.untruncate(timeout=arguments.timeout)
    say(PROGRAM, f"{stream.name}: begins with its first record")
    return 0


async def _end(namespace: Namespace, arguments: argparse.Namespace) -> int:
    stream = await _opened(namespace, arguments)
    if not arguments.yes:
        say(PROGRAM, f"nothing could ever be written to {stream.name} again. Give --yes if that is meant.")
        return 2
    await stream.mark_end(timeout=arguments.timeout)
    say(PROGRAM, f"{stream.name}: ended")
    return 0


# Writing


def numbered_lines(delimiter: bytes) -> Parse:
    """Each line is a transaction id, the delimiter and a payload."""
    keyed = keyed_lines(delimiter)

    def parse(lines: list[bytes]) -> Records:
        payloads, keys = keyed(lines)
        before = 0
        for index, key in enumerate(keys or ()):
            if key is None or not key.isdigit():
                raise LineError(index, "it does not begin with a transaction id and the delimiter of --txids")
            number = int(key) if len(key) <= _DIGITS_MAX else NUMBER_MAX + 1
            if not 1 <= number <= NUMBER_MAX:
                raise LineError(index, f"its transaction id is {make_safe(key[:_DIGITS_MAX])}; ids are 1 to 2^63 - 1")
            if number < before:
                raise LineError(index, f"its transaction id {number} is below {before}, that of the line before")
            before = number
        return payloads, keys

    return parse


class _LineSink:
    """A stream's writer as lines are written: their keys are the transaction ids."""

    def __init__(self, writer: SharedWriter | ExclusiveWriter) -> None:
        self._writer = writer

    def append_many(
        self, log: int | str, payloads: list[bytes], *, keys: list[bytes | None] | None, synced: bool
    ) -> Awaitable[Receipts]:
        """Write lines."""
        if keys is None:
            return self._writer.write_many(payloads)
        return self._writer.write_many(payloads, txids=[int(key or b"0") for key in keys])

    async def ready(self) -> None:
        """Wait until lines would be taken."""
        await self._writer.ready()

    def abandon(self) -> None:
        """What is not acknowledged fails."""
        self._writer.abandon()


async def _write(namespace: Namespace, arguments: argparse.Namespace) -> int:
    stream = await _opened(namespace, arguments)
    if (stream.attributes.txid is TransactionIds.WRITER) is (arguments.txids is None):
        kind = stream.attributes.txid.value
        needs = "give --txids D, and begin lines with them" if arguments.txids is None else "--txids has no use"
        raise LogDeviceError(Status.INVALID_PARAM, f"stream {stream.name} has txid={kind}: {needs}")
    if stream.attributes.writers is StreamWriters.EXCLUSIVE:
        if arguments.owner is None:
            text = f"stream {stream.name} has one owner at a time: give --owner NAME"
            raise LogDeviceError(Status.INVALID_PARAM, text)
        writer: SharedWriter | ExclusiveWriter = stream.exclusive_writer(
            owner=arguments.owner, wait=arguments.wait, encryption=keys_of(arguments)
        )
    else:
        writer = stream.writer(encryption=keys_of(arguments))
    status = 0
    try:
        async with writer:
            if isinstance(writer, ExclusiveWriter):
                say(PROGRAM, f"{stream.name} is owned, token {writer.token}")
            status = await _write_lines(namespace.client, stream, writer, arguments)
    except LogDeviceError:
        if not status:  # else it was said
            raise
    return status


async def _write_lines(
    client: Client, stream: Stream, writer: SharedWriter | ExclusiveWriter, arguments: argparse.Namespace
) -> int:
    account = WriteAccount()
    parse = whole_lines if arguments.txids is None else numbered_lines(arguments.txids)
    lines = LineWriter(client, stream.log, _LineSink(writer), account, parse=parse)
    interrupted = asyncio.Event()

    def interrupt() -> None:
        interrupted.set()
        lines.interrupt()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    attendant = Attendant(PROGRAM, client, stream.log, timeout=arguments.timeout)
    attendant.progress = lambda: account.acknowledged
    attendant.waits_for = lambda: (
        None
        if account.records == account.acknowledged
        else f"{account.records - account.acknowledged:,} of {account.records:,} records to be acknowledged"
    )
    try:
        await attendant.attend(lines.run(InputLines(standard_input())))
    except LogDeviceError as error:
        account.fail(error)
    place = f", {account.first} to {account.last}" if account.first else ""
    say(PROGRAM, f"{account.acknowledged} of {account.records} records acknowledged{place}")
    if account.in_doubt:
        say(PROGRAM, f"{account.in_doubt} of the others may be stored although nobody acknowledged them")
    if account.error:
        say(PROGRAM, account.error)
    if interrupted.is_set():
        return EXIT_INTERRUPTED
    return account.status


# Reading


class _RecordPrinter:
    """Records on standard output, losses on standard error."""

    def __init__(self, arguments: argparse.Namespace, log: LogId) -> None:
        self._json = arguments.format == "json"
        self._txids: bytes | None = arguments.txids
        self._log = log
        self._is_terminal = sys.stdout.isatty()
        self._printer = Printer(PROGRAM, as_json=self._json)
        self.records = 0

    @property
    def status(self) -> int:
        """The exit status of what was printed so far."""
        return self._printer.status

    def print(self, batch: StreamBatch) -> None:
        """All of a batch."""
        self.records += len(batch)
        lines = [line for record in batch if (line := self._line(record)) is not None]
        if self._is_terminal:
            lines = [make_safe(line).encode() for line in lines]
        if lines:
            put(standard_output(), b"\n".join([*lines, b""]))
        for loss in batch.losses:
            self._printer.print_gap(self._log, loss)

    def _line(self, record: StreamRecord) -> bytes | None:
        payload = record.payload
        if self._json:
            shown: dict[str, Any] = {"position": str(record.position), "txid": record.txid}
            shown["timestamp"] = format_timestamp(record.timestamp)
            if record.sequence_id is not None:
                shown["sequence_id"] = record.sequence_id
            if payload is None:
                shown["corrupt"] = True
            else:
                try:
                    shown["payload"] = payload.decode()
                except UnicodeDecodeError:
                    shown["payload_base64"] = base64.b64encode(payload).decode()
            return json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode()
        if payload is None:
            self._printer.corrupt += 1
            self._printer.note(f"{record.position}: the record was written damaged", alarm=True)
            return None
        return payload if self._txids is None else b"%d%b%b" % (record.txid or 0, self._txids, payload)


async def _read(namespace: Namespace, arguments: argparse.Namespace) -> int:
    stream = await _opened(namespace, arguments)
    start = await _resolved(stream, arguments.start)
    until: Position | str | None = None if arguments.follow else "tail"
    if arguments.subscription is not None:
        start = Subscription(arguments.subscription, start)
    reader = stream.reader(start, until=until, idle=arguments.idle, encryption=keys_of(arguments))
    return await _print(namespace.client, stream, reader, arguments)


async def _tail(namespace: Namespace, arguments: argparse.Namespace) -> int:
    stream = await _opened(namespace, arguments)
    keys, end = keys_of(arguments), await stream.end(timeout=arguments.timeout)
    kept = await _last_records(stream, arguments.lines, end, keys)
    printer = _RecordPrinter(arguments, stream.log)
    printer.print(StreamBatch(kept, stream.attributes.txid, None))
    if not arguments.follow:
        return printer.status
    reader = stream.reader(end, idle=arguments.idle, encryption=keys)
    return await _print(namespace.client, stream, reader, arguments)


async def _last_records(stream: Stream, lines: int, end: Position, keys: EncryptionKeys | None) -> RecordBatch:
    """The last records before a position, of cold copies where the log has too few."""
    found = await last_records(stream.namespace.client, stream.log, LSN(end.lsn - 1), lines, keys)
    kept = within(found, stream.min_active, end)
    if len(kept) >= lines or not (segments := await stream.segments()) or not segments[0].is_copied:
        return kept
    known, start = 0, stream.oldest
    for segment in reversed(segments):
        known += (segment.records or 0) if segment.is_exact else 0
        if known >= lines:
            start = segment.first
            break
    kept = RecordBatch(stream.log)
    async with stream.reader(start, until=end, encryption=keys) as reader:
        while batch := await reader.read(_AT_ONCE):
            kept = last_of_two(kept, batch.columns, lines)
    return kept


async def _print(client: Client, stream: Stream, reader: StreamReader, arguments: argparse.Namespace) -> int:
    printer = _RecordPrinter(arguments, stream.log)
    attendant = Attendant(PROGRAM, client, stream.log, timeout=arguments.timeout)
    attendant.progress = lambda: printer.records
    attendant.waits_for = lambda: reader.why or None

    async def work() -> int:
        async with reader:
            while batch := await reader.read(_AT_ONCE):
                printer.print(batch)
                if isinstance(reader, SubscriptionReader):
                    await reader.commit()  # what is printed, and no more
        return printer.status

    return await attendant.attend(work())


# The program


def _stream_argument(options: argparse.ArgumentParser) -> None:
    options.add_argument("stream", metavar="STREAM", help="its name, like orders or team/orders")


def _reading_options(options: argparse.ArgumentParser) -> None:
    keys_option(options, f"keys of records that are encrypted (default: ${KEYS_VARIABLE})")
    _stream_argument(options)
    options.add_argument(
        "--format",
        choices=("raw", "json"),
        default="raw",
        help="raw: each record and a newline; json: one object a line",
    )
    options.add_argument(
        "-T",
        "--txids",
        type=parse_delimiter,
        metavar="D",
        help="raw records with their transaction id and D before them",
    )
    options.add_argument(
        "--idle",
        type=lambda text: timedelta(seconds=parse_timeout(text)),
        metavar="T",
        help="fail, and say why, when no record comes for so long, like 2min",
    )
    options.add_argument("-f", "--follow", action="store_true", help="wait for further records, until the stream ends")


def _attribute(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE")
    return name, value


_BY_JANITOR: Final = "takes a running janitor"


def _create_options(options: argparse.ArgumentParser) -> None:
    _stream_argument(options)
    options.add_argument(
        "--txid",
        choices=[each.value for each in TransactionIds],
        default=StreamAttributes().txid.value,
        help="who numbers records: their writers, or the time (default: time)",
    )
    options.add_argument(
        "--writers",
        choices=[each.value for each in StreamWriters],
        default=StreamAttributes().writers.value,
        help="any number at a time, or one owner (default: shared)",
    )
    for name, metavar, text in (
        ("--ttl", "T", f"how long segments are kept after their completion, like 3d; {_BY_JANITOR}"),
        ("--truncated-retention", "T", f"how long records are kept after they were truncated; {_BY_JANITOR}"),
        ("--roll-every", "T", "age at which another segment begins, like 2h"),
        ("--roll-bytes", "SIZE", "size at which another segment begins, like 256MiB"),
        ("--cold", "URL", f"the store to which segments are copied, like file:///cold; {_BY_JANITOR}"),
        ("--cold-ttl", "T", f"how long copies are kept there; {_BY_JANITOR}"),
    ):
        options.add_argument(name, metavar=metavar, help=text)
    options.add_argument(
        "--set",
        action="append",
        type=_attribute,
        metavar="NAME=VALUE",
        help="an attribute of its log, like replicate=node:3",
    )


def _list_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("directory", metavar="DIRECTORY", nargs="?", default="", help="only those below it")
    options.add_argument("--json", action="store_true", help="one object a line")


def _yes_options(options: argparse.ArgumentParser) -> None:
    _stream_argument(options)
    options.add_argument("--yes", action="store_true", help="it is meant")


def _rename_options(options: argparse.ArgumentParser) -> None:
    _stream_argument(options)
    options.add_argument("to", metavar="TO", help="a name that is free")


def _info_options(options: argparse.ArgumentParser) -> None:
    _stream_argument(options)
    options.add_argument("--json", action="store_true", help="as an object")


def _truncate_options(options: argparse.ArgumentParser) -> None:
    _stream_argument(options)
    options.add_argument(
        "position",
        metavar="POSITION",
        type=parse_position_in_stream,
        help="of the first record that stays, like e3n17+2",
    )


def _write_options(options: argparse.ArgumentParser) -> None:
    keys_option(options, "encrypt records by the first key in the file")
    _stream_argument(options)
    options.add_argument(
        "-T",
        "--txids",
        type=parse_delimiter,
        metavar="D",
        help="lines begin with their transaction id and D, like : or \\t",
    )
    options.add_argument("--owner", metavar="NAME", help="how to call oneself as the owner of an exclusive stream")
    options.add_argument(
        "--wait",
        type=parse_timeout,
        metavar="T",
        help="how long to wait until another owner releases the stream (default: for ever)",
    )


def _read_options(options: argparse.ArgumentParser) -> None:
    _reading_options(options)
    options.add_argument(
        "--from",
        dest="start",
        type=parse_place,
        default="oldest",
        metavar="P",
        help=f"where to begin (default: oldest): {_PLACES}",
    )
    options.add_argument(
        "--subscription",
        metavar="NAME",
        help="begin behind what was committed for it, or at --from when nothing was, and commit what is printed: "
        "records that are printed as the program dies are printed again",
    )


def _tail_options(options: argparse.ArgumentParser) -> None:
    _reading_options(options)
    options.add_argument(
        "-n", "--lines", "--last", type=parse_count, default=10, metavar="N", help="how many (default: 10)"
    )


VERBS: Final[tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None], Run], ...]] = (
    ("create", "create a stream", _create_options, _create),
    ("list", "streams of the namespace", _list_options, _list),
    ("info", "what is known of a stream, and where it begins and ends", _info_options, _info),
    ("rename", "give a stream another name", _rename_options, _rename),
    ("delete", "delete a stream with its records", _yes_options, _delete),
    ("write", "write the lines of standard input, each a record", _write_options, _write),
    ("read", "print records, up to the last one there is", _read_options, _read),
    ("tail", "print the last records", _tail_options, _tail),
    ("truncate", "truncate everything before a position", _truncate_options, _truncate),
    ("untruncate", "take truncations back", _stream_argument, _untruncate),
    ("end", "end a stream: nothing follows", _yes_options, _end),
    *UPKEEP_VERBS,
    (
        "subscriptions",
        "how far each subscription is, and for how long nothing was committed",
        cli_subscriptions.list_options,
        cli_subscriptions.list_subscriptions,
    ),
    (
        "commit",
        "say that a subscription has handled a stream up to a position",
        cli_subscriptions.commit_options(parse_position_in_stream),
        cli_subscriptions.commit,
    ),
    (
        "reset",
        "let a subscription go on at another place of a stream, also an earlier one",
        cli_subscriptions.reset_options,
        cli_subscriptions.reset,
    ),
)

_VERBS_THAT_CREATE: Final = frozenset({"create", "restore"})
"""They make the namespace when there is none; to others a path that is none is a mistake."""


def _shared_options(options: argparse.ArgumentParser, *, default: Any) -> None:
    """Options that may stand before the verb and behind it. Behind it nothing is their default, so that what stands before holds."""
    cluster_option(options, default=default)
    options.add_argument(
        "--namespace",
        metavar="PATH",
        default=default or "/streams",
        help="directory of the log tree that holds the streams (default: /streams); create and restore make it",
    )
    options.add_argument(
        "--timeout",
        type=parse_timeout,
        metavar="T",
        default=default,
        help="fail when the cluster lets nothing move for so long, like 10s",
    )


def parser() -> argparse.ArgumentParser:
    """The verbs and their options."""
    options = ProgramParser(
        prog=PROGRAM,
        description="Create, write, read and truncate streams. Records go to standard output, the rest to standard error.",
        epilog=EXIT_STATUSES,
    )
    _shared_options(options, default=None)
    program_options(options)
    verbs = options.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, text, add_options, run in VERBS:
        own = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=EXIT_STATUSES)
        add_options(own)
        _shared_options(own, default=argparse.SUPPRESS)
        own.set_defaults(run=run)
    return options


async def run_verb(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    from client.client import Client
    from streams.namespace import Namespace

    creates = arguments.verb in _VERBS_THAT_CREATE
    async with (
        Client(arguments.config, name=PROGRAM) as client,
        Namespace(client, arguments.namespace, create=creates) as namespace,
    ):
        status: int = await arguments.run(namespace, arguments)
        return status


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    arguments = parser().parse_args(argv)
    return run_program(PROGRAM, lambda: run_verb(arguments))


if __name__ == "__main__":
    sys.exit(main())
