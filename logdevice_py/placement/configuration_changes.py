"""Which changes of a stored configuration are refused: all reasons, as a change is taken as a whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import NodeId, ShardId, format_shard, node_of
from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError
from logdevice_py.placement.cluster_placement import check_policy
from logdevice_py.placement.moves import check_moves


def why_refused(
    earlier: Sequence[ClusterConfig],
    after: ClusterConfig,
    empty: Collection[ShardId],
    accepted: Collection[NodeId] = (),
) -> list[str]:
    """Why a change is refused; empty: it is not.

    Args:
        earlier: the versions that are known, the one in force last. Each change may be harmless while all together are not.
        after: what is wanted, which is valid by itself.
        empty: shards of which everything is stored elsewhere.
        accepted: nodes whose data may be lost.
    """
    before = earlier[-1]
    return [
        *_other_cluster(before, after),
        *_log_tree(before, after),
        *_moves(earlier, after),
        *_policy(after),
        *_departures(before, after, empty, accepted),
    ]


def _other_cluster(before: ClusterConfig, after: ClusterConfig) -> Iterator[str]:
    if (before.name, before.uuid) != (after.name, after.uuid):
        yield f'name, uuid: they are of another cluster; this one is "{before.name}", {before.uuid.hex()}'
    if before.epoch_store != after.epoch_store:
        yield (
            f'epoch_store: found "{after.epoch_store}", it stays "{before.epoch_store}": the configuration itself stands there. '
            "To move it, stop all nodes and see docs/disaster.md"
        )


def _log_tree(before: ClusterConfig, after: ClusterConfig) -> Iterator[str]:
    if before.has_log_tree and not after.has_log_tree:
        yield (
            "settings.log_tree.enabled: it cannot be switched off: logs that were made at run time would be unknown, and their ids could be given again"
        )


def _moves(earlier: Sequence[ClusterConfig], after: ClusterConfig) -> Iterator[str]:
    for before in reversed(earlier):
        try:
            check_moves(before, after)
        except LogDeviceError as error:
            if before is not earlier[-1]:
                hit("configuration_moved_in_steps")
            since = "" if before is earlier[-1] else f" (compared with version {before.version})"
            yield f"nodes{since}: {error.detail}"
            return


def _policy(after: ClusterConfig) -> Iterator[str]:
    try:
        check_policy(after)
    except LogDeviceError as error:
        yield str(error.detail)


def departing(
    before: ClusterConfig, after: ClusterConfig, accepted: Collection[NodeId] = ()
) -> tuple[list[ShardId], list[ShardId]]:
    """Shards that have to be empty: those that would be gone, and those that would keep no metadata logs any more.

    Args:
        accepted: nodes whose data may be lost.
    """
    gone = set(before.storage_shards()) - set(after.storage_shards())
    unlisted = set(before.metadata_log.nodeset) - set(after.metadata_log.nodeset) - gone

    def held(shards: set[ShardId]) -> list[ShardId]:
        return sorted(shard for shard in shards if node_of(shard) not in accepted)

    return held(gone), held(unlisted)


def _departures(
    before: ClusterConfig, after: ClusterConfig, empty: Collection[ShardId], accepted: Collection[NodeId]
) -> Iterator[str]:
    gone, unlisted = departing(before, after, accepted)
    for shards, where in ((gone, "nodes"), (unlisted, "metadata_log.nodeset")):
        full = [shard for shard in shards if shard not in empty]
        if not full:
            continue
        names = ", ".join(map(format_shard, full))
        nodes = " ".join(f"--accept-data-loss N{node}" for node in sorted({node_of(shard) for shard in full}))
        how = (
            f"Empty them first ({'; '.join(f'ldctl drain {format_shard(shard)} --wait' for shard in full)})"
            if before.rebuilding_enabled
            else "Rebuilding is off, so nobody stores elsewhere what they hold (ldctl check-impact tells what depends on them)"
        )
        what = "would be gone" if where == "nodes" else "would keep no metadata logs any more"
        yield f"{where}: {names} {what}, and what they hold is not stored elsewhere. {how}; or give {nodes}"
