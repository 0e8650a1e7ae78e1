"""Quotas of principals at one node: a meter each for the appends, the reads and the look-ups of each that was seen lately.

1. A principal has one meter, however many connections it makes, and whichever logs it uses.
2. The meters of those that were seen longest ago are forgotten when there are too many. A new one begins empty, so nobody gains by being forgotten.
3. Nodes have no quotas.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.quotas import ANY_PRINCIPAL, NO_QUOTA, PrincipalQuota
from logdevice_py.core.ids import PeerId, is_client
from logdevice_py.core.token_bucket import Meter, Rates, metered
from logdevice_py.core.units import Micros
from logdevice_py.shell.proof import Principals

_METERS_MAX: Final = 10_000


class _Meters:
    """Of one operation."""

    __slots__ = ("_by_name", "_rates_of")

    def __init__(self, rates_of: Callable[[PrincipalQuota], Rates]) -> None:
        self._rates_of = rates_of
        self._by_name: OrderedDict[str, Meter | None] = OrderedDict()
        """None: no limit."""

    def find(self, name: str, quota: PrincipalQuota) -> Meter | None:
        by_name = self._by_name
        if name in by_name:
            by_name.move_to_end(name)
            return by_name[name]
        rates = self._rates_of(quota)
        meter = by_name[name] = Meter(rates) if rates else None
        if len(by_name) > _METERS_MAX:
            by_name.popitem(last=False)
        return meter

    def use(self, quota_of: Callable[[str], PrincipalQuota], now: Micros) -> None:
        for name, meter in self._by_name.items():
            self._by_name[name] = metered(meter, self._rates_of(quota_of(name)), now)

    def items(self) -> Iterator[tuple[str, Meter]]:
        for name, meter in list(self._by_name.items()):
            if meter is not None:
                yield name, meter


class PrincipalQuotas:
    """What the principals of a node's clients may do, and how much of it they did."""

    __slots__ = (
        "_appends",
        "_look_ups",
        "_principals",
        "_quotas",
        "_reads",
        "limits_appends",
        "limits_look_ups",
        "limits_reads",
    )

    def __init__(self, config: ClusterConfig, principals: Principals | None = None) -> None:
        """
        Args:
            principals: who clients are; None: all are anonymous.
        """
        self._principals = Principals() if principals is None else principals
        self._quotas: Mapping[str, PrincipalQuota] = {}
        self._appends = _Meters(lambda quota: quota.appends)
        self._reads = _Meters(lambda quota: quota.reads)
        self._look_ups = _Meters(lambda quota: quota.look_ups)
        self.limits_appends = False
        """Some principal has a quota of appends: off, nobody asks for meters."""
        self.limits_reads = False
        self.limits_look_ups = False
        self._take(config)

    def _take(self, config: ClusterConfig) -> None:
        self._quotas = config.quotas
        self.limits_appends = any(quota.appends for quota in self._quotas.values())
        self.limits_reads = any(quota.reads for quota in self._quotas.values())
        self.limits_look_ups = any(quota.look_ups for quota in self._quotas.values())

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """There is another version of the cluster file."""
        if config.quotas != self._quotas:
            self._take(config)
            self._appends.use(self._quota, now)
            self._reads.use(self._quota, now)
            self._look_ups.use(self._quota, now)

    def _quota(self, name: str) -> PrincipalQuota:
        return self._quotas.get(name) or self._quotas.get(ANY_PRINCIPAL, NO_QUOTA)

    def appends(self, peer: PeerId) -> Meter | None:
        """The meter of what a peer appends; None: it has no limit."""
        if not self.limits_appends or not is_client(peer):
            return None
        name = self._principals.of(peer).name
        return self._appends.find(name, self._quota(name))

    def reads(self, peer: PeerId) -> Meter | None:
        """The meter of what a peer reads; None: it has no limit."""
        if not self.limits_reads or not is_client(peer):
            return None
        name = self._principals.of(peer).name
        return self._reads.find(name, self._quota(name))

    def look_ups(self, peer: PeerId) -> Meter | None:
        """The meter of the look-ups that are begun for a peer; None: it has no limit."""
        if not self.limits_look_ups or not is_client(peer):
            return None
        name = self._principals.of(peer).name
        return self._look_ups.find(name, self._quota(name))

    def append_meters(self) -> Iterator[tuple[str, Meter]]:
        """Principals and the meters of their appends, to look at."""
        return self._appends.items()

    def read_meters(self) -> Iterator[tuple[str, Meter]]:
        """Principals and the meters of their reads, to look at."""
        return self._reads.items()

    def look_up_meters(self) -> Iterator[tuple[str, Meter]]:
        """Principals and the meters of their look-ups, to look at."""
        return self._look_ups.items()
