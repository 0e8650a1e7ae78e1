"""Which records count when one writer is run by one process after another, and what must come of it."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulation.history import AttemptFate, LogHistory, Observation

LETTER = "h"
"""With which the names of the processes begin; a number follows that is greater than those of all processes before."""
FENCE = "fence"


class CountedRecords:
    """Which records of successive processes count.

    A process begins with a fence. Up to the fence of a later process it has its turn: only its records count, and of these only the one with the
    number that comes next. So what an earlier process gets into the log late is left out, and what follows a record that failed.
    """

    def __init__(self, payloads: Iterable[bytes]) -> None:
        """
        Args:
            payloads: of the log, in order, those of others included.
        """
        self.last = 0
        """The number of the last record that counts."""
        self.counted: set[bytes] = set()
        self.in_turn: set[bytes] = set()
        """Records of whoever had his turn when they came."""
        letter, fence, turn = LETTER.encode(), FENCE.encode(), -1
        for payload in payloads:
            if not payload.startswith(letter):
                continue
            name, what = payload.split(b"-")[:2]
            process = int(name[1:])
            if what == fence:
                turn = max(turn, process)
            elif process == turn:
                self.in_turn.add(payload)
                if int(what) == self.last + 1:
                    self.last += 1
                    self.counted.add(payload)


def check_succession(history: LogHistory, whole: Observation) -> None:
    """What was acknowledged to the process that had its turn counts, as far as nothing before it failed: no process went on at a wrong number."""
    records = CountedRecords(payload for _, _, payload in whole.records)
    failed: set[str] = set()
    for attempt in history.attempts.values():
        if not attempt.stream.startswith(LETTER) or attempt.stream in failed:
            continue
        if attempt.fate is not AttemptFate.ACKNOWLEDGED:
            failed.add(attempt.stream)
        elif attempt.payload in records.in_turn and attempt.payload not in records.counted:
            history.fail(
                f"{attempt.payload[:24]!r} was acknowledged in order and does not count; {records.last} records do"
            )
