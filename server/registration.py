"""Agrees with the epoch store on who the shards of a node are, and keeps a node from starting on disks that are not theirs.

Nothing is created or changed before it is certain that the shard may start. See docs/decisions/0004-a-shard-that-lost-its-data.md.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

from epoch_store.interface import (
    EpochStore,
    NoteIncarnation,
    Operation,
    ReadShardIdentity,
    RegisterShard,
    Result,
    ShardIdentity,
)
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import Generation, NodeId, ShardId, format_shard, shard_index_of
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.durable_file import remove_written, write_durably
from storage_node.log_store.identity import (
    AcceptedLoss,
    IdentityVerdict,
    Judgement,
    ShardMarker,
    why_damaged,
    why_refused,
)

log = logging.getLogger("logdevice.node")

RETRY = 0.2
"""Seconds between tries while the epoch store does not answer."""


class ShardRegistration:
    """Registers one shard; use `check`, then `admit`, `register` and `finish` while its store is opened."""

    def __init__(
        self,
        epoch_store: EpochStore,
        config: ClusterConfig,
        node: NodeId,
        shard: ShardId,
        data: Path,
        accepted: AcceptedLoss,
    ) -> None:
        self.directory = data / f"shard{shard_index_of(shard)}"
        """Where the store is, or will be."""
        self._epoch_store = epoch_store
        self._config = config
        self._node = node
        self._shard = shard
        self._accepted = accepted
        self._known: ShardIdentity | None = None
        self._found_incarnation = 0
        self._rolled_back = False
        self._kept = False
        self._begun = data / f"shard{shard_index_of(shard)}.begun"
        """Names the generation that is about to be registered for an empty store. Should the process end between the registration and
        the first marker, the next start goes on instead of asking for what never was there."""

    async def check(self) -> None:
        """Read what the epoch store knows of the shard; waits for as long as it is away.

        Raises:
            LogDeviceError: the store of a shard that is known is missing, and that was not accepted; or the shard is another cluster's.
        """
        result = await self._ask(ReadShardIdentity(self._node, shard_index_of(self._shard)))
        if result.status is Status.OK:
            assert isinstance(result.value, ShardIdentity)
            if result.value.cluster != self._config.uuid:
                raise LogDeviceError(
                    Status.INVALID_CLUSTER,
                    f'the epoch store {self._config.epoch_store} has {format_shard(self._shard)} for another cluster "'
                    f'{self._config.name}": give this one another name, or another place for its epochs',
                )
            self._known = result.value
        elif result.status is not Status.EMPTY:
            raise self._failed(result)
        if not self.directory.is_dir() or not any(self.directory.iterdir()):
            self._admit(Judgement(IdentityVerdict.NEW_GENERATION, "there is no store"), missing=True)

    @property
    def _registered(self) -> Generation | None:
        return None if self._known is None else self._known.generation

    @property
    def _incarnation(self) -> int:
        return 0 if self._known is None else self._known.incarnation

    @property
    def accepts_loss(self) -> bool:
        """Whether the operator accepts the loss of this generation by name."""
        return self._accepted.names(self._shard, self._registered)

    def explain_damage(self, trouble: str) -> str:
        """What to tell the operator of a store that cannot be opened."""
        return why_damaged(
            trouble,
            self._registered,
            self._accepted,
            cluster=self._config.name,
            shard=self._shard,
            directory=str(self.directory),
        )

    def admit(self, judgement: Judgement) -> None:
        """Raises LogDeviceError when the shard must not start on what was found."""
        self._admit(judgement, missing=False)
        self._rolled_back = judgement.is_rolled_back(self._registered, self._incarnation)
        self._found_incarnation = judgement.incarnation

    def _admit(self, judgement: Judgement, *, missing: bool) -> None:
        begun = judgement.verdict is IdentityVerdict.NEW_GENERATION and self._was_begun(judgement.birth)
        text = why_refused(
            judgement,
            self._registered,
            AcceptedLoss(everything=True) if begun else self._accepted,
            cluster=self._config.name,
            shard=self._shard,
            directory=str(self.directory),
            missing=missing,
            incarnation=self._incarnation,
        )
        if text is not None:
            raise LogDeviceError(Status.FAILED, text)

    def _was_begun(self, birth: bytes) -> bool:
        """Whether a start that could have gone on took the generation that is registered, and ended before anything was served in it."""
        if self._known is None or self._known.incarnation:
            return False
        if self._known.is_awaited_by(birth):
            return True
        try:
            return int(self._begun.read_text()) == self._registered
        except (OSError, ValueError):
            return False

    async def register(self, found: Generation | None, birth: bytes) -> Generation:
        """Which generation the shard has from here on; waits for as long as the epoch store is away.

        Args:
            found: of the marker in its store; None: there is none that counts.
            birth: what the disk calls itself then.
        """
        if self._rolled_back:
            found = None
        if found is None or found != self._registered:
            again = self._known is not None and self._known.is_awaited_by(birth)
            begun = str((self._registered or 0) + (not again))
            await asyncio.to_thread(write_durably, self._begun, begun, alone=True)
        index = shard_index_of(self._shard)
        # the disk's own: what the run before noted of it may arrive after the epoch store was read
        operation = RegisterShard(self._config.uuid, self._node, index, found, self._found_incarnation, birth)
        result = await self._ask(operation)
        if result.status is not Status.OK:
            raise self._failed(result)
        assert isinstance(result.value, ShardIdentity)
        self._kept = result.value.generation == self._registered
        return result.value.generation

    async def note(self, marker: ShardMarker) -> None:
        """The marker is durable: an older one is noticed from here on. Waits for as long as the epoch store is away."""
        result = await self._note(marker)
        if result.status not in (Status.OK, Status.STALE):
            log.warning(
                "the state of %s could not be noted in the epoch store: %s", format_shard(self._shard), result.detail
            )

    async def _note(self, marker: ShardMarker) -> Result:
        index = shard_index_of(self._shard)
        return await self._ask(NoteIncarnation(self._node, index, marker.generation, marker.incarnation))

    async def finish(self, marker: ShardMarker) -> None:
        """The store has its marker, durably. The shard may serve when this returns: from here on nothing else passes for its disk.

        Raises:
            LogDeviceError: the epoch store did not take note of it. Should the shard serve, its disk could lose all that without anybody noticing.
        """
        result = await self._note(marker)
        if result.status not in (Status.OK, Status.STALE):
            raise self._failed(result)
        if self._kept:
            for shard, generation in sorted(self._accepted.generations):
                if shard == self._shard:
                    log.warning(
                        "--accept-data-loss %s=%d was not needed, nothing is missing: leave it out from here on",
                        format_shard(shard),
                        generation,
                    )
        await asyncio.to_thread(remove_written, self._begun)

    def _failed(self, result: Result) -> LogDeviceError:
        where = self._config.epoch_store
        return LogDeviceError(
            result.status,
            f"{format_shard(self._shard)} cannot be registered in the epoch store {where}: {result.detail}",
        )

    async def _ask(self, operation: Operation) -> Result:
        loop = asyncio.get_running_loop()
        waited = False
        while True:
            answer: asyncio.Future[list[Result]] = loop.create_future()
            self._epoch_store.submit([operation], partial(_resolve, answer))
            result = (await answer)[0]
            if result.status not in (Status.AGAIN, Status.TIMEDOUT):
                return result
            if not waited:
                waited = True
                log.warning("the epoch store %s does not answer (%s); waiting", self._config.epoch_store, result.detail)
            await asyncio.sleep(RETRY)


def _resolve(future: asyncio.Future[list[Result]], results: list[Result]) -> None:
    if not future.done():
        future.set_result(results)
