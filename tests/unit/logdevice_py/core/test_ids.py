"""Names of shards, as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ldquery.ctl import event_log as rebuilding
from logdevice_py.core.ids import NODE_ID_MAX, SHARD_INDEX_MAX, NodeId, ShardId, format_shard, parse_shard, shard_id

LARGEST = shard_id(NODE_ID_MAX, SHARD_INDEX_MAX)


@pytest.mark.parametrize("parse", [parse_shard, rebuilding.parse_shard])
def test_a_shard_is_read_back(parse: Callable[[str], ShardId]) -> None:
    for shard in (shard_id(NodeId(0)), shard_id(NodeId(3), 2), LARGEST):
        assert parse(format_shard(shard)) == shard


@pytest.mark.parametrize("parse", [parse_shard, rebuilding.parse_shard])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "N",
        "N:S0",
        "N3:S",
        "3:S0",
        "N32768:S0",
        "N99999:S0",
        "N3:S128",
        "N3:S999",
        "N-1:S0",
        "N" + "9" * 9000 + ":S0",
    ],
)
def test_numbers_that_no_shard_has_are_refused_in_words(parse: Callable[[str], ShardId], text: str) -> None:
    with pytest.raises(ValueError, match="is no shard"):
        parse(text)
