"""Deliberate faults of clients: appending again, write streams, and reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import client.look_up.find_request
import client.questions
import client.read.decoding
import client.write.frame_reader
from client.append.append_request import AppendRequests
from client.read.fail_over import FailOver
from client.read.gap_detection import GapDetector, GapVerdict
from client.read.hedging import Hedging
from client.read.items import GapKind
from client.read.nodeset_lookup import NodesetLookup
from client.read.read_set import ReadSet
from client.read.read_stream import ReadStream
from client.write.frame import FrameFate
from client.write.write_stream import WriteStream
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.placement.failure_domains import FMajority
from logdevice_py.protocol.messages import GapReason
from tests.simulation.deliberate_fault import deliberate
from tests.simulation.run_mode import RunMode

Change = Callable[..., Any]


@deliberate("an append that may have got a position is sent again without saying so", (AppendRequests, "_resend_as"))
def previous_lsn_dropped(original: Change) -> Change:
    def resend_as(self: AppendRequests, frame: Any) -> None:
        frame.message.previous_lsn = LSN_INVALID
        original(self, frame)

    return resend_as


@deliberate("an append whose connection broke is sent again", (AppendRequests, "on_peer_down"))
def doubtful_append_repeated(original: Change) -> Change:
    return lambda self, peer, was_up, now: original(self, peer, False, now)


@deliberate("a write stream sends frames of unknown outcome again without looking for them", (WriteStream, "_moved"))
def doubtful_frame_repeated(original: Change) -> Change:
    def moved(self: WriteStream, epoch: Any, node: Any, now: Any) -> None:
        for frame in self._frames.of_unknown_outcome():
            frame.fate = FrameFate.QUEUED
        original(self, epoch, node, now)

    return moved


@deliberate("a write stream takes what it does not know for refused", (WriteStream, "_lost"))
def doubt_forgotten(original: Change) -> Change:
    return lambda self, now, *, unknown: original(self, now, unknown=False)


@deliberate("a write stream takes whatever has its number for its own frame", (client.write.frame_reader, "is_wanted"))
def found_frames_uncompared(original: Change) -> Change:
    return lambda content, frame: True


@deliberate("a reader takes what the first shard does not have for a hole", (ReadStream, "_account_for_missing"))
def missing_is_hole(original: Change) -> Change:
    def account_for_missing(self: ReadStream, lsn: Lsn, now: Any) -> bool:
        if self._lookup.released >= lsn and any(sender.next_lsn > lsn for sender in self._read_set.senders.values()):
            self._delivery.gap(GapKind.HOLE, lsn)
            return True
        return original(self, lsn, now)

    return account_for_missing


@deliberate("a reader reports loss when one shard less than an f-majority has nothing", (GapDetector, "_decide"))
def reader_f_majority_one_short(original: Change) -> Change:
    def decide(self: GapDetector, gap: Any, under_replicated: Any) -> GapVerdict:
        verdict = original(self, gap, under_replicated)
        if verdict is not GapVerdict.WAIT or not gap:
            return verdict
        missing = [shard for shard in self._domains.shards if shard not in gap]
        proves = self._domains.f_majority([*gap, *missing[:1]]) is not FMajority.NONE
        return GapVerdict.GRACE if proves else verdict

    return decide


@deliberate("a reader waits for ever for the shard that should send", (FailOver, "failed"), (FailOver, "fall_back"))
def no_fail_over(original: Change) -> Change:
    return lambda self, *arguments: None


@deliberate("a reader takes messages of a stream that it has rewound", (ReadSet, "accept"), likely="slow shards")
def filter_version_ignored(original: Change) -> Change:
    def accept(self: ReadSet, message: Any) -> Any:
        sender = self.senders.get(message.shard)
        if sender is not None:
            message.filter_version = sender.version
        return original(self, message)

    return accept


@deliberate(
    "a reader does not compare entries with their checksums", (client.read.decoding, "check_body"), likely="bad wires"
)
def reader_checksum_skipped(original: Change) -> Change:
    return lambda image, header: None


@deliberate("a reader lets a shard send although the shard's share of the buffer is full", (ReadSet, "_room"))
def full_buffer_ignored(original: Change) -> Change:
    return lambda self, sender: self._share


@deliberate("a look-up is content with the answer of one shard", (client.look_up.find_request, "enough"))
def look_up_of_one_shard(original: Change) -> Change:
    return lambda parts, answers, above: any(answer.through for answer in answers.values())


@deliberate(
    "a reader counts what shards say to its hedges like what they say otherwise", (Hedging, "on_gap"), likely="hedges"
)
def hedge_gaps_counted(original: Change) -> Change:
    def on_gap(self: Hedging, message: Any, now: Any) -> None:
        original(self, message, now)
        sender = self._read_set.senders[message.shard]
        sender.next_lsn = max(sender.next_lsn, Lsn(message.last + 1))
        if message.reason == GapReason.TRIM:
            self._delivery.trim_point = max(self._delivery.trim_point, message.last)

    return on_gap


@deliberate("what hedges bring counts as progress of the shard that is dead", (Hedging, "awaited"), likely="hedges")
def hedges_nurse_dead_shards(original: Change) -> Change:
    return lambda self: self._position.next


@deliberate(
    "a reader calls lost what shards may have that joined the nodeset since it was read",
    (NodesetLookup, "is_later_than"),
    mode=RunMode.REBUILDING,
)
def loss_by_older_nodesets(original: Change) -> Change:
    return lambda self, evidence, now: True


@deliberate(
    "a look-up finds nothing where shards may have it that joined the nodeset since it was read",
    (client.questions, "surveyed"),
    mode=RunMode.REBUILDING,
)
def look_up_by_older_nodesets(original: Change) -> Change:
    async def surveyed(ask: Any, parts: Any, parts_anew: Any) -> Any:
        return await ask(parts)

    return surveyed
