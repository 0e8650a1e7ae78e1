"""``ldindexd``: serves an index log over HTTP, and deals, merges and collects now and then if it is told to. Until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

from client.cli.options import ProgramParser, cluster_option, program_options
from client.cli.program import EXIT_OK, EXIT_STATUSES, parse_timeout, run_program, token_file_option
from client.client import Client, read_cluster_file
from client.identity import IDENTITY_VARIABLE, default_identity
from indexlog.index_log import DEFAULT_PATH, GRACE_SECONDS, IndexLog
from indexlog.serving.metrics import IndexServiceMetrics
from indexlog.serving.service import SETTINGS, IndexService
from indexlog.trimming import trim_raw_logs
from logdevice_py.config.admin import LOOPBACK, AdminEndpoint, AdminSettings, format_address, is_loopback
from logdevice_py.config.permits import parse_grantees
from logdevice_py.config.security import TLS_ACCEPT, TLS_OFF, TLS_REQUIRE, parse_security
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.admin_token import node_token, token_beside
from logdevice_py.runtime.http.security import CLEAR_TEXT, HttpSecurity
from logdevice_py.runtime.tls import TlsContexts, TlsFiles
from logdevice_py.runtime.tokens import TokenChecker
from logdevice_py.runtime.transport import bind
from logdevice_py.shell.introduction import no_tokens

PROGRAM: Final = "ldindexd"
PORT: Final = 4480
JOBS_AT_ONCE: Final = 4
"""Of sorting and optimizing."""
log_ = logging.getLogger("logdevice.indexlog")


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = ProgramParser(prog=PROGRAM, description=__doc__, epilog=EXIT_STATUSES)
    cluster_option(options)
    options.add_argument(
        "--path", default=DEFAULT_PATH, metavar="DIR", help=f"its directory in the log tree (default: {DEFAULT_PATH})"
    )
    options.add_argument(
        "--listen",
        type=_address,
        default=(LOOPBACK, PORT),
        metavar="HOST:PORT",
        help=f"where it serves (default: {LOOPBACK}:{PORT}); other machines than this one need a token",
    )
    token_file_option(options)
    options.add_argument(
        "--tls",
        choices=(TLS_OFF, TLS_ACCEPT, TLS_REQUIRE),
        help="whether it serves over TLS, with its certificate (default: as the nodes of the cluster do)",
    )
    options.add_argument(
        "--readers",
        type=_grantees,
        default=frozenset(),
        metavar="NAMES",
        help="principals and groups who may read by their certificate or signed token, like svc-search,group/bi",
    )
    options.add_argument(
        "--requests-max",
        type=_count,
        default=SETTINGS.requests_max,
        metavar="N",
        help=f"requests that are worked on at a time, with those that wait for something to be written (default: {SETTINGS.requests_max})",
    )
    for name, what in (("deal", "deal"), ("optimize", "sort and optimize"), ("collect", "delete files nobody needs")):
        options.add_argument(f"--{name}-every", type=parse_timeout, metavar="T", help=f"{what} so often, like 5s")
    options.add_argument(
        "--grace",
        type=parse_timeout,
        default=GRACE_SECONDS,
        metavar="T",
        help="collecting keeps what was replaced for so long, for readers (default: 30min)",
    )
    options.add_argument(
        "--trim-raw",
        type=parse_timeout,
        metavar="T",
        help="collecting trims raw logs too: what is dealt and older than this, like 24h. Readers that are away for longer begin again",
    )
    program_options(options)
    return options


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r}: HOST:PORT expected")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 1000")
    return int(text)


def _grantees(text: str) -> frozenset[str]:
    try:
        return parse_grantees(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _security(cluster_file: Path, tls: str | None, readers: frozenset[str]) -> HttpSecurity:
    """With the files that the cluster file names, as far as they are on this machine, and the certificate that this program has as a client too."""
    config = read_cluster_file(cluster_file)
    settings, identity = parse_security(config.settings), default_identity(cluster_file)
    tls = tls or settings.tls
    if tls == TLS_OFF:
        return CLEAR_TEXT
    if identity.certificate is None or not settings.ca_file:
        text = f"TLS needs a certificate, made with --host: name it in {IDENTITY_VARIABLE}; and ca_file in the cluster file"
        raise LogDeviceError(Status.INVALID_CONFIG, text)
    directory = cluster_file.parent
    revoked, keys = directory / settings.revoked_file, directory / settings.token_key_file
    has_keys = bool(settings.token_key_file) and keys.exists()
    files = TlsFiles(
        directory / settings.ca_file,
        Path(identity.certificate),
        None,
        revoked if settings.revoked_file else None,
        may_lack_revoked=True,
    )
    return HttpSecurity(
        tls,
        TlsContexts(files, config.uuid),
        check_token=TokenChecker(keys, config.uuid) if has_keys else no_tokens,
        is_reader=lambda principal: not readers.isdisjoint(principal.grantees),
    )


def _token(cluster_file: Path, token_file: str | None, endpoint: AdminEndpoint, readers: frozenset[str]) -> str | None:
    # a node takes a relative path from its cluster file, who runs a program means the working directory
    found = node_token(cluster_file, "" if token_file is None else str(Path(token_file).absolute()))
    if found is None and not endpoint.is_loopback and not readers:
        text = f"other machines reach {endpoint.host}, and there is no token: write one into {token_beside(cluster_file)}, or give --token-file or --readers"
        raise LogDeviceError(Status.INVALID_CONFIG, text)
    return found


async def run(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    host, port = arguments.listen
    endpoint = AdminEndpoint(host, port, is_loopback(host))
    path = Path(arguments.config)
    token = _token(path, arguments.token_file, endpoint, arguments.readers)
    security = _security(path, arguments.tls, arguments.readers)
    if arguments.readers and security is CLEAR_TEXT:
        raise LogDeviceError(
            Status.INVALID_PARAM, "--readers: who asks proves who he is over TLS only: give --tls require"
        )
    settings: AdminSettings = dataclasses.replace(SETTINGS, requests_max=arguments.requests_max)
    try:
        sock = bind(host, port)
    except OSError as error:
        raise LogDeviceError(Status.FAILED, str(error.strerror)) from None
    async with (
        Client(arguments.config, name=PROGRAM) as client,
        IndexLog(client, arguments.path) as log,
        IndexService(
            log,
            endpoint,
            token=token,
            settings=settings,
            security=dataclasses.replace(security, is_member=lambda node: node in client.config.nodes),
        ) as service,
        _repeating(log, service.metrics, arguments, stop),
    ):
        await service.listen_on(sock)
        log_.info("serving %s at %s", arguments.path, format_address(host, port))
        await stop.wait()
    return EXIT_OK


@contextlib.asynccontextmanager
async def _repeating(
    log: IndexLog, metrics: IndexServiceMetrics, arguments: argparse.Namespace, stop: asyncio.Event
) -> AsyncIterator[None]:
    """Jobs that are done again and again, each one after the other. One that is under way at the end is done."""
    jobs: list[tuple[str, Callable[[], Awaitable[None]], float | None]] = [
        ("deal", lambda: _deal(log, metrics), arguments.deal_every),
        ("optimize", lambda: _optimize(log, metrics), arguments.optimize_every),
        ("collect", lambda: _collect(log, metrics, arguments), arguments.collect_every),
    ]
    async with asyncio.TaskGroup() as group:
        for name, work, every in jobs:
            if every is not None:
                group.create_task(repeat(name, work, every, metrics, stop), name=f"{name} of an index log")
        try:
            yield
        finally:
            stop.set()


async def repeat(
    name: str, work: Callable[[], Awaitable[None]], every: float, metrics: IndexServiceMetrics, stop: asyncio.Event
) -> None:
    """Do a job every so many seconds, until it is to stop; one that fails is told, counted, and done again."""
    while not stop.is_set():
        metrics.jobs += 1
        try:
            await work()
        except Exception as error:
            # whatever one job meets in the cluster, in the store or in one index: it is tried again, and pages are served meanwhile
            metrics.jobs_failed += 1
            is_known = isinstance(error, LogDeviceError | OSError)
            log_.error("%s: %s", name, error if is_known else repr(error), exc_info=not is_known)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), every)


async def _deal(log: IndexLog, metrics: IndexServiceMetrics) -> None:
    done = await log.deal()
    metrics.dealt_records += done.records
    metrics.dealt_bytes += done.bytes


async def _optimize(log: IndexLog, metrics: IndexServiceMetrics) -> None:
    done = await log.optimize(jobs=JOBS_AT_ONCE)
    metrics.merged_records += done.records
    metrics.merged_bytes += done.bytes


async def _collect(log: IndexLog, metrics: IndexServiceMetrics, arguments: argparse.Namespace) -> None:
    metrics.collected_bytes += (await log.collect(grace=arguments.grace)).bytes
    if arguments.trim_raw is not None:
        await trim_raw_logs(log, keep=arguments.trim_raw)


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    arguments = parser().parse_args(argv)
    log_.setLevel(logging.INFO)
    return run_program(PROGRAM, lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
