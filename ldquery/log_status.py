"""One row a log: what its sequencer, its shards and the epoch store say of it, for table `logs` and ``ldctl logs status``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from logdevice_py.config.cluster import ClusterConfig, Roles
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.tables.cluster import LogCopies, LogsRow
from logdevice_py.tables.storage import CopiesState

Row = Mapping[str, Any]
ASKED: Final = (
    "info",
    "sequencers",
    "append_throughput",
    "log_storage_state",
    "logsdb_directory",
    "under_replicated_logs",
)
"""The tables of all nodes that it takes, the first before the others: who says that it has looked through its logs says after that what is short. And `epoch_store`, where `lacks_records` says so."""


def lacks_records(logs: Sequence[LogId], sequencers: Iterable[Row]) -> bool:
    """Whether the epoch store has to be asked, since sequencers do not know the newest record of every log."""
    return not {row["log_id"] for row in sequencers if row["tail_time"] is not None}.issuperset(logs)


def logs_rows(
    config: ClusterConfig, logs: Iterable[LogId], found: Mapping[str, Iterable[Row]], silent: Collection[NodeId]
) -> Iterator[LogsRow]:
    """Table `logs`.

    Args:
        found: rows of the tables `ASKED`, and of `epoch_store` as far as it was asked.
        silent: nodes that did not answer for one of them.
    """
    sequencers: dict[int, Row] = {}
    for row in found["sequencers"]:
        if row["state"] == "ACTIVE" and row["epoch"] > sequencers.get(row["log_id"], {"epoch": 0})["epoch"]:
            sequencers[row["log_id"]] = row
    rates = {(row["node_id"], row["log_id"]): row for row in found["append_throughput"]}
    kept = {row["log_id"]: row for row in found.get("epoch_store", ())}
    states, directory = _by_log(found["log_storage_state"]), _by_log(found["logsdb_directory"])
    short = _by_log(found["under_replicated_logs"])
    stores = {node for node, member in config.nodes.items() if Roles.STORAGE in member.roles}
    reviewed = {row["node_id"] for row in found["info"] if row["copies_reviewed"]}
    copies_known = stores <= reviewed and not stores & set(silent)
    for log in logs:
        sequencer, store = sequencers.get(log), kept.get(log)
        rate: Row | None = None
        if sequencer is not None:
            rate = rates.get((sequencer["node_id"], log), {"entries_1min": 0.0, "bytes_1min": 0.0})
        trimmed = max((row["trim_point"] for row in states[log]), default=0)
        lowest = min((row["first_lsn"] for row in directory[log]), default=None)
        yield LogsRow(
            log_id=log,
            path=config.log_name(log),
            sequencer_node_id=None if sequencer is None else sequencer["node_id"],
            epoch=_epoch(sequencer, store),
            head=None if lowest is None else max(lowest, trimmed + 1),
            tail=_tail(sequencer, store, states[log]),
            stored_bytes=sum(row["approximate_size_bytes"] for row in directory[log]),
            newest_time=_newest(sequencer, store),
            entries_1min=None if rate is None else rate["entries_1min"],
            bytes_1min=None if rate is None else rate["bytes_1min"],
            copies=_copies(short[log], copies_known).name,
        )


def _by_log(rows: Iterable[Row]) -> Mapping[int, list[Row]]:
    by_log: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_log[row["log_id"]].append(row)
    return by_log


def _epoch(sequencer: Row | None, store: Row | None) -> int | None:
    if sequencer is not None:
        epoch: int = sequencer["epoch"]
        return epoch
    return None if store is None or store["epoch"] is None else store["epoch"] - 1 or None


def _tail(sequencer: Row | None, store: Row | None, states: Iterable[Row]) -> int | None:
    said = [row["last_released"] for row in states]
    if sequencer is not None:
        said.append(sequencer["last_released"])
    if store is not None:
        said.append(store["tail_lsn"] or 0)
    return max(said, default=0) or None


def _newest(sequencer: Row | None, store: Row | None) -> int | None:
    times = [row["tail_time"] for row in (sequencer, store) if row is not None and row["tail_time"]]
    return max(times, default=None)


def _copies(short: Sequence[Row], known: bool) -> LogCopies:
    if any(row["state"] == CopiesState.GONE.name for row in short):
        return LogCopies.GONE
    if short:
        return LogCopies.SHORT
    return LogCopies.OK if known else LogCopies.UNKNOWN
