"""The write streams of one BufferedWriter: one a log, with a common limit of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from client.append.many import check_atomic
from client.guards import AppendGuard, Guards
from client.metrics import WriterMetrics
from client.promise import Promise, break_, keep
from client.receipt import Receipts
from client.settings import WriterSettings
from client.write.batching import COMPRESSIONS, OpenBatch
from client.write.context import StreamContext, StreamOwner
from client.write.exclusive_stream import ExclusiveStream
from client.write.write_stream import WriteStream, new_writer_id
from logdevice_py.core.batch import BATCH_OVERHEAD
from logdevice_py.core.ids import LogId, NodeId, PeerId, WriterId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.record_keys import KEY_OVERHEAD, KEYS_HEAD
from logdevice_py.core.sealed_batch import PLACED_OVERHEAD, Seal
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros

_BYTES = {bytes}


class _Flush:
    """Waits for several streams."""

    __slots__ = ("_owner", "_promise", "missing")

    def __init__(self, owner: WriteStreams, promise: Promise) -> None:
        self._owner = owner
        self._promise = promise
        self.missing = 1

    def passed(self) -> None:
        """One stream has the outcome of all that was taken before the flush."""
        self.missing -= 1
        if self.missing == 0:
            self._owner.tell(self._promise)


class WriteStreams:
    """All that one BufferedWriter holds."""

    __slots__ = ("_closed", "_context", "_dirty", "_ready", "_seals", "_streams", "named", "owner", "settings")

    def __init__(
        self,
        context: StreamContext,
        settings: WriterSettings,
        metrics: WriterMetrics,
        sealer: Callable[[LogId], Seal] | None = None,
    ) -> None:
        if settings.compression not in COMPRESSIONS:
            raise LogDeviceError(Status.INVALID_PARAM, f"compression {settings.compression!r} is not none, lz4 or zstd")
        self.settings = settings
        self._context = context
        self.owner = StreamOwner(settings, metrics) if sealer is None else StreamOwner(settings, metrics, sealer)
        self._seals = sealer is not None
        self._streams: dict[LogId, WriteStream] = {}
        self._dirty: dict[LogId, WriteStream] = {}
        self._ready: list[Promise] = []
        self._closed = False
        self.named: dict[int | str, OpenBatch] = {}
        """Batches that further records of this turn may join, by what the caller named the log."""

    @property
    def metrics(self) -> WriterMetrics:
        """Of this writer."""
        self.owner.metrics.bytes_buffered = self.owner.unacknowledged_bytes
        return self.owner.metrics

    @property
    def dirty(self) -> bool:
        """The end of a turn has work here."""
        return bool(self._dirty)

    @property
    def full(self) -> bool:
        """The limit of memory is reached."""
        return self.owner.full

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes of records taken that have no outcome yet."""
        return self.owner.unacknowledged_bytes

    def waiting_for(self, log: LogId, now: Micros) -> str | None:
        """Why records of a log are not acknowledged yet, for people; None when all are."""
        stream = self._streams.get(log)
        return None if stream is None or stream.idle else stream.waiting_for(now)

    def payload_max(self, log: LogId) -> int:
        """The longest record that the log takes.

        Raises:
            LogDeviceError: NOTFOUND, AGAIN.
        """
        config = self._context.routes.config
        attributes = config.log(log)
        if attributes is None:
            raise config.unknown(log)
        most = int(attributes.max_payload_bytes)
        return most if not self._seals else max(0, most - PLACED_OVERHEAD - BATCH_OVERHEAD)

    def append(
        self,
        log: LogId,
        payload: bytes,
        promise: Promise,
        now: Micros,
        key: bytes | None = None,
        *,
        synced: bool = False,
        guard: AppendGuard | None = None,
    ) -> OpenBatch:
        """Take one record; the promise gets its `Receipt`. `synced`: only when all copies are synced, whatever the log's durability. `guard`: what it
        asks of the end of the log.

        Returns:
            what others of the same turn may join.
        Raises:
            LogDeviceError: NOBUFS (the limit of memory is reached), TOOBIG, NOTFOUND, SHUTDOWN; nothing was taken.
        """
        if self.full or self._closed:
            self._refuse()
        intake = (self._dirty.get(log) or self._touch(log)).intake
        if type(payload) is not bytes:
            raise LogDeviceError(Status.INVALID_PARAM, f"a record is bytes, not {type(payload).__name__}")
        size = len(payload) + (0 if key is None else len(key) + KEYS_HEAD + KEY_OVERHEAD)
        if size > intake.payload_max:
            raise LogDeviceError(Status.TOOBIG, f"{size} bytes; the log takes {intake.payload_max}")
        if guard is not None:
            self.named.clear()  # who joins without a look would get the guard
        intake.append(payload, promise, now, key, synced=synced, guard=guard)
        return intake.batch

    def append_many(
        self,
        log: LogId,
        payloads: Sequence[bytes],
        promise: Promise,
        now: Micros,
        keys: Sequence[bytes | None] | None = None,
        *,
        synced: bool = False,
        guards: Guards | None = None,
        atomic: bool = False,
    ) -> None:
        """Take many records; the promise gets their `Receipts`. They are taken all or none. `synced`, `guards`: as `append`, of all of them. `atomic`: one
        frame holds them all.

        Raises:
            LogDeviceError: as `append`.
        """
        if self.full or self._closed:
            self._refuse()
        intake = (self._dirty.get(log) or self._touch(log)).intake
        if not payloads:
            keep(promise, Receipts([]))
            return
        if set(map(type, payloads)) != _BYTES:
            raise LogDeviceError(Status.INVALID_PARAM, "records are bytes")
        if atomic:
            check_atomic(payloads, keys, intake.payload_max)
            self.named.clear()
            intake.append_whole(payloads, promise, now, keys, synced=synced, guards=guards)
            return
        longest = max(map(len, payloads))
        if keys is not None:
            longest = KEYS_HEAD + max(
                len(payload) + KEY_OVERHEAD + len(key or b"") for payload, key in zip(payloads, keys, strict=True)
            )
        if longest > intake.payload_max:
            raise LogDeviceError(Status.TOOBIG, f"{longest} bytes; the log takes {intake.payload_max}")
        if guards is not None:
            self.named.clear()
        intake.append_many(payloads, promise, now, keys, synced=synced, guards=guards)

    def new_append_id(self) -> int:
        """For a frame that is an entry of its own."""
        return self._context.rng.getrandbits(62) + 1

    def _refuse(self) -> None:
        if self._closed:
            raise LogDeviceError(Status.SHUTDOWN, "the writer is closed", retriable=False)
        raise LogDeviceError(
            Status.NOBUFS,
            f"{self.owner.unacknowledged_bytes} bytes of records are unacknowledged (and each record counts 100 more); await ready() before more",
        )

    def _touch(self, log: LogId) -> WriteStream:
        stream = self._streams.get(log)
        if stream is None:
            stream = WriteStream(
                log, new_writer_id(self._context.rng), self._context, self.owner, self.payload_max(log)
            )
            self._streams[log] = stream
        self._dirty[log] = stream
        return stream

    def take_over(self, log: LogId, writer: WriterId, view: Epoch) -> None:
        """Records of a log go as an `ExclusiveStream` from here on. What an earlier one has not stored fails.

        Raises:
            LogDeviceError: NOTFOUND, SHUTDOWN.
        """
        if self._closed:
            self._refuse()
        if self._seals:
            # whoever takes over sends again what is missing, and compares it with what is stored: encrypted again it would be something else
            raise LogDeviceError(Status.INVALID_PARAM, "a writer that encrypts cannot take a write stream over")
        stream = ExclusiveStream(log, writer, self._context, self.owner, self.payload_max(log), view)
        earlier = self._streams.get(log)
        if earlier is not None:
            earlier.close()
        self.named.clear()
        self._streams[log] = stream
        self._dirty.pop(log, None)

    def ready(self, promise: Promise) -> None:
        """The promise is kept when a record would be taken."""
        if self.full:
            self._ready.append(promise)
        else:
            keep(promise, None)

    def flush(self, promise: Promise, now: Micros) -> None:
        """The promise is kept when everything taken so far is acknowledged, and broken when any record failed since the last flush."""
        flush = _Flush(self, promise)
        for log, stream in self._streams.items():
            if stream.flush(flush.passed, now):
                flush.missing += 1
                self._dirty[log] = stream
        flush.passed()

    def tell(self, promise: Promise) -> None:
        """Keep or break the promise of a flush. Each failure is told once."""
        owner = self.owner
        if promise.done():
            return
        if owner.first_error is None:
            keep(promise, None)
            return
        error, failures = owner.first_error, owner.failures
        owner.first_error, owner.failures = None, 0
        break_(
            promise,
            LogDeviceError(
                error.status,
                f"{failures} records were not acknowledged" + (f": {error.detail}" if error.detail else ""),
                retriable=error.retriable,
                maybe_applied=error.maybe_applied,
            ),
        )

    def on_turn_end(self, now: Micros) -> None:
        """Send what is due."""
        if self._dirty:
            self.named.clear()
            dirty, self._dirty = self._dirty, {}
            for stream in dirty.values():
                stream.on_turn_end(now)
        if self._ready and not self.full:
            ready, self._ready = self._ready, []
            for promise in ready:
                keep(promise, None)

    def on_config(self, now: Micros) -> None:
        """There is another cluster file."""
        for log, stream in list(self._streams.items()):
            if self._context.routes.config.log(log) is not None:
                stream.intake.use_limit(self.payload_max(log), now)

    def on_peer_down(self, peer: PeerId, was_up: bool, now: Micros) -> None:
        """A connection broke or a dial failed."""
        for stream in list(self._streams.values()):
            stream.on_peer_down(peer, was_up, now)

    def on_node_dead(self, node: NodeId, now: Micros) -> None:
        """The cluster declares a node dead."""
        for stream in list(self._streams.values()):
            stream.on_node_dead(node, now)

    def refuse(self, error: LogDeviceError) -> None:
        """Nobody takes anything any more: records without an outcome fail with this error."""
        for stream in list(self._streams.values()):
            stream.refuse(error)

    def close(self) -> None:
        """Take no more; fail what has no outcome."""
        self.stop_taking()
        for stream in self._streams.values():
            stream.close()
        for promise in self._ready:
            break_(promise, LogDeviceError(Status.SHUTDOWN, "the writer is closed"))
        self._ready.clear()

    def stop_taking(self) -> None:
        """Refuse further records; what was taken goes on."""
        self._closed = True
        self.named.clear()

    def check(self) -> None:
        """What must hold between events."""
        for stream in self._streams.values():
            stream.check()
