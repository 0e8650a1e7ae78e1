"""Look-ups whose answer rests on shards that lost what they held: shards that joined the nodesets since may have it."""

from __future__ import annotations

from typing import Any

from client.look_up.survey import surveyed
from logdevice_py.core.ids import NodeId, ShardId, shard_id

SHARDS = [shard_id(NodeId(node)) for node in range(4)]


class Parts:
    """Nodesets that were read at some time."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lost: frozenset[ShardId] = frozenset()


async def look_up(*losses: list[ShardId]) -> tuple[int, int]:
    """By which nodesets is answered, and how often shards were asked, when answers rest on these losses in turn."""
    asked: list[Parts] = []
    read = iter(range(1, 10))

    async def ask(parts: Any) -> int:
        asked.append(parts)
        parts.lost = frozenset(losses[min(len(asked), len(losses)) - 1])
        return int(parts.number)

    async def parts_anew() -> Any:
        return Parts(next(read))

    first: Any = Parts(0)
    return await surveyed(ask, first, parts_anew), len(asked)


async def test_an_answer_that_rests_on_nobody_s_loss_is_taken() -> None:
    assert await look_up([]) == (0, 1)


async def test_otherwise_nodesets_are_read_that_are_later_than_each_loss() -> None:
    assert await look_up(SHARDS[:2]) == (1, 2)
    assert await look_up(SHARDS[:2], []) == (1, 2)
    assert await look_up(SHARDS[:2], SHARDS[1:3], SHARDS[1:3]) == (2, 3)
