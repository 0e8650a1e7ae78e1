"""Settings of failure detection."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """Section ``[settings.membership]`` of the cluster file."""

    gossip_interval_us: int = setting(
        100_000,
        unit="us",
        lo=1_000,
        hi=10_000_000,
        sim=(10_000, 1_000_000),
        doc="How often a node tells others what it knows.",
    )
    gossip_threshold: int = setting(
        10,
        unit="intervals",
        lo=2,
        hi=1000,
        sim=(3, 50),
        doc="A node that nobody has heard of for more intervals is dead.",
    )
    gossip_all_nodes_max: int = setting(
        20,
        unit="nodes",
        lo=2,
        doc="Up to this many nodes everybody gossips to everybody; beyond, to gossip_fanout others.",
    )
    gossip_fanout: int = setting(
        4,
        unit="nodes",
        lo=1,
        doc="How many nodes a gossip goes to in large clusters; one alone would declare living nodes dead.",
    )
    starting_intervals: int = setting(
        3,
        unit="intervals",
        lo=0,
        hi=100,
        doc="A node that just started sequences nothing for this long, to hear of others first; nor until it has heard of one, for gossip_threshold intervals at most.",
    )


@dataclass(slots=True)
class MembershipMetrics:
    """Counters of failure detection."""

    gossips_sent: int = counter("Gossip messages sent.", unit="messages")
    gossips_received: int = counter("Gossip messages taken.", unit="messages")
    gossips_stale: int = counter("Gossip messages of an earlier run of their sender, dropped.", unit="messages")
    deaths: int = counter("Times that another node was found dead.", unit="events")
