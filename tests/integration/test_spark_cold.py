"""What Spark's tasks do for a stream of which only cold copies have a part, without Spark."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

from client.spark.schema import source_schema
from logdevice_py import LocalCluster, Namespace
from streams.attributes import Roll
from streams.spark.options import StreamOptions
from streams.spark.reader import TXID, StreamTableReader
from streams.upkeep.janitor import Janitor


def rows(file: str, **options: Any) -> list[list[tuple[int, int, int | None, bytes]]]:
    """Of each partition, as executors make them from what the driver sends."""
    chosen = StreamOptions.of({"path": "stream:/streams/old", "cluster": file, **options})
    reader = StreamTableReader(chosen, source_schema(chosen.source, [TXID]))
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions())):
        batches = [batch.to_pylist() for batch in reader.read(partition)]
        found.append(
            [(row["lsn"], row["batch_offset"], row["txid"], row["payload"]) for batch in batches for row in batch]
        )
    return found


async def test_tasks_read_the_files_of_what_is_trimmed_and_the_log_behind(tmp_path: Path) -> None:
    async with (
        LocalCluster(nodes=3, replicate="node:2", log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("old", txid="writer", roll=Roll(bytes=1), cold=f"file://{tmp_path}", ttl="1us")
        async with stream.writer() as writer:
            for number in range(1, 13):
                epoch = (await writer.write(b"%d" % number, txid=10 * number)).position.epoch
                while number % 4 == 0 and (await client.sequencer(stream.log)).epoch == epoch:  # noqa: ASYNC110 - rolls
                    await asyncio.sleep(0.01)
            await writer.write(b"13", txid=130)
        async with Janitor(namespace) as janitor:
            while await janitor.round() or len(namespace.stream_entry(stream.number).upkeep.copies) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        upkeep = namespace.stream_entry(stream.number).upkeep
        assert upkeep.trimming_to >= upkeep.copies[1].copy.last
        async with stream.reader(until="tail") as reader:
            delivered = [(*record.position, record.txid, record.payload) async for record in reader]
        assert [payload for *_, payload in delivered] == [b"%d" % number for number in range(1, 14)]

        whole = await asyncio.to_thread(rows, cluster.config_file, maxBytesPerPartition="1")
        assert len(whole) > len(upkeep.copies)
        assert [row for part in whole for row in part] == delivered
        one = await asyncio.to_thread(rows, cluster.config_file)
        assert len(one) <= 2, "small copies share a partition, and what the log has is another one"
        assert [row for part in one for row in part] == delivered
        middle = await asyncio.to_thread(rows, cluster.config_file, startingTxid=20, endingTxid=70)
        assert [txid for part in middle for _, _, txid, _ in part] == [20, 30, 40, 50, 60, 70]
