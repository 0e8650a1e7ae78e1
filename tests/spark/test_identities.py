"""Who a query of Spark is to a cluster with certificates and permissions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from indexlog.index_log import IndexLog, make_index_log
from indexlog.records import LogRecord, Modification
from logdevice_py import LocalCluster
from server.dev.identities import OPERATOR
from tests.integration.test_secure_cluster import authority_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a cluster that runs, with a record in log 1 and an index log with a document."""
    directory = tmp_path_factory.mktemp("secure")
    ended, ready = threading.Event(), threading.Event()

    async def run() -> None:
        async with LocalCluster(nodes=1, logs=1, secure=True, log_tree=True, directory=directory) as cluster:
            async with cluster.client() as client:
                await client.append(1, b"for those who may")
                await make_index_log(client, f"file://{directory}/store", raw_logs=1)
                async with IndexLog(client) as log, log.writer() as writer:
                    await writer.append(LogRecord("books", "one", Modification(False, {"title": "One"})))
            ready.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),), name="secure cluster")
    thread.start()
    try:
        assert ready.wait(60)
        yield directory
    finally:
        ended.set()
        thread.join()


def records(spark: SparkSession, secure: Path, **options: str) -> DataFrame:
    file = str(secure / "cluster.toml")
    return spark.read.format("logdevice").options(cluster=file, logs="1", **options).load()


def documents(spark: SparkSession, secure: Path, **options: str) -> DataFrame:
    return spark.read.format("indexlog").options(cluster=str(secure / "cluster.toml"), **options).load("/indexlog")


def test_a_certificate_or_a_token_says_who_a_query_is(spark: SparkSession, secure: Path) -> None:
    token = secure / "token.jwt"
    token.write_text(authority_of(secure).make_token(OPERATOR))
    for options in ({"identityFile": str(secure / "cluster.pem")}, {"tokenFile": str(token)}):
        assert [bytes(row.payload) for row in records(spark, secure, **options).collect()] == [b"for those who may"]
        assert [row.docid for row in documents(spark, secure, **options).collect()] == ["one"]


def test_without_them_it_is_anonymous_and_may_nothing(spark: SparkSession, secure: Path) -> None:
    with pytest.raises(PySparkException, match="ACCESS"):
        records(spark, secure).collect()
