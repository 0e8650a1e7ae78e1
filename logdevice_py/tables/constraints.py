"""What a reader of a table wants to see of it, as far as those who have the rows can look it up instead of looking through everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.ids import LOG_ID_MAX, SHARD_INDEX_MAX, LogId
from logdevice_py.core.lsn import LSN, LSN_INVALID, LSN_MAX, Lsn

PUSHED: Final = ("log_id", "lsn", "shard")
"""Columns whose constraints go to the nodes, in every table that has them. `node_id` decides whom to ask at all."""
_METADATA_LOGS_END: Final = 2 * (LOG_ID_MAX + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """A table's rows are wanted where these hold; a constraint on a column that the table lacks means nothing."""

    log_id: LogId | None = None
    shard: int | None = None
    """Index within its node."""
    lsn_min: Lsn = LSN_INVALID
    lsn_max: Lsn = LSN_MAX
    bare: bool = False
    """Payloads are not wanted: they are NULL."""

    @property
    def nothing(self) -> bool:
        """No LSN can satisfy them."""
        return self.lsn_min > self.lsn_max

    @property
    def constrained(self) -> frozenset[str]:
        """The columns that are constrained."""
        found = {name for name in ("log_id", "shard") if getattr(self, name) is not None}
        if self.lsn_min > LSN_INVALID and self.lsn_max < LSN_MAX:
            found.add("lsn")
        return frozenset(found)

    def wants_shard(self, index: int) -> bool:
        """Whether rows of the shard are wanted."""
        return self.shard is None or self.shard == index

    def parameters(self) -> dict[str, str]:
        """As the query parameters of a request."""
        found = {name: str(value) for name in ("log_id", "shard") if (value := getattr(self, name)) is not None}
        if self.lsn_min > LSN_INVALID:
            found["lsn_min"] = str(int(self.lsn_min))
        if self.lsn_max < LSN_MAX:
            found["lsn_max"] = str(int(self.lsn_max))
        if self.bare:
            found["bare"] = "1"
        return found

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Constraints:
        """From query parameters; ``lsn`` stands for both ends of a range. LSNs may be written like e3n17.

        Raises:
            ValueError: a parameter is not known or out of range; the text names it.
        """
        values: dict[str, int] = {}
        for name, text in parameters.items():
            try:
                if name in ("lsn", "lsn_min", "lsn_max"):
                    values[name] = LSN.parse(text)
                elif name == "log_id":
                    values[name] = _number(text, 1, _METADATA_LOGS_END - 1)
                elif name == "shard":
                    values[name] = _number(text, 0, SHARD_INDEX_MAX)
                elif name == "bare":
                    values[name] = _number(text, 0, 1)
                else:
                    raise ValueError("no such parameter; there are log_id, shard, lsn, lsn_min, lsn_max and bare")
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        if "lsn" in values:
            values["lsn_min"] = values["lsn_max"] = values.pop("lsn")
        return cls(
            log_id=LogId(values["log_id"]) if "log_id" in values else None,
            shard=values.get("shard"),
            lsn_min=Lsn(int(values.get("lsn_min", LSN_INVALID))),
            lsn_max=Lsn(int(values.get("lsn_max", LSN_MAX))),
            bare=bool(values.get("bare", 0)),
        )


EVERYTHING: Final = Constraints()


def _number(text: str, lo: int, hi: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and lo <= int(text) <= hi):
        raise ValueError(f"{text!r} is no number from {lo} to {hi}")
    return int(text)
