"""What a recovered epoch holds, summed up: exactly, or not at all.

Everything up to the LNG is an entry, so the counts that the entry at the LNG carries are exact, whatever became of entries above it. Of those the headers
that recovery decided for are counted one by one: counts that they carry may include what became a hole.
"""

from __future__ import annotations

from logdevice_py.core.epoch_summary import EpochCounts, EpochSummary, SummaryFlags
from logdevice_py.core.extensions import parse_extensions
from logdevice_py.core.lsn import ESN_MIN, esn_of
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from sequencer.recovery.digest import CopyKind
from sequencer.recovery.plan import Plan


def counts_of(extensions: bytes) -> EpochCounts | None:
    """The counts in the extensions of an entry; None: it carries none."""
    try:
        return parse_extensions(extensions).counts
    except CorruptEntryError:
        return None


def summarize(plan: Plan, at_lng: EpochCounts | None, wall: Timestamp) -> EpochSummary | None:
    """What the epoch holds by an authoritative plan.

    Args:
        plan: decided.
        at_lng: what the entry at the LNG carries.
        wall: the time.

    Returns:
        None when the epoch holds nothing, or its entries are not counted.
    """
    headers = [
        decision.header
        for _, decision in sorted(plan.decisions.items())
        if decision.kind is CopyKind.ENTRY and decision.header is not None
    ]
    counts = [counts_of(header.extensions) for header in headers]
    if not plan.tail or (counts[-1] if counts else at_lng) is None:
        return None
    flags = SummaryFlags.AUTHORITATIVE | SummaryFlags.LISTED
    base = EpochCounts() if at_lng is None else at_lng
    if plan.lng and at_lng is None:
        hit("recovery_counts_lost")
    else:
        flags |= SummaryFlags.COUNTED
    own = [each for each in counts if each is not None and each.own_last_transaction]
    transactions = [base.first_transaction, base.last_transaction]
    for each in own:
        transactions = [transactions[0] or each.own_first_transaction, each.own_last_transaction]
    known = bool(flags & SummaryFlags.COUNTED)
    return EpochSummary(
        int(flags),
        plan.seal_epoch,
        first=ESN_MIN if plan.lng else esn_of(headers[0].lsn),
        last=plan.tail,
        entries=plan.lng + len(headers),
        lost=len(plan.lost),
        records=base.records + sum(header.records for header in headers) if known else 0,
        size=base.size + sum(header.body_length for header in headers) if known else 0,
        first_timestamp=(base.begin or headers[0].timestamp) if known else Timestamp(0),
        last_timestamp=plan.tail_record.timestamp if plan.tail_record is not None else Timestamp(0),
        completed=wall,
        first_transaction=transactions[0] if known else 0,
        last_transaction=transactions[1] if known else 0,
    )
