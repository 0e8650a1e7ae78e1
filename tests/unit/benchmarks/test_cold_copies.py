"""What the benchmark of cold copies says when readers do not read what was written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import cold_copies
from benchmarks.cold_stream import RecordProof


@pytest.mark.parametrize("is_equal", [True, False])
def test_its_status_tells_whether_proofs_are_equal(
    is_equal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(arguments: Any, url: str) -> dict[str, Any]:
        return {"proofs_equal": is_equal}

    monkeypatch.setattr(cold_copies, "measure_stream", measured)
    assert cold_copies.main(["--spark", "--size", "1000"]) == (0 if is_equal else 1)
    assert json.loads(capsys.readouterr().out) == {"proofs_equal": is_equal}


def test_a_proof_goes_by_positions_and_payloads_and_by_no_order() -> None:
    lsns, offsets, payloads = [7, 7, 8], [0, 1, 0], [b"a", b"b", b"c"]
    whole = RecordProof.of(lsns, offsets, payloads)
    assert whole == RecordProof.of([8], [0], [b"c"]) + RecordProof.of([7, 7], [1, 0], [b"b", b"a"])
    assert whole != RecordProof.of(lsns, offsets, [b"b", b"a", b"c"])
    assert whole != RecordProof.of([7, 7, 8], [0, 0, 0], payloads)
    assert whole != RecordProof.of(lsns, offsets, [b"a", b"b", b"d"])
