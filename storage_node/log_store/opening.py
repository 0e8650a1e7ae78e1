"""How a shard's store is opened, whoever's it is, and how the shard is registered: the steps, for whoever carries them out."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from logdevice_py.core.ids import Generation, ShardId
from logdevice_py.tables.storage import QuarantineReason
from storage_node.log_store.identity import NO_GENERATION, IdentityVerdict, Judgement, ShardMarker, judge


class Look:
    """Look at the store that is there. Outcome: its `ShardMarker` (None without one that can be read), and whether it is empty."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Move the store aside, never delete it, and open an empty one in its place."""

    reason: QuarantineReason
    why: str
    """For the operator."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Leave a marker in the store, durably."""

    marker: ShardMarker


@dataclass(frozen=True, slots=True)
class Register:
    """Ask the epoch store which generation the shard has from here on (`RegisterShard`). Outcome: the generation."""

    found: Generation | None
    """In the store; None: none that counts."""
    incarnation: int
    birth: bytes
    """What a disk without a generation calls itself."""


class LoadContents:
    """Load what the store holds."""


class Note:
    """Tell the epoch store how far the disk is (`NoteIncarnation`): from here on nothing else passes for it."""


Step = Look | Quarantine | Adopt | Register | LoadContents | Note


def open_shard(
    shard: ShardId,
    cluster: bytes,
    *,
    admit: Callable[[Judgement], None],
    new_birth: Callable[[], bytes],
    report: Callable[[str], None],
) -> Generator[Step, Any, None]:
    """The steps that open a shard, in order; the shard may serve when there are no more. A step that fails ends the opening.

    Args:
        cluster: UUID of the cluster.
        admit: raises when what was found must not be used nor replaced; nothing was changed then.
        new_birth: random bytes that name a new disk.
        report: gets sentences for the operator.
    """
    marker, empty = yield Look()
    judgement = judge(marker, empty=empty, cluster=cluster, shard=shard)
    admit(judgement)
    if judgement.verdict is IdentityVerdict.QUARANTINE:
        yield Quarantine(QuarantineReason.FOREIGN, judgement.reason)
    kept, birth = judgement.kept, judgement.birth
    if kept is None and not birth:
        # what an empty store calls itself until it has a generation: should the process end before that, it gets the same one
        birth = new_birth()
        yield Adopt(ShardMarker(cluster, shard, NO_GENERATION, birth=birth))
    generation: Generation = yield Register(kept, judgement.incarnation, birth)
    if kept is not None and generation != kept:
        # epochs name the generation that they are stored on: no request for what lies here would ever be answered
        yield Quarantine(
            QuarantineReason.REPLACED,
            f"the store had generation {kept}, which ended when a later one began; the shard begins empty as generation {generation}: "
            "what it held counts no more",
        )
    if judgement.verdict is IdentityVerdict.NEW_GENERATION and generation > 1:
        report(f"{judgement.reason}, and was not before: it begins as generation {generation}")
    yield Adopt(ShardMarker(cluster, shard, generation))
    yield LoadContents()
    yield Note()
