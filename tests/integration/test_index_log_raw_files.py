"""Raw files of several writers into an index log, and out of it again, on a cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from indexlog.index_log import IndexLog, make_index_log
from indexlog.raw_directory import RawFileWriter, survey_raw_files
from indexlog.raw_exchange import export_raw_files, import_raw_files
from indexlog.records import LogRecord, Modification
from server.dev.local_cluster import LocalCluster
from tests.integration.debian import packages

BEGIN = 1_700_000_000_000


def changes() -> list[LogRecord]:
    """Packages, of which some are changed and some removed, several a millisecond."""
    found: list[LogRecord] = []
    for number, (section, name, fields) in enumerate(packages()[:150]):
        steps = [Modification(True, fields)]
        if number % 3 == 0:
            steps.append(Modification(False, None, {1: float(number)}))
        if number % 7 == 0:
            steps.append(Modification(True))
        found += [LogRecord(section, name, step) for step in steps]
    return [
        LogRecord(
            each.index,
            each.docid,
            Modification(each.change.deleted, each.change.fields, each.change.variables, {}, BEGIN + number // 3),
        )
        for number, each in enumerate(found)
    ]


def write(parent: Path, name: str, records: list[LogRecord], lost: Collection[int]) -> None:
    """A writer that gets all of them, and of whose files some are lost afterwards."""
    with RawFileWriter(parent, name, BEGIN, bytes_max=20_000) as writer:
        for record in records:
            writer.append(record, record.change.timestamp)
        writer.close(records[-1].change.timestamp + 1)
    for number, path in enumerate(sorted((parent / name).glob("*.raw"))):
        if number in lost:
            path.unlink()


async def documents(log: IndexLog, indexes: set[str]) -> dict[str, dict[str, Modification]]:
    """Without timestamps."""
    return {
        index: {docid: replace(found, timestamp=0) for docid, found in (await log.documents(index)).items()}
        for index in sorted(indexes)
    }


async def test_three_directories_come_to_one_history_which_goes_out_and_in_again(tmp_path: Path) -> None:
    records = changes()
    indexes = {record.index for record in records}
    for rest, name in enumerate(("one", "two", "three")):
        write(tmp_path / "raw", name, records, range(rest, 1000, 3))
    async with LocalCluster(nodes=3, replicate="node:2", log_tree=True) as cluster, cluster.client() as client:
        for path in ("/whole", "/imported", "/again"):
            await make_index_log(client, f"file://{tmp_path}{path}", path=path, raw_logs=2)
        async with (
            IndexLog(client, "/whole") as whole,
            IndexLog(client, "/imported") as imported,
            IndexLog(client, "/again") as again,
        ):
            async with whole.writer() as writer:
                await writer.bulk(records)
            survey = survey_raw_files([tmp_path / "raw"])
            assert await import_raw_files(imported, survey) == len(records)
            expected = await documents(whole, indexes)
            assert await documents(imported, indexes) == expected
            dropped, kept = records[0].index, next(each for each in records if each.index != records[0].index)
            found = await imported.documents(kept.index)
            assert found
            assert all(BEGIN <= each.timestamp < BEGIN + len(records) for each in found.values())
            await imported.drop(dropped)
            await imported.change_routing(3)
            async with imported.writer() as writer:  # its clock is behind
                late = LogRecord(kept.index, kept.docid, Modification(True, {"n": "late"}, timestamp=5))
                await writer.bulk([late], keep_time=True)
            report = await export_raw_files(imported, lambda now: RawFileWriter(tmp_path, "out", now, bytes_max=20_000))
            assert report.dropped == sum(record.index == dropped for record in records)
            survey = survey_raw_files([tmp_path / "out"])
            assert (survey.gaps, len(survey.covered)) == ([], 1)
            assert survey.covered[0].begin == report.first
            assert await import_raw_files(again, survey, indexes=indexes) == len(records) + 1 - report.dropped
            expected = await documents(imported, indexes)
            assert expected[late.index][late.docid].fields == {"n": "late"}
            assert await documents(again, indexes) == {**expected, dropped: {}}
