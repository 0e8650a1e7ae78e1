"""Settings of placement, the same for all nodes of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings:
    """Section ``[settings.placement]`` of the cluster file."""

    policy: str = setting(
        "weighted",
        unit="text",
        doc='Who chooses nodesets and copysets: "weighted", "rack-aware", "region-aware", or a class of your own as "module:Class", '
        "which all nodes must have.",
    )
    policy_options: str = setting("", unit="text", doc="What a policy of your own makes of it; the others ignore it.")
    min_racks: int = setting(
        2,
        unit="racks",
        lo=1,
        hi=127,
        doc="In how many racks the copies of a record should be at least by the policies rack-aware and region-aware; where fewer are available, in all of them. "
        "What must never be broken belongs into `replicate`.",
    )
    disabled_regions: str = setting(
        "",
        unit="text",
        doc="Regions that take no new records and are in no new nodeset, separated by commas. What they have is read as before.",
    )
    resolver_script: str = setting(
        "",
        unit="text",
        doc="A program that prints where hosts stand, for `ldctl locations`: names are its arguments, it prints a location for each, like /region/rack.",
    )
    resolver_class: str = setting(
        "",
        unit="text",
        doc='A class instead, as "module:Class"; `logdevice_py.placement.resolvers:HostNames` reads hosts named region-rack-rest.',
    )
    resolver_arguments_max: int = setting(
        100, unit="names", lo=1, hi=10_000, doc="How many names the program gets at a time."
    )
    default_location: str = setting(
        "", unit="text", doc="Where a host stands that the resolver does not know; empty: it stays where it is."
    )
    topology_stabilize_period_us: int = setting(
        0,
        unit="us",
        lo=0,
        hi=86_400_000_000,
        doc="How long a resolver must find the same other location before it counts, with `ldctl locations --watch`.",
    )
