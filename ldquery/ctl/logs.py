"""Verbs about one log."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from client.cli.options import Words, complete_words
from client.cli.positions import Anchor, NamedPosition, parse_guard_number, parse_record_position
from client.cli.program import EXIT_FAILED, EXIT_OK, Attendant, say
from client.guards import GuardError
from ldquery.ctl.verb import PROGRAM, Verb, parse_instant, parse_trim_position, show
from logdevice_py.core.lsn import ESN_MAX, LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros

if TYPE_CHECKING:
    from client.client import Client
    from logdevice_py.core.ids import LogId

LogWork = Callable[["Client", "LogId", argparse.Namespace], Awaitable[Any]]


def _on_log(work: LogWork, what: str) -> Callable[[Client, argparse.Namespace], Awaitable[int]]:
    """Do something with the log that the arguments name, while an attendant says what is waited for."""

    async def run(client: Client, arguments: argparse.Namespace) -> int:
        attendant = Attendant(PROGRAM, client, timeout=arguments.timeout)

        async def look_up_and_work() -> None:
            log = await attendant.find(client.known_log(arguments.log, arguments.timeout))
            attendant.waits_for = lambda: f"{what} of log {log}"
            await work(client, log, arguments)

        await attendant.attend(look_up_and_work())
        return EXIT_OK

    return run


def _log(options: argparse.ArgumentParser) -> None:
    complete_words(
        options.add_argument("log", metavar="LOG", help="id of the log, or its path like /team/clicks"), Words.LOGS
    )


def _lsn(lsn: int | None) -> str | None:
    return None if lsn is None else str(LSN(lsn))


def shown_trim_point(arguments: argparse.Namespace, point: int) -> str | None:
    """How a trim point is shown; people are told that the greatest ESN is the end of the epoch, wherever that was."""
    if not LSN(point).epoch:
        return None  # every log begins in epoch 1
    whole = not arguments.json and point & ESN_MAX == ESN_MAX
    return f"{LSN(point)} (all of epoch {LSN(point).epoch})" if whole else str(LSN(point))


async def _head(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    head = await client.head(log, timeout=arguments.timeout)
    show(
        arguments,
        {
            "trim point": shown_trim_point(arguments, head.trim_point),
            "first record": _lsn(head.lsn),
            "time": head.timestamp,
        },
    )


async def _tail(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    tail = await client.tail(log, timeout=arguments.timeout)
    show(
        arguments,
        {"tail": _lsn(tail.lsn or None), "last record": _lsn(tail.record_lsn), "time": tail.timestamp},
    )


async def _is_empty(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    empty = await client.is_empty(log, timeout=arguments.timeout)
    show(arguments, {"empty": empty}, plain="yes" if empty else "no")


def _find_time_options(options: argparse.ArgumentParser) -> None:
    _log(options)
    options.add_argument(
        "time", metavar="TIME", type=parse_instant, help="with its zone, like 2026-01-31T12:00:00Z or ...+02:00"
    )
    options.add_argument(
        "--approximate",
        action="store_true",
        help="an LSN that is too early by up to the length of a time partition will do; nothing is read for it",
    )


async def _find_time(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    found = await client.find_time(log, arguments.time, approximate=arguments.approximate, timeout=arguments.timeout)
    await _show_found(client, log, arguments, found, "that time")


def _find_key_options(options: argparse.ArgumentParser) -> None:
    _log(options)
    options.add_argument("key", metavar="KEY", help="the key, as UTF-8 text")
    options.add_argument("--hex", action="store_true", help="KEY is written in hexadecimal digits")


async def _find_key(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    found = await client.find_key(log, arguments.key, timeout=arguments.timeout)
    await _show_found(client, log, arguments, found, "that key")


async def _show_found(client: Client, log: LogId, arguments: argparse.Namespace, found: LSN, what: str) -> None:
    tail = await client.tail_lsn(log, timeout=arguments.timeout)
    if found > tail:
        say(PROGRAM, f"no record reaches {what}: the log ends at {tail}")
    show(arguments, {"lsn": str(found), "found": found <= tail}, plain=str(found))


def _data_size_options(options: argparse.ArgumentParser) -> None:
    _log(options)
    options.add_argument("--from", dest="start", metavar="TIME", type=parse_instant, help="leave out older records")
    options.add_argument("--to", dest="end", metavar="TIME", type=parse_instant, help="leave out newer records")


async def _data_size(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    size = await client.data_size(log, arguments.start, arguments.end, timeout=arguments.timeout)
    show(arguments, {"bytes": size}, plain=str(size))


def _trim_options(options: argparse.ArgumentParser) -> None:
    _log(options)
    options.add_argument(
        "to",
        metavar="POSITION",
        type=parse_trim_position,
        help="the last LSN to trim, like e3n17 or an integer; tail: all records; or a time with its zone: everything older",
    )
    options.add_argument("--dry-run", action="store_true", help="only say what would go; all of that is read")
    options.add_argument("--yes", action="store_true", help="do it without asking")


async def _trim_with_consent(client: Client, arguments: argparse.Namespace) -> int:
    """Trim, or say what would go; a person at a terminal is asked in between."""
    if not (arguments.yes or arguments.dry_run):
        if not sys.stdin.isatty():
            raise LogDeviceError(
                Status.INVALID_PARAM,
                "what is trimmed is gone for good: see with --dry-run what that is, and give --yes to do it",
            )
        await _on_log(_preview_trim, "the shards")(client, arguments)
        if not await _consent(f"{PROGRAM}: trim this? [y/N] "):
            say(PROGRAM, "nothing was trimmed")
            return EXIT_FAILED
    return await _on_log(_preview_trim if arguments.dry_run else _trim, "the shards")(client, arguments)


async def _consent(question: str) -> bool:
    """Ask the person at the terminal. An interrupt ends it as it ends everything else."""
    print(question, end="", file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()
    loop.add_reader(sys.stdin, answered.set)
    try:
        await answered.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _preview_trim(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    lsn = await _trim_lsn(client, log, arguments)
    # a person consents to what is shown: what is appended meanwhile stays
    arguments.to = NamedPosition(Anchor.LSN, lsn)
    preview = await client.trim_preview(log, lsn, timeout=arguments.timeout)
    point = shown_trim_point(arguments, preview.trim_point)
    show(arguments, {"trim point": point, "records": preview.records, "bytes": preview.bytes})


async def _trim_lsn(client: Client, log: LogId, arguments: argparse.Namespace) -> LSN:
    """The LSN that the position names."""
    position = arguments.to
    if position.anchor is Anchor.TAIL:
        return await client.tail_lsn(log, timeout=arguments.timeout)
    if position.anchor is Anchor.TIME:
        return LSN(await client.find_time(log, position.value, timeout=arguments.timeout) - 1)
    return LSN(position.value)


async def _trim(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    lsn = await _trim_lsn(client, log, arguments)
    head = await client.head(log, timeout=arguments.timeout)
    if lsn <= head.trim_point or not lsn:
        say(PROGRAM, f"nothing to trim: the trim point of log {log} is {head.trim_point}")
        show(arguments, {"trim point": _lsn(head.trim_point or None)}, plain=str(head.trim_point))
        return
    await client.trim(log, lsn, timeout=arguments.timeout)
    point = (await client.head(log, timeout=arguments.timeout)).trim_point
    show(arguments, {"trim point": str(point)}, plain=str(point))


def _guard_options(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--expect",
        metavar="POSITION",
        type=parse_record_position,
        help="only if this is the last record of the log, like e3n17+2; start: if it has none",
    )
    options.add_argument("--yes", action="store_true", help="do it without asking")


def _fence_options(options: argparse.ArgumentParser) -> None:
    _log(options)
    options.add_argument("token", metavar="TOKEN", type=parse_guard_number, help="above the fence of the log")
    options.add_argument(
        "--accept-loss",
        action="store_true",
        help="also when the last entries of the log were lost, and with them its fence and transaction ids; asks first",
    )
    _guard_options(options)


async def _fence(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    receipt = await client.raise_fence(
        log, arguments.token, expect=arguments.expect, accept_loss=arguments.accept_loss, timeout=arguments.timeout
    )
    show(arguments, {"fence": arguments.token, "position": str(receipt.position)}, plain=str(receipt.position))


async def _fence_with_consent(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.accept_loss and not await _may(
        arguments,
        "records at the end of the log may be lost, with what they said of fence and transaction ids: accept that?",
    ):
        return EXIT_FAILED
    return await _on_log(_fence, "the sequencer")(client, arguments)


def _end_options(options: argparse.ArgumentParser) -> None:
    _log(options)
    options.add_argument(
        "--fence", metavar="TOKEN", type=parse_guard_number, help="the own fence token, where the log has a fence"
    )
    _guard_options(options)


async def _end(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    try:
        receipt = await client.mark_end(log, expect=arguments.expect, fence=arguments.fence, timeout=arguments.timeout)
    except GuardError as error:
        if error.status is not Status.FENCED or arguments.fence is not None:
            raise
        text = f"log {log}: its fence is {error.fence}: give --fence TOKEN, with the token of the log's owner"
        raise LogDeviceError(error.status, text, maybe_applied=error.maybe_applied) from None
    show(arguments, {"ended": True, "position": str(receipt.position)}, plain=str(receipt.position))


async def _end_with_consent(client: Client, arguments: argparse.Namespace) -> int:
    if not await _may(arguments, "nobody can append to the log any more, for ever: end it?"):
        return EXIT_FAILED
    return await _on_log(_end, "the sequencer")(client, arguments)


async def _may(arguments: argparse.Namespace, question: str) -> bool:
    """Whether the person at the terminal agrees, or --yes does."""
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise LogDeviceError(Status.INVALID_PARAM, f"{question} Give --yes to do it")
    if await _consent(f"{PROGRAM}: {question} [y/N] "):
        return True
    say(PROGRAM, "nothing was changed")
    return False


async def _recovery(client: Client, log: LogId, arguments: argparse.Namespace) -> None:
    from client.takeover import recovered

    before = await client.sequencer(log, timeout=arguments.timeout)
    timeout_us = client.settings.request_timeout_us if arguments.timeout is None else round(arguments.timeout * 1e6)
    state = await recovered(client, log, min_epoch=before.epoch + 1, timeout_us=Micros(timeout_us))
    show(
        arguments,
        {
            "log": int(log),
            "epoch": int(state.epoch),
            "epoch before": before.epoch,
            "tail": _lsn(state.last_released or None),
        },
    )


VERBS = (
    Verb(
        "head",
        "where the readable part of a log begins",
        "Print the trim point of a log, and the LSN and time of its first record.",
        _log,
        _on_log(_head, "the shards"),
    ),
    Verb(
        "tail",
        "where a log ends",
        "Print the last LSN of a log that can be read, and the LSN and time of its last record, trimmed or not.",
        _log,
        _on_log(_tail, "the sequencer"),
    ),
    Verb(
        "is-empty",
        "whether a log has a record to read",
        "Print yes or no. A log is empty when no record was ever written to it, or all are trimmed. The exit status does not tell.",
        _log,
        _on_log(_is_empty, "the shards"),
    ),
    Verb(
        "find-time",
        "the first LSN whose record is not older than a time",
        "Print the first LSN whose record is not older than a time; one behind the tail when there is none. Shards search "
        "what they have; nothing is read.",
        _find_time_options,
        _on_log(_find_time, "the shards"),
    ),
    Verb(
        "find-key",
        "the first LSN with a record whose key is not below a key",
        "Print the first LSN with a record whose key is not below KEY; one behind the tail when there is none. Of use in logs "
        "whose keys never get smaller.",
        _find_key_options,
        _on_log(_find_key, "the shards"),
    ),
    Verb(
        "data-size",
        "about how many bytes a log takes, one copy of each record",
        "Print about how many bytes the records of a log take, each counted once, whatever the number of copies, with what each entry needs beside its "
        "records. All copies together: STORED of ldctl logs status. What is trimmed counts until its partition is dropped.",
        _data_size_options,
        _on_log(_data_size, "the shards"),
    ),
    Verb(
        "trim",
        "delete the oldest part of a log",
        "Trim everything up to POSITION, for good, and print the trim point that holds then. Asks first, with what would go; --yes for scripts. Done when "
        "every shard has made it durable; with exit status 4 some did not answer: they learn it from the others, or trim again, which is "
        "harmless. An LSN above the tail, or behind the end of its epoch, is refused.",
        _trim_options,
        _trim_with_consent,
    ),
    Verb(
        "fence",
        "shut out writers without a fence token, or with a lower one",
        "Raise the fence of a log to TOKEN, and print the position: what writers without such a token, or with a lower one, have under way is refused, "
        "as is all that they append later. It cannot be lowered. --accept-loss takes appends of a log up again whose end was lost (DATALOSS).",
        _fence_options,
        _fence_with_consent,
    ),
    Verb(
        "end",
        "end a log: nothing follows, for ever",
        "End a log and print the position of the end. What it holds stays readable; readers that follow it come to an end. Asks first; --yes for scripts.",
        _end_options,
        _end_with_consent,
    ),
    Verb(
        "recovery",
        "take a log to another epoch and recover all earlier ones",
        "Take a log to another epoch, wait until all earlier ones are recovered, and print the epochs and the last LSN that can be read then. "
        "Appends go on meanwhile. When it does not end in time, table waits of ldquery says for what it waits.",
        _log,
        _on_log(_recovery, "the recovery"),
    ),
)
