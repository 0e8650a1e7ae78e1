"""How far apart the copies of a log are, and what may fail: rows of table `log_placement`, from what the nodes have stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ldquery.comparison import domains_of, interval_of
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Scope
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import LogId, NodeId, ShardId, node_of, parse_shard, shard_id
from logdevice_py.core.lsn import Lsn, compose_lsn
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.survival import Survival, copies_survive, domains_among, survival
from logdevice_py.tables.storage import LogPlacementRow

Row = Mapping[str, Any]
_SCOPES = sorted(Scope, reverse=True)


def placement_rows(
    config: ClusterConfig,
    log: LogId,
    copies: Iterable[Row],
    metadata: Sequence[Row],
    looked_at: tuple[Lsn, Lsn],
    silent: Collection[NodeId],
) -> list[LogPlacementRow]:
    """Rows of table `log_placement`.

    Args:
        copies: rows of `copyset_distribution` of all nodes that answered.
        metadata: rows of `historical_metadata` of the log.
        looked_at: the first and the last LSN of the entries that were asked for.
        silent: nodes that did not answer: they count as lost.
    """
    stored: dict[int, list[Row]] = defaultdict(list)
    for row in copies:
        interval = interval_of(metadata, row["lsn"] >> 32)
        if interval is not None:
            stored[interval["since"]].append(row)
    attributes = config.log(log)
    current = max((row["since"] for row in metadata if row["since"] is not None), default=None)
    found: list[LogPlacementRow] = []
    for interval in metadata:
        since = interval["since"]
        if since is None or (since != current and since not in stored):
            continue
        replication = attributes.replication if attributes is not None else None
        asked = replication or ReplicationProperty.parse(interval["replication"])
        began = min(max(looked_at[0], compose_lsn(since, 0)), looked_at[1])
        found += _of_interval(config, log, began, interval, stored[since], asked, silent, since == current)
    return found


def _of_interval(
    config: ClusterConfig,
    log: LogId,
    began: Lsn,
    interval: Row,
    copies: Sequence[Row],
    asked: ReplicationProperty,
    silent: Collection[NodeId],
    is_current: bool,
) -> Iterable[LogPlacementRow]:
    domains = domains_of(config, interval)
    whole, partial_ = _copysets(copies, silent)
    gone = frozenset(shard for shard in domains.shards if node_of(shard) in silent)
    left = {copyset: [shard for shard in copyset if node_of(shard) not in silent] for copyset in whole}
    everyone = {*domains.shards, *(shard for copyset in whole for shard in copyset)}
    nodes = _grouped(domains_among(everyone, partial(domain_name, config, Scope.NODE)))
    shown: set[frozenset[ShardId]] = set()
    for scope in _SCOPES:
        domain = partial(domain_name, config, scope)
        by_name = domains_among(everyone, domain)
        grouped = _grouped(by_name)
        if scope is not Scope.NODE and (len(grouped) < 2 or grouped in (shown, nodes)):
            continue
        shown = grouped
        spans = {copyset: len({domain(shard) for shard in copyset}) for copyset in whole}
        factor = max((factor for at, factor in asked.factors if at >= scope), default=1)
        data = copies_survive(left.values(), domain)
        appends = _survival(config, domains, by_name, gone, _can_append) if is_current else None
        recovery = _survival(config, domains, by_name, gone, _can_recover)
        yield LogPlacementRow(
            log_id=log,
            lsn=began,
            since_epoch=interval["since"],
            until_epoch=interval["epoch"],
            scope=scope.name.lower(),
            asked=factor,
            domains=len(domains_among(domains.shards, domain)),
            entries=sum(whole.values()),
            copysets=len(whole),
            spanned_min=min(spans.values(), default=None),
            spanned_max=max(spans.values(), default=None),
            entries_short=sum(whole[copyset] for copyset, span in spans.items() if span < factor),
            entries_partial=partial_,
            data_survives=None if data is None else data.any_of,
            data_fatal="" if data is None else ", ".join(data.fatal),
            appends_survive=None if appends is None else appends.any_of,
            appends_fatal="" if appends is None else ", ".join(appends.fatal),
            recovery_survives=recovery.any_of,
            recovery_fatal=", ".join(recovery.fatal),
        )


def _copysets(copies: Iterable[Row], silent: Collection[NodeId]) -> tuple[dict[tuple[ShardId, ...], int], int]:
    """How many entries each copyset has, by the member that answered and has the fewest; and how many more others have of it."""
    held: dict[tuple[ShardId, ...], dict[ShardId, int]] = defaultdict(dict)
    for row in copies:
        copyset = tuple(sorted(map(parse_shard, row["copyset"].split(", "))))
        shard = shard_id(NodeId(row["node_id"]), row["shard"])
        held[copyset][shard] = held[copyset].get(shard, 0) + row["entries"]
    whole, partial_ = {}, 0
    for copyset, by_shard in held.items():
        counts = [by_shard.get(shard, 0) for shard in copyset if node_of(shard) not in silent]
        fewest, most = min(counts, default=0), max(by_shard.values())
        partial_ += most - fewest
        if fewest:
            whole[copyset] = fewest
    return whole, partial_


def _grouped(by_name: Mapping[str, frozenset[ShardId]]) -> set[frozenset[ShardId]]:
    return set(by_name.values())


def domain_name(config: ClusterConfig, scope: Scope, shard: ShardId) -> str:
    """How people name the domain of a shard at a scope, by today's cluster file."""
    location = config.location(shard)
    if location is None or scope is Scope.NODE:
        return f"N{node_of(shard)}"
    return location.domain(scope, node_of(shard)).strip(".") or "no place"


def _survival(
    config: ClusterConfig,
    domains: FailureDomains,
    by_name: dict[str, frozenset[ShardId]],
    gone: frozenset[ShardId],
    can: Callable[[ClusterConfig, FailureDomains, frozenset[ShardId]], bool],
) -> Survival:
    return survival(by_name, lambda lost: can(config, domains, lost | gone))


def _can_append(config: ClusterConfig, domains: FailureDomains, lost: frozenset[ShardId]) -> bool:
    return domains.can_replicate([s for s in domains.shards if s not in lost and config.is_writable(s)])


def _can_recover(config: ClusterConfig, domains: FailureDomains, lost: frozenset[ShardId]) -> bool:
    return domains.f_majority([shard for shard in domains.shards if shard not in lost]).is_authoritative
