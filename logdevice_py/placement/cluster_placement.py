"""The placement of a cluster's logs: the policy that its configuration names, and the checks that keep a bad policy from doing harm."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.declare import settings_from
from logdevice_py.core.ids import NODESET_SIZE_MAX, LogId, ShardId, format_shard
from logdevice_py.core.machine import Rng
from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.placement.extra_copies import ExtraCopies
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.policies import RackAware, RegionAware, Weighted
from logdevice_py.placement.policy import CopysetSource, PlacementPolicy
from logdevice_py.placement.reading_order import ReadHealth
from logdevice_py.placement.settings import PlacementSettings
from logdevice_py.placement.topology import Topology

BUILT_IN: Final[Mapping[str, Callable[[PlacementSettings], PlacementPolicy]]] = {
    "weighted": Weighted,
    "rack-aware": RackAware,
    "region-aware": RegionAware,
}
"""The policies by the names that the configuration knows them by."""
Told = Callable[[str], None]


def load_policy(settings: PlacementSettings) -> PlacementPolicy:
    """The policy that is configured.

    Raises:
        LogDeviceError: INVALID_CONFIG: there is none of that name, or it cannot be made.
    """
    name = settings.policy
    found: Any = BUILT_IN.get(name)
    if found is None:
        module, _, attribute = name.partition(":")
        if not module or not attribute:
            known = ", ".join(f'"{each}"' for each in BUILT_IN)
            raise LogDeviceError(
                Status.INVALID_CONFIG,
                f'[settings.placement] policy: {name!r} is none of {known}; a class of your own is written "module:Class"',
            )
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise LogDeviceError(
                Status.INVALID_CONFIG, f"[settings.placement] policy: {name!r} cannot be imported here: {error}"
            ) from error
    try:
        policy: PlacementPolicy = found(settings)
    except Exception as error:  # somebody else's code
        raise LogDeviceError(
            Status.INVALID_CONFIG, f"[settings.placement] policy: {name!r} cannot be made: {_error(error)}"
        ) from error
    return policy


def placement_settings(config: ClusterConfig) -> PlacementSettings:
    """What the cluster's configuration says of placement.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    try:
        return settings_from(PlacementSettings, config.settings.get("placement", {}))
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"[settings.placement] {error}") from None


def check_policy(config: ClusterConfig) -> None:
    """Refuse a configuration whose policy this process does not have: it would choose otherwise than the others.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    load_policy(placement_settings(config)).close()


class ClusterPlacement:
    """The policy of a cluster as one process uses it.

    What a policy of somebody else's chooses is checked; where it fails, or raises, `weighted` chooses instead, which is counted and told.

    Args:
        config: the version in force.
        told: called with what a policy did wrong, each time.
    """

    __slots__ = ("_fallback", "_policy", "_settings", "_told", "_topology", "_trusted", "lost", "refusals")

    def __init__(self, config: ClusterConfig, told: Told = lambda text: None) -> None:
        self.refusals = 0
        """How often `weighted` chose because the policy's choice would not do."""
        self.lost: frozenset[ShardId] = frozenset()
        """The shards that the last change of the cluster took away."""
        self._told = told
        self._settings: PlacementSettings | None = None
        self._fallback = Weighted(PlacementSettings())
        self._policy: PlacementPolicy = self._fallback
        self._trusted = True
        self._topology = Topology((), frozenset())
        self.set_config(config)

    def set_config(self, config: ClusterConfig) -> None:
        """There is another version of the cluster's configuration, or other shards are lost or drained."""
        self._topology = Topology.of(config)
        self.lost = self._fallback.on_cluster_changed(self._topology)
        try:
            settings = placement_settings(config)
            if settings != self._settings:
                self.close()
                self._policy, self._trusted = self._fallback, True
                self._settings = settings
                policy = load_policy(settings)
                self._policy, self._trusted = policy, settings.policy in BUILT_IN
        except LogDeviceError as error:
            self._refuse(error.detail)
            return
        if self._policy is not self._fallback:
            self.lost = self._asked("on_cluster_changed", self._topology) or self.lost

    def close(self) -> None:
        """Nothing is chosen any more."""
        if self._policy is not self._fallback:
            self._asked("close")

    def select_nodeset(self, log: LogId, attributes: LogAttributes) -> tuple[ShardId, ...]:
        """The nodeset of new epochs of a log, ascending.

        Raises:
            LogDeviceError: INVALID_CONFIG when the writable shards cannot satisfy the replication property; the text counts them.
        """
        nodeset: tuple[ShardId, ...] | None
        if self._trusted:
            nodeset = self._policy.select_nodeset(log, attributes)
        else:
            nodeset = self._checked_nodeset(log, attributes)
        if nodeset is None:
            raise self._too_few(attributes)
        return nodeset

    def copysets(self, domains: FailureDomains, at: Location | None, rng: Rng) -> CopysetSource:
        """Who chooses the copysets of an epoch; as `PlacementPolicy.copysets`."""
        if self._trusted:
            return self._policy.copysets(domains, at, rng)
        fallback = self._fallback.copysets(domains, at, rng)
        proposed = self._asked("copysets", domains, at, rng)
        return fallback if proposed is None else _CheckedSource(proposed, fallback, domains, self._refuse)

    def extra_copies(self, domains: FailureDomains, count: int, rng: Rng) -> ExtraCopies:
        """Who chooses the extra copies of an epoch."""
        return ExtraCopies(count, domains.by_shard, self._topology.capacity, rng)

    def reading_order(
        self, shards: Sequence[ShardId], at: Location | None, health: Callable[[ShardId], ReadHealth], rng: Rng
    ) -> list[ShardId]:
        """The shards in the order in which a reader should ask them; as `PlacementPolicy.reading_order`."""
        proposed = self._asked("reading_order", shards, at, health, rng)
        if isinstance(proposed, Sequence) and sorted(proposed, key=str) == sorted(shards, key=str):
            return list(proposed)
        if proposed is not None:
            self._refuse(f"{self._name}: an order of reading lacks shards, or has others: {proposed!r:.100}")
        return list(self._fallback.reading_order(shards, at, health, rng))

    def _checked_nodeset(self, log: LogId, attributes: LogAttributes) -> tuple[ShardId, ...] | None:
        before = self.refusals
        proposed = self._asked("select_nodeset", log, attributes)
        if proposed is not None:
            wrong = self._wrong_nodeset(proposed, attributes.replication)
            if not wrong:
                return tuple(sorted(proposed))
            self._refuse(f"log {log}: the nodeset chosen by {self._name} {wrong}")
        chosen = self._fallback.select_nodeset(log, attributes)
        if proposed is None and chosen is not None and self.refusals == before:
            self._refuse(f"log {log}: {self._name} finds no nodeset where there is one")
        return chosen

    def _wrong_nodeset(self, proposed: Any, replication: ReplicationProperty) -> str:
        """What forbids a nodeset; empty: nothing does."""
        if not isinstance(proposed, Sequence) or any(type(shard) is not int for shard in proposed):
            return f"is no sequence of shards: {proposed!r:.100}"
        if len(set(proposed)) != len(proposed):
            return "lists a shard twice"
        if len(proposed) > NODESET_SIZE_MAX:
            return f"has {len(proposed)} shards, at most {NODESET_SIZE_MAX} are allowed"
        strange = sorted(set(proposed) - self._topology.eligible)
        if strange:
            return f"lists shards that are not eligible: {', '.join(map(str, strange[:5]))}"
        writable = sorted(self._topology.writable.intersection(proposed))
        if not FailureDomains.by_file(writable, replication, self._topology.location).can_replicate(writable):
            return f'has {len(writable)} writable shards, which cannot satisfy "{replication}"'
        return ""

    def _too_few(self, attributes: LogAttributes) -> LogDeviceError:
        topology, replication = self._topology, attributes.replication
        nodes = [node for node in topology.nodes if topology.writable.intersection(node.shards)]
        writable = len(topology.writable.intersection(shard for node in nodes for shard in node.shards))
        counts = [
            f"{factor} {scope.name.lower()}{'s' * (factor != 1)} are needed, they are in "
            f"{len({node.location.domain(scope, node.node) for node in nodes})}"
            for scope, factor in replication.factors
        ]
        return LogDeviceError(
            Status.INVALID_CONFIG,
            f'{attributes.path}: the {writable} writable shards that can be chosen do not satisfy "{replication}" ({"; ".join(counts)}); '
            "make more storage nodes read-write, or lower the replication property",
        )

    @property
    def _name(self) -> str:
        return f"policy {self._settings.policy}" if self._settings is not None else "the policy"

    def _asked(self, method: str, *arguments: Any) -> Any:
        """What a method of the policy returns; None: it raised, which is counted."""
        try:
            return getattr(self._policy, method)(*arguments)
        except Exception as error:  # noqa: BLE001  (somebody else's code must not stop a node)
            self._refuse(f"{self._name}: {method} failed: {_error(error)}")
            return None

    def _refuse(self, text: str) -> None:
        hit("placement_policy_refused")
        self.refusals += 1
        self._told(text)


class _CheckedSource:
    """The copysets of a policy of somebody else's, each checked against the property and the failure domains of the epoch."""

    __slots__ = ("_domains", "_fallback", "_proposed", "_refuse")

    def __init__(self, proposed: CopysetSource, fallback: CopysetSource, domains: FailureDomains, refuse: Told) -> None:
        self._proposed = proposed
        self._fallback = fallback
        self._domains = domains
        self._refuse = refuse

    @property
    def nodeset(self) -> tuple[ShardId, ...]:
        """As `CopysetSource`."""
        return self._domains.shards

    def pick(self, available: Callable[[ShardId], bool]) -> tuple[ShardId, ...] | None:
        """As `CopysetSource`."""
        chosen, wrong = self._try(lambda: self._proposed.pick(available), (), available)
        if chosen is not None and not wrong:
            copies = self._domains.replication.copies
            wrong = f"has {len(chosen)} shards instead of {copies}" if len(chosen) != copies else ""
            if not wrong:
                return chosen
        instead = self._fallback.pick(available)
        if wrong or instead is not None:
            self._refuse(wrong or "no copyset is found where there is one")
        return instead

    def replace(self, kept: Sequence[ShardId], available: Callable[[ShardId], bool]) -> tuple[ShardId, ...] | None:
        """As `CopysetSource`."""
        kept = list(dict.fromkeys(kept))
        instead = self._fallback.replace(kept, available)
        if instead is None:
            return None
        chosen, wrong = self._try(lambda: self._proposed.replace(kept, available), kept, available)
        if chosen is not None and not wrong:
            if list(chosen[: len(kept)]) != kept:
                wrong = "does not begin with what is kept"
            elif len(chosen) > len(instead):
                wrong = f"adds {len(chosen) - len(kept)} shards where {len(instead) - len(kept)} do"
            else:
                return chosen
        self._refuse(wrong or "no copyset is found where there is one")
        return instead

    def _try(
        self,
        choose: Callable[[], tuple[ShardId, ...] | None],
        kept: Sequence[ShardId],
        available: Callable[[ShardId], bool],
    ) -> tuple[tuple[ShardId, ...] | None, str]:
        """What the policy chose, and what is wrong with it; None and an empty text: it chose nothing."""
        try:
            chosen = choose()
            if chosen is None:
                return None, ""
            chosen = tuple(chosen)
            if len(set(chosen)) != len(chosen):
                return chosen, "a copyset lists a shard twice"
            added = [shard for shard in chosen if shard not in kept]
            strange = [shard for shard in added if shard not in self._domains.shards or not available(shard)]
            if strange:
                return chosen, f"a copyset lists {format_shard(strange[0])}, which is not available in the nodeset"
            if not self._domains.can_replicate(chosen):
                return chosen, f'a copyset does not satisfy "{self._domains.replication}"'
            return chosen, ""
        except Exception as error:  # noqa: BLE001  (somebody else's code must not stop a node)
            return None, f"choosing a copyset failed: {_error(error)}"


def _error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
