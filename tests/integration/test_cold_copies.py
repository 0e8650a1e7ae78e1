"""Cold copies of logs of a real cluster, in a directory and in an S3 server of another process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

from client.client import Client
from client.encryption import EncryptionKeys
from client.read.items import Gap, GapKind, Item, Record
from client.read.proof import Comparison, Proof
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from server.dev.local_cluster import LocalCluster
from streams.cold.cold_reader import ColdReader
from streams.cold.copier import copy_range
from streams.cold.copies import ColdCopy
from streams.cold.cutting import CutLimits
from streams.cold.errors import ColdCopyError
from streams.cold.restoring import append_again, file_urls, read_catalogue, sweep, verify_copies, verify_copy
from streams.cold.seam_reader import SeamReader
from streams.cold.store import ColdStore
from tests import forked
from tests.slow import quick

SMALL = CutLimits(row_group_bytes=8_000, row_group_rows=500, file_bytes=6_000)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """The address of an S3 server, with a bucket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
                urllib.request.urlopen(request, timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, "the server ended"
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(params=quick(["file", "s3"], 1))
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of each kind."""
    if request.param == "file":
        return f"file://{tmp_path}/cold"
    return s3_url(request, monkeypatch, tmp_path.name)


def s3_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, folder: str) -> str:
    server = request.getfixturevalue("s3_server")
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{folder}?endpoint_override={server}&scheme=http&region=us-east-1"


async def fill(client: Client, log: int = 1) -> LSN:
    """Records with keys and without, alone and packed; the tail."""
    for n in range(20):
        await client.append(log, b"alone %d" % n, key=b"k%d" % n if n % 3 == 0 else None)
    async with client.buffered_writer(compression="zstd") as writer:
        for part in range(30):
            await writer.append_many(log, [b"record %d of %d " % (n, part) * 3 for n in range(100)])
    return await client.tail_lsn(log)


async def read_all(reader: Any) -> tuple[list[Item], Proof]:
    async with reader:
        return [item async for item in reader], reader.proof()


async def read_payloads(reader: SeamReader, payloads: list[bytes | None]) -> None:
    while batch := await reader.read():
        payloads += batch.payloads


async def test_what_was_trimmed_is_read_on_without_a_seam(url: str) -> None:
    store = ColdStore(url)
    async with LocalCluster(nodes=3) as cluster, cluster.client() as client:
        tail = await fill(client)
        before, proof = await read_all(client.reader(1, until=tail))
        middle = before[len(before) // 2].lsn  # type: ignore[union-attr]
        copies: list[ColdCopy] = []

        async def find() -> list[ColdCopy]:
            return copies

        for token, first, last in (("a", LSN.OLDEST, middle), ("b", middle + 1, tail - 5)):
            copies.append(await copy_range(client, store, 1, first, last, token=token, limits=SMALL))
        assert sum(copy.files for copy in copies) > 3
        assert [copy.last + 1 for copy in copies[:1]] == [copies[1].first]

        # nothing is trimmed: the cluster alone
        assert await read_all(SeamReader(client, store, 1, find, until=tail)) == (before, proof)
        # trimmed within a copy, and to its end
        for trimmed in (middle - 1, tail - 5):
            await client.trim(1, trimmed)
            after, shorter = await read_all(client.reader(1, until=tail))
            assert any(isinstance(each, Gap) and each.kind is GapKind.TRIM and each.hi == trimmed for each in after)
            assert shorter.compare(proof) is Comparison.INCOMPARABLE
            assert await read_all(SeamReader(client, store, 1, find, until=tail)) == (before, proof)
            for start in (middle, middle + 1, LSN(tail - 5), LSN(tail - 4)):
                part = [item for item in before if not isinstance(item, Gap) and item.lsn >= start]
                found, _ = await read_all(SeamReader(client, store, 1, find, start, tail))
                assert [item for item in found if not isinstance(item, Gap)] == part

        # beyond what is copied the gap stays
        await client.trim(1, LSN(tail - 2))
        found, _ = await read_all(SeamReader(client, store, 1, find, until=tail))
        assert Gap(GapKind.TRIM, LSN(tail - 4), LSN(tail - 2)) in found
        assert [each for each in found if isinstance(each, Record) and each.lsn <= tail - 5] == [
            each for each in before if isinstance(each, Record) and each.lsn <= tail - 5
        ]


async def test_a_reader_that_waits_at_the_tail_gets_what_comes(tmp_path: Path) -> None:
    store = ColdStore(f"file://{tmp_path}/cold")
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        first = await client.append(1, b"first")
        copy = await copy_range(client, store, 1, LSN.OLDEST, first.lsn, token="a")
        await client.trim(1, first.lsn)

        async def find() -> list[ColdCopy]:
            return [copy]

        async with SeamReader(client, store, 1, find) as reader:
            payloads: list[bytes | None] = []
            while not payloads:
                payloads += (await reader.read(timeout=20)).payloads
            assert payloads == [b"first"]
            waiting = asyncio.create_task(reader.read(timeout=20))
            await client.append(1, b"second")
            payloads += (await waiting).payloads
            while len(payloads) < 2:
                payloads += (await reader.read(timeout=20)).payloads
            assert payloads == [b"first", b"second"]
            assert reader.next_lsn > first.lsn


async def test_a_store_alone_is_readable(url: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    store = ColdStore(url)
    async with LocalCluster(nodes=3) as cluster, cluster.client() as client:
        tail = await fill(client)
        before, proof = await read_all(client.reader(1, until=tail))
        for token, first, last in (("a", 1, tail - 9), ("b", tail - 8, tail)):
            await copy_range(client, store, 1, first, last, token=token, limits=SMALL, stream="orders")
    # no cluster any more
    catalogue = read_catalogue(ColdStore(url))
    assert catalogue.unreadable == {}
    held = catalogue.log("orders")
    assert (held.first, held.last, held.missing()) == (LSN.OLDEST, tail, [])
    assert await read_all(ColdReader(store, held.copies)) == (before, proof)
    assert await verify_copies(store, held.copies) == []
    assert sum((verify_copy(store, copy) for copy in held.copies[1:]), verify_copy(store, held.copies[0])) == proof

    await asyncio.to_thread(programs, url, before, proof, capfdbinary)

    # into a new log of a new cluster
    async with LocalCluster(nodes=1) as other, other.client() as client:
        async with ColdReader(store, held.copies) as reader:
            done = await append_again(reader, client, 2)
        again, _ = await read_all(client.reader(2, until="tail"))
        assert [(each.key, each.payload) for each in again if isinstance(each, Record)] == [
            (each.key, each.payload) for each in before if isinstance(each, Record)
        ]
        assert (done.records, done.damaged, done.lost) == (proof.records, 0, [])
        assert done.last is not None
        assert done.last <= await client.tail_lsn(2)
        async with ColdReader(store, held.copies) as reader:
            with pytest.raises(ColdCopyError, match="into an empty one"):
                await append_again(reader, client, 2)
        status = await run_program("append", url, "orders", "-c", other.config_file, "--to", "3")
        assert (status[0], json.loads(status[1])["records"]) == (0, proof.records)


async def run_program(*arguments: str) -> tuple[int, bytes, bytes]:
    done = await asyncio.to_thread(forked.run_program, "streams.cold.program", *arguments)
    return done.returncode, done.stdout, done.stderr


def programs(url: str, before: list[Item], proof: Proof, captured: Any) -> None:
    """The command line, in a process of its own."""
    status, out, err = asyncio.run(run_program("list", url))
    assert (status, err) == (0, b"")
    listed = json.loads(out)
    assert (listed["stream"], listed["copies"], listed["records"], listed["missing"]) == (
        "orders",
        2,
        proof.records,
        [],
    )
    status, out, err = asyncio.run(run_program("verify", url))
    assert (status, err, json.loads(out)["damaged"]) == (0, b"", 0)
    status, out, err = asyncio.run(run_program("cat", url, "orders"))
    assert (status, out.splitlines()) == (0, [each.payload for each in before if isinstance(each, Record)])
    status, out, err = asyncio.run(run_program("cat", url, "orders", "--proof"))
    assert (status, json.loads(out)) == (0, proof.as_json())
    record = next(each for each in reversed(before) if isinstance(each, Record))
    status, out, err = asyncio.run(run_program("cat", url, "1", "--from", str(record.lsn), "--format", "json"))
    last = json.loads(out.splitlines()[-1])
    assert (last["lsn"], last["batch_offset"], last["payload"]) == (
        str(record.lsn),
        record.batch_offset,
        record.payload.decode(),
    )
    status, out, err = asyncio.run(run_program("cat", url, "bills"))
    assert (status, b"does not hold 'bills'; it holds orders" in err) == (2, True)


async def test_what_is_missing_is_told(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/cold"
    store = ColdStore(url)
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        lsns = [(await client.append(1, b"%d" % n)).lsn for n in range(30)]
        copies = [
            await copy_range(client, store, 1, lsns[first], lsns[last], token=f"t{first}")
            for first, last in ((5, 9), (10, 14), (20, 24))
        ]
    held = read_catalogue(store).log("1")
    assert held.missing() == [(lsns[15], lsns[19])]
    with pytest.raises(ColdCopyError, match="no cold copy holds") as raised:
        ColdReader(store, copies)
    assert raised.value.status is Status.EMPTY
    with pytest.raises(ColdCopyError):
        ColdReader(store, copies, lsns[20], lsns[25])
    items, proof = await read_all(ColdReader(store, copies, accept_missing=True))
    assert [item for item in items if isinstance(item, Gap)] == [
        Gap(GapKind.TRIM, LSN.OLDEST, LSN(lsns[5] - 1)),
        Gap(GapKind.DATALOSS, lsns[15], lsns[19]),
    ]
    assert proof.records == 15
    status, _, err = await run_program("cat", url, "1")
    assert (status, b"no cold copy holds" in err) == (1, True)
    status, out, err = await run_program("cat", url, "1", "--accept-missing")
    assert (status, len(out.splitlines())) == (3, 15)
    status, _, err = await run_program("list", url)
    assert (status, b"no copy holds" in err) == (3, True)


# Others read it


async def test_others_read_it_without_our_code(tmp_path: Path) -> None:
    store = ColdStore(f"file://{tmp_path}/cold")
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        tail = await fill(client)
        before, _ = await read_all(client.reader(1, until=tail))
        copy = await copy_range(client, store, 1, 1, tail, token="a", limits=SMALL)
    records = [
        (int(each.lsn), each.batch_offset, each.key, each.payload) for each in before if isinstance(each, Record)
    ]
    urls = file_urls(store, [copy])
    paths = [each.removeprefix("file://") for each in urls]
    found = duckdb.sql(
        f"select lsn, batch_offset, key, payload from read_parquet({paths!r}) where record_type = 'RECORD' order by lsn, batch_offset"
    )
    assert found.fetchall() == records
    table = ds.dataset(paths).to_table(filter=ds.field("record_type") == "RECORD")
    assert table.column("payload").to_pylist() == [record[3] for record in records]
    frame = pd.concat(pd.read_parquet(path) for path in paths)
    assert len(frame[frame.record_type == "RECORD"]) == len(records)


# What goes wrong


@pytest.mark.parametrize("kind", quick(["file", "s3"], 1))
async def test_damage_is_told_and_never_read(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/cold" if kind == "file" else s3_url(request, monkeypatch, tmp_path.name)
    store = ColdStore(url)
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        tail = await fill(client)
        before, proof = await read_all(client.reader(1, until=tail))
        copy = await copy_range(client, store, 1, 1, tail, token="a", limits=SMALL)
        files, root = fs.FileSystem.from_uri(url)
        sound = {each.name: files.open_input_file(f"{root}/{each.name}").read() for each in store.objects()}
        assert len(sound) >= 3

        def put(name: str, data: bytes) -> None:
            with files.open_output_stream(f"{root}/{name}") as out:
                out.write(data)

        for name, data in sound.items():
            for at in range(0, len(data), len(data) // 5):
                for changed in (
                    data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :],
                    data[:at],
                    data + data[:at] + b"x",
                ):
                    put(name, changed)
                    records: list[Item] = []
                    with pytest.raises(ColdCopyError, match="damaged") as raised:
                        async with ColdReader(store, [copy]) as reader:
                            records += [item async for item in reader]
                    assert raised.value.status is Status.BADPAYLOAD
                    assert records == before[: len(records)]
            files.delete_file(f"{root}/{name}")
            with pytest.raises(ColdCopyError) as gone:
                await read_all(ColdReader(store, [copy]))
            assert gone.value.status is Status.NOTFOUND
            # copying once more writes what is wrong again
            put(name, data[:-1])
            assert await copy_range(client, store, 1, 1, tail, token="a", limits=SMALL) == copy
            assert await read_all(ColdReader(store, [copy])) == (before, proof)


async def test_an_upload_that_was_cut_off_is_found_when_it_is_read_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ColdStore(url)
    put = store.put
    monkeypatch.setattr(store, "put", lambda name, data: put(name, data[: len(data) // 2]))
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        tail = await fill(client)
        with pytest.raises(ColdCopyError, match="damaged: it has"):
            await copy_range(client, store, 1, 1, tail, token="a", limits=SMALL)
        assert read_catalogue(store).logs == []
        monkeypatch.undo()


async def test_a_store_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    for bad in ("http://x/y", "nothing", f"{tmp_path}"):
        with pytest.raises(ColdCopyError) as raised:
            ColdStore(bad)
        assert raised.value.status is Status.INVALID_PARAM
    with pytest.raises(ColdCopyError, match=f"'{tmp_path}' is no store for cold copies: write file://{tmp_path}$"):
        ColdStore(f"{tmp_path}")
    with pytest.raises(ColdCopyError) as raised:
        ColdStore("ftp://user:secret@host/x")
    assert "secret" not in str(raised.value)
    (tmp_path / "file").write_text("x")
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        lsn = (await client.append(1, b"a")).lsn
        with pytest.raises(ColdCopyError) as raised:
            await copy_range(client, ColdStore(f"file://{tmp_path}/file/x"), 1, 1, lsn, token="a")
        assert (raised.value.status, raised.value.retriable) == (Status.CONNFAILED, True)
        store = ColdStore(f"file://{tmp_path}/cold")
        for first, last, token in ((5, 4, "a"), (1, lsn, "a/b"), (1, lsn + 1, "a")):
            with pytest.raises(ColdCopyError) as raised:
                await copy_range(client, store, 1, first, last, token=token)
            assert raised.value.status is Status.INVALID_PARAM


# A copier that is killed

_COPIER = """
import asyncio, json, os, signal, sys
from client.client import Client
from client.encryption import EncryptionKeys
from streams.cold.copier import copy_range
from streams.cold.cutting import CutLimits
from streams.cold.store import ColdStore

async def main(config, url, last, at, token):
    steps = 0
    def on_step(step):
        nonlocal steps
        steps += 1
        if steps == at:
            os.kill(os.getpid(), signal.SIGKILL)
    async with Client(config) as client:
        store = ColdStore(url, on_step=on_step)
        await copy_range(client, store, 1, 1, last, token=token, limits=CutLimits(60_000, 100_000, 5_000))
    return steps

for line in sys.stdin:
    child = os.fork()
    if not child:
        os._exit(asyncio.run(main(*json.loads(line))))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@contextlib.asynccontextmanager
async def copiers(config: str, url: str, last: int) -> AsyncIterator[Callable[[int, str], Awaitable[int]]]:
    """Starts copiers that end themselves by SIGKILL after so many steps (0: never), under a token: each is a process. Gives the exit status, which is the
    number of steps of one that was not killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", _COPIER,
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    to, out = process.stdin, process.stdout

    async def copy(at: int, token: str) -> int:
        to.write(json.dumps([config, url, int(last), at, token]).encode() + b"\n")
        return int(await asyncio.wait_for(out.readline(), 120))

    try:
        yield copy
    finally:
        to.close()
        await process.wait()


@pytest.mark.slow
async def test_a_copier_that_is_killed_at_any_step_leaves_nothing_that_counts(url: str) -> None:
    store = ColdStore(url)
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        tail = await fill(client)
        _, proof = await read_all(client.reader(1, until=tail))
        committed = [await copy_range(client, store, 1, 1, tail - 20, token="committed", limits=SMALL)]
        needed = store.objects()
        async with copiers(cluster.config_file, url, tail) as copy_in_a_process:
            steps = await copy_in_a_process(0, "whole")
            assert steps > 10
            assert len(sweep(store, committed[0].cluster, 1, committed)) > 2
            assert store.objects() == needed
            for at in range(1, steps + 1):
                token = f"try{at}"
                assert await copy_in_a_process(at, token) == -signal.SIGKILL
                # what can be listed is true: what is committed, and what was verified to its end
                (held,) = read_catalogue(store).logs
                assert await verify_copies(store, held.copies) == []
                assert sweep(store, committed[0].cluster, 1, committed, [token]) == [], "the attempt may still go on"
                removed = sweep(store, committed[0].cluster, 1, committed, dry_run=True)
                assert sweep(store, committed[0].cluster, 1, committed) == removed
                assert store.objects() == needed
            # somebody else copies the range, over what the last one left
            assert await copy_in_a_process(steps // 2, "last") == -signal.SIGKILL
        copy = await copy_range(client, store, 1, 1, tail, token="last", limits=SMALL)
        assert verify_copy(store, copy) == proof
        sweep(store, copy.cluster, 1, [copy])
        assert {each.name.rpartition("/")[0] for each in store.objects()} == {copy.folder}
        assert verify_copy(store, copy) == proof


async def test_a_sweep_that_is_killed_leaves_no_manifest_without_its_files(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/cold"
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        tail = await fill(client)
        copy = await copy_range(client, ColdStore(url), 1, 1, tail, token="a", limits=SMALL)

    class StoppedError(Exception):
        pass

    def stop(step: str) -> None:
        raise StoppedError

    listed = 0
    while ColdStore(url).objects():
        for held in read_catalogue(ColdStore(url)).logs:
            listed += 1
            assert await verify_copies(ColdStore(url), held.copies) == []
        with pytest.raises(StoppedError):
            sweep(ColdStore(url, on_step=stop), copy.cluster, 1, [])
    assert listed > 0


async def test_a_committed_copy_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    store = ColdStore(f"file://{tmp_path}/cold")
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        lsn = (await client.append(1, b"a")).lsn
        copy = await copy_range(client, store, 1, 1, lsn, token="a")
    path = tmp_path / "cold" / copy.manifest_name
    path.write_bytes(path.read_bytes()[:-1])
    before = store.objects()
    assert sweep(store, copy.cluster, 1, [copy]) == []
    assert store.objects() == before
    catalogue = read_catalogue(store)
    assert (catalogue.logs, len(catalogue.unreadable)) == ([], 1)
    status, _, err = await run_program("list", f"file://{tmp_path}/cold")
    assert (status, b"damaged" in err) == (1, True)


async def test_the_page_runs() -> None:
    page = (ROOT / "docs/cold-copies.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(f"async def example():\n{textwrap.indent(code, '    ')}", "docs/cold-copies.md", "exec"), names)
    await names["example"]()


async def test_what_writers_encrypted_is_not_copied_in_clear_and_is_read_with_keys(tmp_path: Path) -> None:
    store = ColdStore(f"file://{tmp_path}/cold")
    async with LocalCluster(nodes=1, logs=1) as cluster, cluster.client() as client:
        first = (await client.append(1, b"clear")).lsn
        keys = EncryptionKeys({"k1": bytes(32)}, write_with="k1")
        last = (await client.append(1, b"secret", encryption=keys)).lsn
        with pytest.raises(ColdCopyError) as refused:
            await copy_range(client, store, 1, first, last, token="one")
        assert refused.value.status is Status.NOTSUPPORTED
        assert f"{last} is encrypted by its writer" in refused.value.detail
        copy = await copy_range(client, store, 1, first, first, token="two")

        async def find() -> list[ColdCopy]:
            return [copy]

        await client.trim(1, first)
        async with SeamReader(client, store, 1, find, until=last, encryption=keys) as reader:
            assert [item.payload for item in (await read_all(reader))[0] if isinstance(item, Record)] == [
                b"clear",
                b"secret",
            ]
        async with SeamReader(client, store, 1, find, until=last) as reader:
            payloads: list[bytes | None] = []
            for _ in range(2):
                with pytest.raises(LogDeviceError) as locked:
                    await read_payloads(reader, payloads)
                assert locked.value.status is Status.NOKEY
            assert payloads == [b"clear"]
