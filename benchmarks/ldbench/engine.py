"""What a log system has to offer to be measured: the contract between the harness and its drivers.

A driver is one module in `benchmarks.ldbench.engines` with a module-level ``ENGINE``, an object that satisfies `Engine`. The harness imports
the module only when the system is asked for, in a process of its own for every measurement, and calls, in this order::

    reason = ENGINE.unavailable(options)          # None: go on
    running = await ENGINE.start(options)         # servers of its own, in options.directory
    logs = await running.create_logs(3)           # fresh, empty
    producer = await running.producer(logs[0], Mode.SINGLE, setting)
    await producer.append_many([record, ...])     # acknowledged
    consumer = await running.consumer(logs[0], StartAt.BEGINNING)
    records = await consumer.read()
    await consumer.close(); await producer.close()
    await running.stop()

Everything runs on one asyncio event loop (uvloop) in the one client process. A client library with threads of its own posts results with
``loop.call_soon_threadsafe``, once per poll rather than once per record. Nothing may block the loop.

**Fairness.** Whoever writes a driver uses the client that a Python user would pick, as its documentation recommends it for speed, and no
work that the system itself does not need. The driver does not count, time or check records: the harness does. Third-party packages are
imported at the top of the driver's module: when one is missing, the harness catches the ImportError and says so.

**Records.** The harness makes the payloads and recognises them when they are read back: the first 16 bytes name the writer and the
number of the record, the rest is a body that belongs to that number. Drivers hand payloads over unchanged (`bytes`), one payload one record
of the system, without keys, headers or framing of their own, except as the system demands. What `Consumer.read` returns must be exactly
the bytes that were appended.

**Resources.** The harness reads CPU seconds, peak memory and bytes written of every process that `RunningEngine.processes` lists from
``/proc/PID/{stat,status,io}``, and those of the client process itself. A driver only tells the process ids, of the real server processes (not
of a shell or launcher around them).

**Errors.** A driver turns errors of its client library into `AppendError` and `EngineError`; it never hides one and never appends a record again
on its own. Retries inside the client library follow the setting that is measured.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class EngineError(Exception):
    """The system cannot do what was asked: it did not start, a log cannot be made, a reader broke. Ends the measurement as failed."""


class AppendError(Exception):
    """At least one record of an `append_many` was not acknowledged. Any record of that call may or may not be in the log, at most once."""


class DurabilityClass(enum.Enum):
    """What an acknowledgement means. Systems are compared within one class only."""

    SYNC = "sync"
    """All copies that the acknowledgement counts were synced to disk (fsync, fdatasync) before it."""
    ASYNC = "async"
    """All copies that the acknowledgement counts have reached the operating system of their servers (page cache) or, where the system keeps
    them in its own memory first, that memory; they are synced later."""


class Mode(enum.Enum):
    """How the application hands records over."""

    SINGLE = "single"
    """Each record is an operation of its own in the application: many of them under way at once. Whatever the client or servers
    make of that by themselves is theirs, but no batching object of the application's is used."""
    BUFFERED = "buffered"
    """Each record is handed over by a call of its own to the client library's batching writer, and has a receipt of its own."""
    BUFFERED_MANY = "buffered-many"
    """The client library's batching writer takes lists of records, one receipt (or callback) for the list."""


class StartAt(enum.Enum):
    """Where a consumer starts."""

    BEGINNING = "beginning"
    TAIL = "tail"
    """Behind the last record that was acknowledged before `RunningEngine.consumer` was awaited; when that await returns, every record that is
    acknowledged later will be delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One of the up to three ways in which a system is tried in a mode: the best of them stands for the system, all are reported.

    What costs a restart of the servers (a server option) does not belong here: drivers start servers as their vendors recommend for the
    durability class.
    """

    name: str
    """Short, unique within an engine and mode, fit for a table: ``linger=5ms``, ``window=4k``."""
    description: str
    """One sentence for the report: every option that differs from the library's default, with its value."""
    records_in_flight: int = 10_000
    """At most so many records are handed over and not yet acknowledged, over all producers of a workload."""
    bytes_in_flight: int = 8 << 20
    """At most so many bytes likewise; one call is always let through."""
    records_per_call: int = 100
    """Into how large lists the harness cuts the stream for `append_many` (fewer when large records would pass half of `bytes_in_flight`). One
    acknowledgement per list keeps the harness' own cost per record small; for the system it must make no difference in `Mode.SINGLE`
    and `Mode.BUFFERED`, where the driver makes one call of the library for each record of the list."""
    options: Mapping[str, object] = field(default_factory=dict)
    """For the driver's own use: options of the client library and the like. JSON-compatible values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """What a system is started as."""

    directory: Path
    """Empty, exists, on the disk that is measured, removed after `RunningEngine.stop`. Data, configuration files and server output go there. The
    path is short enough for Unix sockets."""
    durability: DurabilityClass
    copies: int = 3
    """Of each record that an acknowledgement stands for at least a majority: replication factor, or number of servers that keep it."""
    logs: int = 64
    """`create_logs` will be asked for at most so many logs in total."""
    tolerate_failure: bool = False
    """One server of any role will be killed or paused, and appends should go on. Systems whose acknowledgements need all `copies` start
    more servers than copies; systems with majorities start as many servers as copies."""
    partitions: bool = False
    """Servers will be cut off from the network. Only asked of the engines that a workload names."""
    sync_delay_us: int = 0
    """Every sync of a server takes so much longer, to show a slower disk. A driver that cannot do this returns a reason from
    `Engine.unavailable` when it is not 0."""
    profile: bool = False
    """Servers should write a profile of themselves into `directory`/profiles when they stop, if the driver can have that; others ignore it."""
    record_bytes: int = 100
    """Largest payload that will be appended: servers and clients that refuse large records by default are configured to take it."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """One process of the system on this machine."""

    name: str
    """Unique and stable over a restart: ``N0``, ``broker-2``, ``zookeeper``."""
    role: str
    """What it does, for grouping in the report: ``node``, ``broker``, ``replica``, ``metadata``."""
    pid: int


class Producer(Protocol):
    """Appends to one log. Used by one task at a time; any number of acknowledgements may be outstanding."""

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        """Hand over records; the awaitable is done when all of them are acknowledged. Its result is ignored.

        Returns at once. The records go out without further calls, also when the awaitable is not awaited yet and when no later call
        follows (no lingering beyond what the setting says). Order: the records of one producer keep the order of the calls and of the list,
        unless the system itself does not promise that (see `Engine.ordered`). A list of one record is a lone append. The list is
        not changed by anyone afterwards and may be kept without a copy.

        The awaitable should be an `asyncio.Future` (or fail like one): it raises `AppendError` when a record was not acknowledged, after the
        client library has failed or after `timeout` of `RunningEngine.producer`; until then it stays pending. The harness keeps
        within the setting's `records_in_flight`, so there is no back-pressure beyond `ready`.
        """

    async def ready(self) -> None:
        """Wait until the client library would take records; most return at once. The harness awaits it before each call at full load."""

    async def close(self) -> None:
        """Flush and release; called once. Whatever is still unacknowledged fails with `AppendError`."""


class Consumer(Protocol):
    """Reads one log from a start on, in log order. Used by one task at a time."""

    async def read(self, max_records: int = 10_000) -> Sequence[bytes]:
        """The next records, at least one, at most `max_records`: what is there, without waiting for more.

        Waits without a limit for the first one; the harness cancels the call when it has waited long enough, and a cancelled call loses no
        record. Each record is delivered once. Large batches as the client offers them make catch-up reading fast, so hand over the
        library's own list where there is one.

        Raises:
            EngineError: the reader cannot go on, or the system says that records are lost.
        """

    async def close(self) -> None:
        """Stop reading and release; called once."""


class RunningEngine(Protocol):
    """A started system: servers, and the client connections of this process."""

    async def create_logs(self, count: int) -> Sequence[str]:
        """Names of fresh, empty logs (streams, topics of one partition, ledgers), replicated to all copies and writable.

        Each log is totally ordered. May be called several times.
        """

    async def producer(self, log: str, mode: Mode, setting: Setting, *, timeout: float = 30.0) -> Producer:
        """A connected producer; `setting` is one that `Engine.settings` lists for `mode`.

        Several producers of one process should be independent writers where the system knows such a thing, and may share connections as
        an application would. Two producers may append to the same log, except where `Engine.single_writer` says otherwise.

        Args:
            log: from `create_logs`.
            mode: how records are handed over.
            setting: with which options.
            timeout: seconds after which an append that was not acknowledged fails with `AppendError`.
        """

    async def consumer(self, log: str, start: StartAt) -> Consumer:
        """A consumer that is ready to deliver, by the client's fastest way of reading everything in order (no groups, no commits)."""

    def processes(self) -> Sequence[ServerProcess]:
        """The server processes that run at this moment, in a fixed order. Cheap: it is called several times a second."""

    async def leader(self, log: str) -> str:
        """Name of the process that takes the log's appends: sequencer, partition leader, master."""

    async def followers(self, log: str) -> Sequence[str]:
        """Names of processes that keep copies of what is being appended to the log and do not lead it."""

    async def kill(self, name: str) -> None:
        """SIGKILL a server process; returns when it is gone. The data stays."""

    async def pause(self, name: str) -> None:
        """SIGSTOP a server process."""

    async def resume(self, name: str) -> None:
        """SIGCONT a server process that was paused."""

    async def restart(self, name: str) -> None:
        """Start a killed server process again on its data, same name; returns when it runs, not when it has caught up."""

    async def whole(self, log: str) -> bool:
        """Whether every server takes part in the log as it did before any fault: one that came back has caught up and stands by again.

        Asked between faults: the next one must not find the system without a server that it still misses.
        """

    def sample(self, on: bool) -> None:
        """The part that is measured begins or ends: servers that profile themselves (`StartOptions.profile`) do it in between."""

    def configuration(self) -> Mapping[str, str]:
        """How the servers were configured, for the report: file name or process name to file contents or command line. No secrets."""

    async def stop(self) -> None:
        """Close client connections, stop all server processes (kill those that do not end within 10 s). Harmless after a failure.

        Server processes also die with this process (``server.die_with_parent`` or prctl PR_SET_PDEATHSIG in the child), however it ends.
        """


class Engine(Protocol):
    """A log system that can be started on this machine."""

    name: str
    """As on the command line and in tables: ``logdevice``, ``jetstream``, ``redis``, ``kafka``, ``bookkeeper``."""
    title: str
    """For people: ``NATS JetStream by nats-py``."""
    ordered: bool
    """Records of one producer are always in the log in the order in which they were handed over, also when many are under way. False: in
    `Mode.SINGLE` the harness only checks that each record is there exactly once, and reports how many are out of order. Producers of
    the other modes keep the order in any case."""
    ordered_through_faults: bool
    """The same while servers fail and connections are made again. False: `ordered` does not hold in workloads that break servers."""
    has_leaders: bool
    """One of the servers takes a log's appends (see `RunningEngine.leader`). False: clients do that, and no server stands out."""
    single_writer: bool
    """A log has one producer at a time: workloads with several writers to one log are skipped."""

    def unavailable(self, options: StartOptions) -> str | None:
        """Why this system cannot be measured here, in words for the person who runs the benchmark and with what to install; None when it can.

        Looks for binaries, Java, jars and the like, may take some seconds, starts nothing and downloads nothing that is not cached unless
        fetching is the documented way (say so in the module). Also a durability class, number of copies or sync delay that the
        system does not offer is a reason.
        """

    def versions(self) -> Mapping[str, str]:
        """Versions of the servers and client libraries: ``{"nats-server": "2.11.4", "nats-py": "2.9"}``. Only called when available."""

    def settings(self, mode: Mode) -> Sequence[Setting]:
        """The settings to try in a mode, at most three, the vendor's recommendation first; empty when the client offers nothing of the kind.

        At least `Mode.SINGLE` has settings. A client whose ordinary call already batches (Kafka's `produce`) lists settings in
        `Mode.SINGLE` and in `Mode.BUFFERED`; they may be the same ones.
        """

    def lone_setting(self) -> Setting:
        """For appends made one at a time on an idle system, and for paced load: the lowest latency. Used with `Mode.SINGLE`."""

    def acknowledgement(self, options: StartOptions) -> str:
        """What an acknowledgement means as started, in one line for the report: ``3 of 3 copies, each synced``, ``quorum 2 of 3, page cache``."""

    async def start(self, options: StartOptions) -> RunningEngine:
        """Start the servers and wait until a log could be created and appended to.

        Raises:
            EngineError: it did not start; says why and quotes the end of the server's output. Nothing is left running.
        """
