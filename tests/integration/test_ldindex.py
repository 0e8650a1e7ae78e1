"""The program `ldindex`: an index log from nothing to verified pages, and what it says when something is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest

from indexlog.raw_directory import RawFileWriter
from indexlog.records import LogRecord, Modification
from tests.forked import run_program
from tests.integration.debian import packages
from tests.integration.test_cli import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("ldindex"), "--nodes", "3", "--replicate", "node:2", "--log-tree")
    yield running
    running.end(signal.SIGKILL)


def ldindex(cluster: Cluster, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run_program("indexlog.cli.main", "-c", cluster.file, *arguments, given=stdin, timeout=120)


def done(cluster: Cluster, *arguments: str, stdin: bytes = b"") -> str:
    """What it prints; it succeeds."""
    ran = ldindex(cluster, *arguments, stdin=stdin)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout.decode()


@pytest.mark.slow
def test_packages_from_lines_of_json_to_documents(cluster: Cluster, tmp_path: Path) -> None:
    ran = ldindex(cluster, "status")
    assert ran.returncode == 2
    assert b"there is no index log at /indexlog: ldindex init makes one" in ran.stderr
    done(cluster, "init", "--store", f"file://{tmp_path}/store", "--raw-logs", "2")
    assert b"there is an index log already" in ldindex(cluster, "init", "--store", f"file://{tmp_path}/b").stderr
    found = packages()
    lines: list[dict[str, Any]] = [{"index": section, "docid": name, "fields": own} for section, name, own in found]
    lines += [{"index": found[0][0], "docid": found[0][1], "variables": {"3": 2.5}, "categories": {"k": "v"}}]
    lines += [{"index": found[1][0], "docid": found[1][1], "deleted": True}]
    ran = ldindex(cluster, "bulk", stdin="\n".join(map(json.dumps, lines)).encode())
    assert f"{len(lines)} modifications written" in ran.stderr.decode()

    ran = ldindex(cluster, "deal", "--once")
    assert f"dealt {len(lines)} modifications" in ran.stderr.decode()
    done(cluster, "verify")
    done(cluster, "optimize", "--all")
    assert "0 of them differ" in ldindex(cluster, "verify").stderr.decode()
    assert f"{found[0][0]}  1 parts" in done(cluster, "indexes")
    assert "__optimized_" in done(cluster, "files", found[0][0])

    rows = {row["docid"]: row for row in map(json.loads, done(cluster, "read", found[0][0], "--json").splitlines())}
    assert rows[found[0][1]]["fields"] == found[0][2]
    assert rows[found[0][1]]["variables"] == {"3": 2.5}
    assert found[1][1] not in rows
    left = {(section, name) for section, name, _ in found} - {(found[1][0], found[1][1])}
    table = f"file://{tmp_path}/table"
    assert f"{len(left)} documents of" in ldindex(cluster, "export-delta", table).stderr.decode()
    done(cluster, "export-delta", "--dealt-only", "--index", found[0][0], table)
    exported = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    assert len(exported) == len(left)
    assert {(row["index"], row["docid"]) for row in exported} == left
    assert f"{found[0][1]}  " in done(cluster, "read", found[0][0])

    status = json.loads(done(cluster, "status", "--json"))
    assert status["indexes"] == len({section for section, _, _ in found})
    assert status["jobs"] == []
    assert status["raw_logs"]
    assert all(each["dealt"] == each["tail"] for each in status["raw_logs"])
    assert "raw log" in done(cluster, "status")
    done(cluster, "gc", "--grace", "1ms")
    assert json.loads(done(cluster, "status", "--json"))["retired_parts"] == 0
    done(cluster, "route", "--raw-logs", "3")
    done(cluster, "drop", found[0][0])
    assert done(cluster, "read", found[0][0], "--json") == ""
    done(cluster, "verify")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"{", "line 2: Expecting property name"),
        (b"[]", "line 2: a JSON object expected"),
        (b'{"index": "books", "docid": "", "deleted": true}', "line 2: a document id has 1 to 1024 bytes"),
        (b'{"index": "books", "docid": "a", "field": {}}', "line 2: there is no 'field' in a modification"),
        (b'{"index": "books", "docid": "a", "variables": {"x": 1}}', "line 2: variables are numbers by number"),
    ],
)
def test_a_line_that_is_no_modification_is_named(cluster: Cluster, tmp_path: Path, line: bytes, text: str) -> None:
    path = f"/made/{tmp_path.name.replace('[', '-')}"
    done(cluster, "--path", path, "init", "--store", f"file://{tmp_path}/store", "--raw-logs", "1")
    good = b'{"index": "books", "docid": "first", "fields": {}}\n'
    ran = ldindex(cluster, "--path", path, "bulk", stdin=good + line)
    assert ran.returncode == 1
    assert text in ran.stderr.decode()
    assert "first" in done(cluster, "--path", path, "read", "books")


@pytest.mark.slow
def test_raw_files_with_a_gap_in_all_are_imported_only_on_demand(cluster: Cluster, tmp_path: Path) -> None:
    begin = 1_700_000_000_000
    with RawFileWriter(tmp_path / "raw", "one", begin, bytes_max=20_000) as writer:
        for time in range(begin, begin + 300):
            writer.append(LogRecord("books", f"{time}", Modification(True, {"n": "x" * 500}, {}, {}, time)), time)
        writer.close(begin + 300)
    lost = sorted((tmp_path / "raw" / "one").glob("*.raw"))[1:3]
    gap = f"({lost[0].stem} to {int(lost[1].stem) + int(lost[1].stem) - int(lost[0].stem)})"
    lost[0].unlink()
    lost[1].rename(lost[1].parent / "7.raw")  # its summary is not beside it any more
    done(cluster, "--path", "/raw", "init", "--store", f"file://{tmp_path}/store", "--raw-logs", "1")
    ran = ldindex(cluster, "--path", "/raw", "import", str(tmp_path / "raw"))
    assert ran.returncode == 3
    assert f"gap in all: 2023-11-14-22-13-20-0{int(lost[0].stem) - begin} to" in ran.stdout.decode()
    assert gap in ran.stdout.decode()
    assert "completeness unknown: 1 files have no summary" in ran.stdout.decode()
    assert b"nothing was imported: find the missing files, or use --accept-gaps" in ran.stderr
    ran = ldindex(cluster, "--path", "/raw", "import", "--accept-gaps", "--index", "books", str(tmp_path / "raw"))
    count = 300 - (int(lost[1].stem) - int(lost[0].stem))
    assert f"{count} modifications imported" in ran.stderr.decode()
    for status, text in ((0, f"{count} modifications exported"), (1, "a writer that stopped never writes again")):
        ran = ldindex(cluster, "--path", "/raw", "export", str(tmp_path / "out"))
        assert (ran.returncode, text in ran.stderr.decode()) == (status, True), ran.stderr
