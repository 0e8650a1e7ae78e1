"""Tables ``[quotas.NAME]`` of the cluster file: how much each principal may append, read and look up at one node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from logdevice_py.core.declare import setting, settings_from
from logdevice_py.core.principal import check_principal_name
from logdevice_py.core.token_bucket import BURST_US, Rates, RateSettings

ANY_PRINCIPAL: Final = "*"
"""Instead of a name: each principal without a table of its own."""


@dataclass(frozen=True, kw_only=True)
class PrincipalQuota(RateSettings):
    """Table ``[quotas.NAME]`` of the cluster file: what one principal may do at each node; NAME is ``"*"`` for each one that has no table of its own."""

    append_bytes_per_s: int = setting(
        0, unit="bytes", lo=0, hi=1 << 50, doc="Bytes of payloads that it may append in a second; 0 is no limit."
    )
    append_records_per_s: int = setting(
        0, unit="records", lo=0, hi=1 << 40, doc="Records that it may append in a second; 0 is no limit."
    )
    read_bytes_per_s: int = setting(
        0,
        unit="bytes",
        lo=0,
        hi=1 << 50,
        doc="Bytes of entries that are sent to its readers in a second; 0 is no limit.",
    )
    read_records_per_s: int = setting(
        0, unit="records", lo=0, hi=1 << 40, doc="Records that are sent to its readers in a second; 0 is no limit."
    )
    look_ups_per_s: int = setting(
        0,
        unit="requests",
        lo=0,
        hi=1 << 40,
        doc="Look-ups by time or key, of sizes and of segments, that shards of a node begin for it in a second; 0 is no limit. Each shard that a client asks "
        "counts; beyond the limit it is asked again later.",
    )
    quota_burst_us: int = setting(
        BURST_US,
        unit="us",
        lo=1_000,
        hi=3_600_000_000,
        doc="What it did not use is saved up to as much as it gets in this time.",
    )

    @property
    def look_ups(self) -> Rates:
        """How many look-ups may be begun: requests take the place of records."""
        return Rates(0, self.look_ups_per_s, self.quota_burst_us)


NO_QUOTA: Final = PrincipalQuota()


def parse_principal_quota(name: str, raw: Mapping[str, Any]) -> PrincipalQuota:
    """What a table says.

    Raises:
        ValueError: no principal is called so, there is no such setting, or a value is wrong.
    """
    if name != ANY_PRINCIPAL:
        check_principal_name(name)
    # a duration's unit stands with its value, so people need not type it in the name
    return settings_from(
        PrincipalQuota, {("quota_burst_us" if key == "quota_burst" else key): value for key, value in raw.items()}
    )
