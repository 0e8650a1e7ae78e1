"""``ldctl`` as a person runs it, against a cluster inside this process."""

from __future__ import annotations

import json
import sys

import pytest

from ldquery.ctl import logs
from ldquery.ctl.main import VERBS, parser
from logdevice_py.core.lsn import LSN
from server.dev.local_cluster import LocalCluster
from tests.forked import run_program_async
from tests.integration.test_cli import diagnostics


async def ldctl(cluster: LocalCluster, *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, its diagnostics."""
    status, out, err = await run_program_async("ldquery.ctl.main", "-c", cluster.config_file, *arguments)
    return status, out, diagnostics(err.encode()).decode()


async def test_verbs_answer_and_act() -> None:
    async with LocalCluster(nodes=3, replicate="node:2") as cluster, cluster.client() as client:
        receipts = [await client.append(1, b"x" * 100, key=b"k%02d" % n) for n in range(10)]
        tail = await client.tail_lsn(1)
        status, out, err = await ldctl(cluster, "head", "1")
        assert (status, err) == (0, "")
        assert [line.split()[-1] for line in out.splitlines()[:2]] == ["-", str(receipts[0].lsn)]
        status, out, err = await ldctl(cluster, "--json", "tail", "1")
        assert json.loads(out) == {
            "tail": str(tail),
            "last_record": str(receipts[-1].lsn),
            "time": receipts[-1].timestamp,
        }
        assert (await ldctl(cluster, "find-key", "1", "k04"))[1] == f"{receipts[4].lsn}\n"
        assert (await ldctl(cluster, "find-key", "--hex", "1", b"k04".hex()))[1] == f"{receipts[4].lsn}\n"
        status, out, err = await ldctl(cluster, "find-time", "1", "2200-01-01T00:00:00Z")
        assert (status, out) == (0, f"{LSN(tail + 1)}\n")
        assert "the log ends at" in err
        assert int((await ldctl(cluster, "data-size", "1"))[1]) >= 1000
        point = receipts[3].lsn
        status, out, err = await ldctl(cluster, "trim", "1", str(point))
        assert (status, out) == (2, "")
        assert "give --yes" in err
        status, out, err = await ldctl(cluster, "--json", "trim", "--dry-run", "1", str(point))
        assert json.loads(out) == {"trim_point": str(point), "records": 4, "bytes": 400}
        assert (await client.head(1)).lsn == receipts[0].lsn
        assert (await ldctl(cluster, "trim", "--yes", "1", str(receipts[3].lsn)))[:2] == (0, f"{receipts[3].lsn}\n")
        assert (await client.head(1)).lsn == receipts[4].lsn
        assert "nothing to trim" in (await ldctl(cluster, "trim", "--yes", "1", str(receipts[2].lsn)))[2]
        assert (await ldctl(cluster, "is-empty", "1"))[1] == "no\n"
        assert (await ldctl(cluster, "trim", "--yes", "1", "tail"))[0] == 0
        assert (await ldctl(cluster, "is-empty", "1"))[1] == "yes\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["trim", "--yes", "1", "e9n9"], 1, "above the tail"),
        (["head", "99"], 2, "99"),
        (["head", "/no/such"], 2, "/no/such"),
    ],
)
async def test_errors_are_one_line_and_have_a_status(arguments: list[str], status: int, words: str) -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        await client.append(1, b"x")
        got, out, err = await ldctl(cluster, *arguments)
        assert (got, out) == (status, "")
        assert words in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["trim", "1"],
        ["trim", "1", "0"],
        ["find-time", "1", "e1n1"],
        ["find-time", "1", "2026-01-01T00:00:00"],
        ["dance"],
    ],
)
def test_wrong_use_is_told_before_anything_is_asked(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parser().parse_args(["-c", "nowhere.toml", *arguments])
    assert error.value.code == 2
    assert capsys.readouterr().err


def test_every_verb_says_what_it_does() -> None:
    for verb in VERBS:
        assert verb.help
        assert verb.description.endswith(".")


async def test_a_cluster_that_does_not_answer_ends_with_status_4() -> None:
    async with LocalCluster(nodes=1) as cluster:
        await cluster.stop_node(0)
        status, out, err = await ldctl(cluster, "--timeout", "4s", "head", "1")  # it is tried at once, and told then
        assert (status, out) == (4, "")
        assert "N0" in err


async def test_no_more_is_trimmed_than_a_person_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalCluster(nodes=3, replicate="node:2") as cluster, cluster.client() as client:
        shown = await client.append(1, b"shown")

        async def consent(question: str) -> bool:
            await client.append(1, b"appended while the person reads")
            return True

        monkeypatch.setattr(logs, "_consent", consent)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        arguments = parser().parse_args(["-c", cluster.config_file, "trim", "1", "tail"])
        assert await arguments.run(client, arguments) == 0
        assert (await client.head(1)).trim_point == shown.lsn
