"""What becomes of lost and drained shards, in words for operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.ids import ShardId, format_shard
from logdevice_py.core.lsn import Lsn
from logdevice_py.event_log.events import RebuildMode
from logdevice_py.event_log.rebuilding_set import RebuildingSet, RebuildingShard

_NAMED_MAX: Final = 8
_STANDING: Final = {
    (RebuildMode.RESTORE, "rebuilding"): "is lost and being rebuilt",
    (RebuildMode.RESTORE, "rebuilt"): "is lost and rebuilt",
    (RebuildMode.RESTORE, "unplaced"): "is lost, and rebuilding it ended unplaced: some records have copies less",
    (RebuildMode.RESTORE, "uncertain"): "is lost, and rebuilding it ended uncertain: some records may be gone",
    (RebuildMode.RELOCATE, "rebuilding"): "is being drained",
    (RebuildMode.RELOCATE, "rebuilt"): "is drained",
    (RebuildMode.RELOCATE, "unplaced"): "was drained, which ended unplaced: some records have copies less without it",
    (RebuildMode.RELOCATE, "uncertain"): "was drained, which ended uncertain: some records may be gone",
}


def standing(mode: RebuildMode, status: str) -> str:
    """How a shard is of which the event log has this mode and this `RebuildingShard.status`: what follows its name in a sentence."""
    return _STANDING[mode, status]


@dataclass(frozen=True, slots=True)
class ShardNews:
    """Something to be told."""

    text: str
    alarm: bool = False
    """Data was lost, or has copies less, or may have."""


@dataclass(frozen=True, slots=True)
class ToldShards:
    """A state that was told."""

    round: Lsn
    shards: Mapping[ShardId, RebuildingShard]

    @classmethod
    def of(cls, state: RebuildingSet) -> ToldShards:
        """As the state is at this moment."""
        return cls(state.round, dict(state.shards))


def summary(state: RebuildingSet) -> ShardNews | None:
    """One line for all shards that are not rebuilt, or not as they should be; None: there are none."""
    found = [entry for _, entry in sorted(state.shards.items()) if entry.status != "rebuilt"]
    if not found:
        return None
    text = "; ".join(f"{format_shard(entry.shard)} {standing(entry.mode, entry.status)}" for entry in found)
    return ShardNews(text, any(entry.mode is RebuildMode.RESTORE or entry.flags for entry in found))


def changes(told: ToldShards, state: RebuildingSet) -> list[ShardNews]:
    """What became of shards since."""
    lines: list[ShardNews] = []
    for shard in sorted(told.shards.keys() | state.shards.keys()):
        lines.extend(_of_shard(shard, told.shards.get(shard), state.shards.get(shard)))
    if state.round != told.round and state.open_shards:
        open_shards = named(entry.shard for entry in state.open_shards)
        lines.append(
            ShardNews(f"rebuilding of {open_shards} begins: {named(state.donors)} look through what they hold")
        )
    return lines


def named(shards: Iterable[ShardId], many: str = "shards") -> str:
    """Their names, of many only how many they are."""
    names = [format_shard(shard) for shard in shards]
    return ", ".join(names) if len(names) <= _NAMED_MAX else f"{len(names)} {many}"


def _of_shard(shard: ShardId, before: RebuildingShard | None, after: RebuildingShard | None) -> Iterator[ShardNews]:
    if before is not None and (after is None or after.generation < before.generation):
        why = "back with its data" if before.mode is RebuildMode.RESTORE else "not drained any more"
        yield ShardNews(f"{format_shard(shard)} is used again: it is {why}")
        return
    if after is None:
        return
    if before is None or after.since != before.since:
        begun = _begun(before, after)
        if begun is None:
            return
        yield begun
    else:
        if after.drained and not before.drained:
            yield ShardNews(f"{format_shard(shard)} is to be drained when it is back")
        if before.recoverable and not after.recoverable:
            yield _unrecoverable(after)
        if before.rebuilt:
            return
    if after.rebuilt:
        yield _ended(after)


def _begun(before: RebuildingShard | None, after: RebuildingShard) -> ShardNews | None:
    name, is_lost = format_shard(after.shard), after.mode is RebuildMode.RESTORE
    # The event log takes any text from whoever may append to it.
    source = "".join(each if each.isprintable() else "?" for each in after.source)
    because = f" ({source})" if source else ""
    if before is not None and before.generation == after.generation:
        if before.mode is after.mode:
            return ShardNews(f"{name} is {'rebuilt' if is_lost else 'drained'} once more{because}")
        if not is_lost:
            return ShardNews(f"{name} is back with its data, and goes on to be drained")
    if is_lost:
        hope = "" if after.recoverable else "; its data does not come back"
        further = "; it is to be drained when it is back" if after.drained else ""
        return ShardNews(
            f"{name} is taken for lost in generation {after.generation}{because}{hope}{further}", alarm=True
        )
    known = 0 if before is None else max(before.lost, before.restored)
    if after.lost > known:
        return ShardNews(
            f"{name} lost what it held up to generation {after.lost}, and begins to be drained{because}", True
        )
    return ShardNews(f"{name} begins to be drained{because}")


def _unrecoverable(entry: RebuildingShard) -> ShardNews:
    name = format_shard(entry.shard)
    if entry.restored >= entry.generation:
        return ShardNews(f"what {name} held in generation {entry.generation} does not come back; it was re-replicated")
    text = f"{name} is declared unrecoverable: nobody waits for its data, and readers report as lost what no other shard has"
    return ShardNews(text, alarm=True)


def _ended(entry: RebuildingShard) -> ShardNews:
    name, silence = format_shard(entry.shard), f"its silence counts as {entry.authority.name}"
    if entry.flags:
        return ShardNews(f"{name} {standing(entry.mode, entry.status)}; {silence}", alarm=True)
    if entry.mode is RebuildMode.RESTORE:
        return ShardNews(f"{name} is rebuilt: what it held is re-replicated by others; {silence}")
    return ShardNews(
        f"{name} is drained: others hold what it holds, and it can be taken out of the cluster file; {silence}"
    )
