"""Descriptors, manifests, cuts, coverage and sweeps of cold copies."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import Status
from streams.cold.copies import (
    ColdCopy,
    ColdFile,
    ColdManifest,
    check_token,
    content_hash,
    decode_manifest,
    parse_proof,
)
from streams.cold.coverage import clip, cover
from streams.cold.cutting import CutLimits, RowGroupCutter
from streams.cold.delivery import ColdDelivery
from streams.cold.entries import UnpackedItem
from streams.cold.errors import ColdCopyError
from streams.cold.sweeping import plan_sweep
from tests.unit.streams.cold_samples import CLUSTER, built, entry, lsn, sample


def manifest() -> ColdManifest:
    items = sample()
    files = (built([items[:4]]).described, built([items[4:]], first=lsn(3, 3)).described)
    return ColdManifest(CLUSTER, 7, "attempt-1", "orders", files)


def copy_of(first: int, last: int, name: str = "0") -> ColdCopy:
    return ColdCopy(CLUSTER, 7, "t", LSN(first), LSN(last), name * 64, 1, 1, 1, 1, 1, 1)


# Descriptors and manifests


def test_a_descriptor_survives_json() -> None:
    copy = manifest().copy()
    assert ColdCopy.from_json(json.loads(json.dumps(copy.as_json()))) == copy
    assert (copy.first, copy.last, copy.records, copy.files) == (1, lsn(3, 10), 8, 2)


@pytest.mark.parametrize("field", sorted(manifest().copy().as_json()))
@pytest.mark.parametrize("value", [None, -1, "x", [], 1 << 63, 1.5])
def test_a_descriptor_that_makes_no_sense_is_refused(field: str, value: Any) -> None:
    values = manifest().copy().as_json() | {field: value}
    if field == "token" and value == "x":
        return
    with pytest.raises((ColdCopyError, ValueError)):
        ColdCopy.from_json(values)
    del values[field]
    with pytest.raises(ColdCopyError):
        ColdCopy.from_json(values)


def test_a_manifest_survives_its_bytes() -> None:
    whole = manifest()
    name = whole.copy().manifest_name
    assert decode_manifest(name, whole.encode()) == whole
    assert whole.proof == built([sample()]).described.proof


def test_a_changed_manifest_is_refused() -> None:
    whole = manifest()
    name, data = whole.copy().manifest_name, whole.encode()
    for at in range(0, len(data), 7):
        with pytest.raises(ColdCopyError, match="hash of its name"):
            decode_manifest(name, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 2}, "version 2, this program knows 1"),
        ({"version": "1"}, "version is"),
        ({"files": []}, "no file"),
        ({"files": [1]}, "no JSON object"),
        ({"token": "../x"}, "token"),
        ({"log": -7}, "log is"),
        ({"log": 8}, "belongs into"),
        ({"stream": None}, "stream is"),
    ],
)
def test_a_forged_manifest_is_refused(change: dict[str, Any], text: str) -> None:
    whole = manifest()
    data = json.dumps(json.loads(whole.encode()) | change).encode()
    with pytest.raises(ColdCopyError, match=text):
        decode_manifest(f"{whole.copy().folder}/{content_hash(data)}.json", data)


def test_files_that_do_not_touch_are_refused() -> None:
    whole = manifest()
    values = json.loads(whole.encode())
    values["files"] = values["files"][::-1]
    data = json.dumps(values).encode()
    with pytest.raises(ColdCopyError, match="the next begins"):
        decode_manifest(f"{whole.copy().folder}/{content_hash(data)}.json", data)


def test_no_json_is_refused() -> None:
    for data in (b"", b"[", b"[]", b"\xff"):
        with pytest.raises(ColdCopyError, match="damaged"):
            decode_manifest(f"x/{content_hash(data)}.json", data)


@pytest.mark.parametrize("gaps", [[1], [["X", 1, 2]], [["TRIM", 1]], [["TRIM", None, 2]], None])
def test_gaps_that_are_none_are_refused(gaps: Any) -> None:
    values = json.loads(manifest().encode())["files"][0]["proof"] | {"gaps": gaps}
    with pytest.raises(ColdCopyError, match="damaged"):
        parse_proof("it", 7, values)


@pytest.mark.parametrize("token", ["", "a/b", "..", "-x", "x" * 65, "a b", "a.b"])
def test_a_token_is_part_of_a_name(token: str) -> None:
    with pytest.raises(ColdCopyError) as raised:
        check_token(token)
    assert raised.value.status is Status.INVALID_PARAM


# Cuts


def test_cuts_follow_from_the_entries_alone() -> None:
    rng = random.Random(3)
    items: list[UnpackedItem] = []
    for esn in range(1, 200):
        at = lsn(1, esn)
        items.append(Gap(GapKind.HOLE, at, at) if rng.random() < 0.3 else entry(at, rng.randbytes(rng.randrange(300))))

    def groups() -> list[list[UnpackedItem]]:
        cutter = RowGroupCutter(CutLimits(row_group_bytes=500, row_group_rows=20))
        cut = [group for item in items for group in cutter.add(item)]
        return [*cut, cutter.rest()]

    assert groups() == groups()
    assert len(groups()) > 10
    for group in groups():
        assert len(group) <= 20
        kinds = [type(each) for each in group]
        assert (Gap, Gap) not in set(pairwise(kinds)), "touching gaps are one"
    flat = [item for group in groups() for item in group]
    pairs = list(pairwise(flat))
    assert len(pairs) > 100
    for before, after in pairs:
        end = before.hi if isinstance(before, Gap) else before.lsn
        assert end + 1 == (after.lo if isinstance(after, Gap) else after.lsn)


# Coverage


@pytest.mark.parametrize("seed", range(60))
def test_coverage_is_what_looking_at_each_lsn_finds(seed: int) -> None:
    rng = random.Random(seed)
    copies = []
    for index in range(rng.randrange(6)):
        first = rng.randrange(1, 40)
        copies.append(copy_of(first, first + rng.randrange(10), f"{index:x}"))
    first, last = 5, 5 + rng.randrange(40)
    stretches = cover(copies, first, last)
    assert [stretches[0].first, stretches[-1].last] == [first, last]
    at = first
    for stretch in stretches:
        assert stretch.first == at
        for lsn_ in range(stretch.first, stretch.last + 1):
            holders = [copy for copy in copies if copy.first <= lsn_ <= copy.last]
            assert stretch.copy in holders if holders else stretch.copy is None
        at = stretch.last + 1


def test_gaps_are_clipped() -> None:
    items = [Gap(GapKind.TRIM, LSN(1), LSN(9)), entry(10, b"a"), entry(11, b"b"), Gap(GapKind.HOLE, LSN(12), LSN(20))]
    assert clip(items, 5, 10) == [Gap(GapKind.TRIM, LSN(5), LSN(9)), entry(10, b"a")]
    assert clip(items, 13, 14) == [Gap(GapKind.HOLE, LSN(13), LSN(14))]


# Delivery


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_batches_of_any_size_hold_the_same(size: int) -> None:
    delivery = ColdDelivery(7, 1)
    delivery.add(sample())
    whole = RecordBatch(7)
    taken = []
    while delivery:
        batch = delivery.take(size)
        assert len(batch) <= size
        taken += list(batch)
    other = ColdDelivery(7, 1)
    other.add(sample())
    whole = other.take(1000)
    assert taken == list(whole)
    assert delivery.proof() == other.proof() == built([sample()]).described.proof


def test_what_does_not_follow_is_refused() -> None:
    delivery = ColdDelivery(7, lsn(3, 1))
    with pytest.raises(ColdCopyError, match="follows"):
        delivery.add([entry(lsn(3, 2), b"a")])


# Sweeps


def test_a_sweep_takes_what_nothing_needs_manifests_first() -> None:
    a, b, c = "a" * 64, "b" * 64, "c" * 64
    names = [
        f"t1/{a}.parquet",
        f"t1/{b}.json",
        f"t1/{c}.parquet",
        f"t2/{a}.parquet",
        f"t2/{b}.json",
        f"t2/{a}.parquet.00ff.part",
        f"t3/{a}.parquet",
    ]
    assert plan_sweep(names, {"t1": {f"{a}.parquet", f"{b}.json"}}, {"t3"}) == [
        f"t2/{b}.json",
        f"t1/{c}.parquet",
        f"t2/{a}.parquet",
        f"t2/{a}.parquet.00ff.part",
    ]
    assert plan_sweep(names, {}, {"t1", "t2", "t3"}) == []
    assert plan_sweep(names, {}, {"t3"}, over={"t1", "t3"}) == [f"t1/{b}.json", f"t1/{a}.parquet", f"t1/{c}.parquet"]


def test_a_sweep_leaves_what_is_not_ours() -> None:
    assert plan_sweep(["t/notes.txt", "t/x.parquet", f"{'a' * 64}.parquet"], {}, set()) == []


def test_cold_file_names() -> None:
    assert ColdFile("a" * 64, 1, manifest().proof).name == "a" * 64 + ".parquet"
