"""What a shard has to say to the operator."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.ids import ShardId


@dataclass(slots=True)
class Notice:
    """Effect: a line for the node's log. Lines of one kind count together when there are too many."""

    shard: ShardId
    kind: str
    text: str
