"""The proofs of a frame's tasks, added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from client.read.arrow_columns import PROOF, unsigned
from client.read.items import Gap, GapKind
from client.read.proof import Proof
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def proof_of(row: Any) -> Proof:
    """What a PROOF row says."""
    told = row["proof"]
    return Proof(
        LogId(row["log_id"]),
        LSN(told["first"]),
        LSN(told["last"]),
        told["entries"],
        told["records"],
        told["bytes"],
        tuple(Gap(GapKind[gap["gap_type"]], LSN(gap["gap_lo"]), LSN(gap["gap_hi"])) for gap in told["gaps"]),
        unsigned(told["checksum"]),
    )


def proofs(frame: DataFrame) -> dict[int, Proof]:
    """What the frame holds of each log; equal to `client.reader.Reader.proof` of one reader over the same range.

    Args:
        frame: was loaded with ``includeProof``.

    Raises:
        ValueError: the ranges of a log's tasks do not touch; the frame was filtered.
    """
    rows = frame.filter(frame["record_type"] == PROOF).select("log_id", "proof").collect()
    sums: dict[int, Proof] = {}
    for part in sorted(map(proof_of, rows), key=lambda proof: (proof.log, proof.first)):
        sums[part.log] = sums[part.log] + part if part.log in sums else part
    return sums
