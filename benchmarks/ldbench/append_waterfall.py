"""Where appends spent their time: the instants of all processes put together, append by append, and the medians of what they say.

A process's instants are of its own monotonic clock. Processes of one machine share it; for others the difference is estimated: a message
cannot arrive before it is sent, so the fastest message in each direction bounds it from both sides. Where the bounds allow that there is no
difference, none is assumed.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.percentiles import percentile

CLIENT: Final = "client"
WIRE, WORK, DISK, HANDOVER, WAIT = "way", "work", "disk", "hand-over", "wait"
KINDS: Final = {
    WIRE: "on the way: the sender's write, the kernel, until the receiver's loop has decoded it",
    WORK: "handled by a process",
    DISK: "the disk",
    HANDOVER: "from thread to thread",
    WAIT: "waiting",
}
_BAR: Final = 44
_PLACES: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


@dataclass(frozen=True, slots=True)
class ProcessInstant:
    """An instant of one process, as `TraceInstant` has it, with its names as text."""

    process: str
    at_ns: int
    event: str
    log: int | None = None
    lsn: int | None = None
    peer: str | None = None
    shard: str | None = None
    wave: int | None = None
    request_id: int | None = None
    batch_offset: int | None = None
    took_ns: int | None = None


@dataclass(slots=True)
class TracedAppend:
    """What the application saw of one append."""

    lsn: int
    batch_offset: int
    called_ns: int
    returned_ns: int
    delivered_ns: int | None = None
    """When a reader's caller had it; None: nobody read it."""


@dataclass(frozen=True, slots=True)
class TracedSpan:
    """A stretch of one append's way."""

    lane: str
    label: str
    kind: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class SpanMedian:
    """The same stretch of many appends, in microseconds since the call."""

    lane: str
    label: str
    kind: str
    begin_us: float
    took_us: float
    took_p99_us: float
    appends: int
    """How many went that way."""


@dataclass(slots=True)
class Waterfall:
    """All that the traced appends say."""

    spans: list[SpanMedian]
    appends: int
    """That could be followed."""
    lost: dict[str, int] = field(default_factory=dict)
    """Why others could not."""
    last_copies: dict[str, int] = field(default_factory=dict)
    """How often which copy was the last one that an append waited for."""
    clocks: dict[str, str] = field(default_factory=dict)
    """Processes whose clocks are not the client's, and what was assumed."""
    totals_us: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Median and p99 of what callers waited for."""


class _Index:
    """Instants by what they are about."""

    def __init__(self, instants: Iterable[ProcessInstant]) -> None:
        self.by_lsn: defaultdict[tuple[str, int], list[ProcessInstant]] = defaultdict(list)
        self.appends: dict[tuple[str, str, int], ProcessInstant] = {}
        """APPEND at its sender and its receiver, by event, process and request id; of several the last."""
        self.syncs: defaultdict[str, list[ProcessInstant]] = defaultdict(list)
        self.releases: defaultdict[tuple[str, str], list[ProcessInstant]] = defaultdict(list)
        for each in sorted(instants, key=lambda each: each.at_ns):
            if each.event.startswith("APPEND_"):
                assert each.request_id is not None
                self.appends[each.event, each.process, each.request_id] = each
            elif each.event == "SYNCED":
                self.syncs[each.shard or ""].append(each)
            elif each.event.startswith("RELEASE_"):
                self.releases[each.event, each.shard or ""].append(each)
            elif each.lsn is not None:
                self.by_lsn[each.event, each.lsn].append(each)


def clock_bounds(instants: Sequence[ProcessInstant]) -> dict[tuple[str, str], int]:
    """The fastest message from one process to another, by both clocks: the least difference of arrival and departure, by sender and receiver."""
    sent: dict[tuple[Any, ...], ProcessInstant] = {}
    for each in instants:
        if (key := _message_key(each, "_SENT")) is not None:
            sent[key] = each
    found: dict[tuple[str, str], int] = {}
    for each in instants:
        key = _message_key(each, "_RECEIVED")
        if key is None or (origin := sent.get(key)) is None or origin.process == each.process:
            continue
        way = origin.process, each.process
        found[way] = min(found.get(way, 1 << 62), each.at_ns - origin.at_ns)
    return found


def _message_key(each: ProcessInstant, ending: str) -> tuple[Any, ...] | None:
    """What a message is recognised by at both ends; None: it is not, or is repeated as it is."""
    if not each.event.endswith(ending):
        return None
    name = each.event.removesuffix(ending)
    if name in ("STORE", "STORED"):
        return name, each.log, each.lsn, each.shard, each.wave
    if name in ("APPEND", "APPENDED"):
        return name, each.log, each.request_id, each.lsn, each.batch_offset
    return None


def clock_offsets(instants: Sequence[ProcessInstant], reference: str = CLIENT) -> dict[str, tuple[int, int]]:
    """How far each process's clock is ahead of the reference's, and how wrong that may be, in nanoseconds; those that no messages connect are left out."""
    bounds = clock_bounds(instants)
    offsets = {reference: (0, 0)}
    queue = deque([reference])
    while queue:
        known = queue.popleft()
        for sender, receiver in bounds:
            if sender != known or receiver in offsets or (receiver, sender) not in bounds:
                continue
            high, low = bounds[known, receiver], -bounds[receiver, known]
            step = 0 if low <= 0 <= high else (low + high) // 2
            offset, error = offsets[known]
            offsets[receiver] = offset + step, error + (0 if step == 0 else (high - low + 1) // 2)
            queue.append(receiver)
    return offsets


def waterfall(instants: Sequence[ProcessInstant], appends: Sequence[TracedAppend]) -> Waterfall:
    """Follow each append through all processes.

    Args:
        instants: of all processes; those of whoever appended are of `CLIENT`.
        appends: as the application saw them, of one log.
    """
    offsets = clock_offsets(instants)
    found = Waterfall([], 0)
    for process, (offset, error) in offsets.items():
        if offset:
            found.clocks[process] = f"{offset / 1000:+,.0f} us beside the client's, give or take {error / 1000:,.0f}"
    for process in {each.process for each in instants} - offsets.keys():
        found.clocks[process] = "not known: no messages both ways"
    index = _Index(
        each if not (offset := offsets.get(each.process, (0, 0))[0]) else _shifted(each, offset) for each in instants
    )
    lost: defaultdict[str, int] = defaultdict(int)
    spans: list[tuple[int, list[TracedSpan]]] = []
    for append in appends:
        followed = _follow(index, append)
        if isinstance(followed, str):
            lost[followed] += 1
            continue
        path, last = followed
        spans.append((append.called_ns, path))
        found.last_copies[last] = found.last_copies.get(last, 0) + 1
    found.lost = dict(lost)
    found.appends = len(spans)
    found.spans = _medians(spans)
    found.totals_us["acknowledged"] = _median_p99([each.returned_ns - each.called_ns for each in appends])
    delivered = [each.delivered_ns - each.called_ns for each in appends if each.delivered_ns is not None]
    if delivered:
        found.totals_us["delivered"] = _median_p99(delivered)
    return found


def _shifted(each: ProcessInstant, offset: int) -> ProcessInstant:
    return ProcessInstant(
        each.process,
        each.at_ns - offset,
        each.event,
        each.log,
        each.lsn,
        each.peer,
        each.shard,
        each.wave,
        each.request_id,
        each.batch_offset,
        each.took_ns,
    )


def _median_p99(values: Sequence[int]) -> tuple[float, float]:
    if not values:
        return 0.0, 0.0
    return statistics.median(values) / 1000, percentile(values, 0.99) / 1000


def _medians(appends: Sequence[tuple[int, Sequence[TracedSpan]]]) -> list[SpanMedian]:
    """In the order of the lanes of the appends, within a lane by their beginnings."""
    begins: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    takes: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    lanes: dict[str, None] = {}
    for called, spans in appends:
        for span in spans:
            lanes[span.lane] = None
            begins[span.lane, span.label, span.kind].append(span.begin_ns - called)
            takes[span.lane, span.label, span.kind].append(span.end_ns - span.begin_ns)
    found = []
    for key, values in takes.items():
        middle, high = _median_p99(values)
        found.append(SpanMedian(*key, statistics.median(begins[key]) / 1000, middle, high, len(values)))
    order = list(lanes)
    found.sort(key=lambda each: (order.index(each.lane), each.begin_us))
    return found


def _follow(index: _Index, append: TracedAppend) -> tuple[list[TracedSpan], str] | str:
    """One append's spans and the copy that it waited for last; or why it cannot be followed."""
    answers = [
        each for each in index.by_lsn["APPENDED_RECEIVED", append.lsn] if each.batch_offset == append.batch_offset
    ]
    if not answers:  # it is not the first record of its frame: another append tells of that
        return "it shared its frame with another append"
    answer = answers[-1]
    assert answer.request_id is not None
    node = answer.peer or ""
    sent = index.appends.get(("APPEND_SENT", CLIENT, answer.request_id))
    received = index.appends.get(("APPEND_RECEIVED", node, answer.request_id))
    answered = [
        each
        for each in index.by_lsn["APPENDED_SENT", append.lsn]
        if each.process == node and each.request_id == answer.request_id and each.batch_offset == append.batch_offset
    ]
    if sent is None or received is None or not answered:
        return "instants of its way to the sequencer are not kept any more"
    stores = [each for each in index.by_lsn["STORE_SENT", append.lsn] if each.process == node]
    if len({each.wave for each in stores}) > 1:
        return "it took several waves"
    spans = [
        TracedSpan("client", "append() until it is sent", WORK, append.called_ns, sent.at_ns),
        TracedSpan("to the sequencer", "APPEND", WIRE, sent.at_ns, received.at_ns),
    ]
    copies = _own_copy(index, append.lsn, node, received) + _other_copies(index, append.lsn, node, stores)
    if not copies:
        return "instants of its copies are not kept any more"
    first_store = min((each.at_ns for each in stores), default=copies[0][1][0].begin_ns)
    spans.append(TracedSpan("sequencer", "turn: checks, position, image", WORK, received.at_ns, first_store))
    for _, path in copies:
        spans += path
    last_lane, last_path = max(copies, key=lambda each: each[1][-1].end_ns)
    decided = last_path[-1].end_ns
    spans.append(TracedSpan("sequencer", "last copy until APPENDED leaves", WORK, decided, answered[-1].at_ns))
    spans.append(TracedSpan("to the client", "APPENDED", WIRE, answered[-1].at_ns, answer.at_ns))
    spans.append(TracedSpan("client", "answer until append() returns", WORK, answer.at_ns, append.returned_ns))
    spans += _delivery(index, append, node, decided)
    return spans, last_lane


def _stored_at(index: _Index, lsn: int, shard: str, lane: str, arrived: int, *, first: str) -> list[TracedSpan]:
    """What a copy's shard did: written, synced, told."""
    writes = [each for each in index.by_lsn["WRITTEN", lsn] if each.shard == shard]
    durable = [each for each in index.by_lsn["DURABLE", lsn] if each.shard == shard]
    if not writes or not durable:
        return []
    written, told = writes[0].at_ns, durable[0].at_ns
    began = max(arrived, written - (writes[0].took_ns or 0))
    spans = [
        TracedSpan(lane, first, WORK, arrived, began),
        TracedSpan(lane, "written to the store's log", DISK, began, written),
    ]
    sync = next(
        (
            each
            for each in reversed(index.syncs[shard])
            if each.at_ns <= told and each.at_ns - (each.took_ns or 0) >= written
        ),
        None,
    )
    if sync is not None:
        begins = sync.at_ns - (sync.took_ns or 0)
        spans += [
            TracedSpan(lane, "until a sync begins", HANDOVER, written, begins),
            TracedSpan(lane, "sync", DISK, begins, sync.at_ns),
            TracedSpan(lane, "back to the loop", HANDOVER, sync.at_ns, told),
        ]
    elif told > written:
        spans.append(TracedSpan(lane, "until the machines hear of it", WAIT, written, told))
    return spans


def _own_copy(index: _Index, lsn: int, node: str, received: ProcessInstant) -> list[tuple[str, list[TracedSpan]]]:
    shard = next((each.shard for each in index.by_lsn["WRITTEN", lsn] if each.process == node), None)
    if shard is None:
        return []
    lane = "the sequencer's own copy"
    path = _stored_at(index, lsn, shard, lane, received.at_ns, first="turn: STOREs leave first")
    return [(lane, path)] if path else []


def _other_copies(
    index: _Index, lsn: int, node: str, stores: Sequence[ProcessInstant]
) -> list[tuple[str, list[TracedSpan]]]:
    answers = [each for each in index.by_lsn["STORED_RECEIVED", lsn] if each.process == node]
    found = []
    for place, answer in enumerate(answers):
        shard = answer.shard or ""
        lane = f"{_PLACES[min(place, len(_PLACES) - 1)]} other copy to answer"
        store = next((each for each in stores if each.shard == shard), None)
        arrival = next((each for each in index.by_lsn["STORE_RECEIVED", lsn] if each.shard == shard), None)
        left = next((each for each in index.by_lsn["STORED_SENT", lsn] if each.shard == shard), None)
        if store is None or arrival is None or left is None:
            continue
        path = [TracedSpan(lane, "STORE", WIRE, store.at_ns, arrival.at_ns)]
        path += _stored_at(index, lsn, shard, lane, arrival.at_ns, first="turn: checks")
        if len(path) > 1:
            path.append(TracedSpan(lane, "STORED is made", WORK, path[-1].end_ns, left.at_ns))
            path.append(TracedSpan(lane, "STORED", WIRE, left.at_ns, answer.at_ns))
            found.append((lane, path))
    return found


def _delivery(index: _Index, append: TracedAppend, node: str, decided: int) -> list[TracedSpan]:
    """From the last copy on to the reader's caller."""
    arrivals = [each for each in index.by_lsn["RECORDS_RECEIVED", append.lsn] if each.process == CLIENT]
    if append.delivered_ns is None or not arrivals:
        return []
    arrival = arrivals[0]
    shard, lane = arrival.shard or "", "to the reader"
    left = next((each for each in index.by_lsn["RECORDS_SENT", append.lsn] if each.shard == shard), None)
    if left is None:
        return []
    told = _release_of(index, "RELEASE_RECEIVED", shard, append.lsn)
    sent = _release_of(index, "RELEASE_SENT", shard, append.lsn)
    spans = []
    if left.process == node or sent is None or told is None:
        spans.append(TracedSpan(lane, "released by the own node, read, sent", WORK, decided, left.at_ns))
    else:
        spans += [
            TracedSpan(lane, "last copy until RELEASE leaves", WORK, decided, sent.at_ns),
            TracedSpan(lane, "RELEASE", WIRE, sent.at_ns, told.at_ns),
            TracedSpan(lane, "read and sent", WORK, told.at_ns, left.at_ns),
        ]
    spans += [
        TracedSpan(lane, "RECORDS", WIRE, left.at_ns, arrival.at_ns),
        TracedSpan(lane, "decoded until the reader's caller has it", WORK, arrival.at_ns, append.delivered_ns),
    ]
    return spans


def _release_of(index: _Index, event: str, shard: str, lsn: int) -> ProcessInstant | None:
    """The first that covers the entry. Releases of a log only grow, so that is the first of so great an LSN."""
    return next((each for each in index.releases[event, shard] if (each.lsn or 0) >= lsn), None)


def as_text(found: Waterfall, title: str) -> str:
    """For a terminal."""
    lines = [title, ""]
    end = max((each.begin_us + each.took_us for each in found.spans), default=1.0)
    width = max((len(each.label) for each in found.spans), default=0)
    lane = ""
    lines.append(f"{'microseconds since the call, medians':<{width + 2}}{'begins':>9}{'takes':>9}{'p99':>9}")
    for each in found.spans:
        if each.lane != lane:
            lane = each.lane
            lines.append(lane)
        start = round(each.begin_us / end * _BAR)
        length = max(1, round(each.took_us / end * _BAR))
        bar = " " * min(start, _BAR - 1) + "#" * length
        partly = "" if each.appends == found.appends else f" ({each.appends} appends)"
        lines.append(
            f"  {each.label:<{width}}{each.begin_us:>9,.0f}{each.took_us:>9,.0f}{each.took_p99_us:>9,.0f}  |{bar:<{_BAR}}|{partly}"
        )
    lines.append("")
    for what, (middle, high) in found.totals_us.items():
        lines.append(f"{what}: p50 {middle:,.0f} us, p99 {high:,.0f} us after the call")
    lines += notes(found)
    return "\n".join(lines) + "\n"


def notes(found: Waterfall) -> list[str]:
    """What somebody who looks at a waterfall should know."""
    lines = [f"{found.appends} appends were followed"]
    lines += [f"{count} were not: {why}" for why, count in found.lost.items()]
    total = sum(found.last_copies.values())
    lines += [
        f"the last copy that an append waited for: {lane}, {count * 100 // total} %"
        for lane, count in sorted(found.last_copies.items(), key=lambda each: -each[1])
    ]
    lines += [f"clock of {process}: {what}" for process, what in sorted(found.clocks.items())]
    return lines


_COLOURS: Final = {WIRE: "#9aa5b1", WORK: "#3b7dd8", DISK: "#c0392b", HANDOVER: "#e0a030", WAIT: "#d9d2c0"}
_ROW, _LEFT, _WIDTH, _TOP = 17, 290, 760, 64


def as_svg(found: Waterfall, title: str) -> str:
    """A picture."""
    end = max((each.begin_us + each.took_us for each in found.spans), default=1.0) or 1.0
    lanes = dict.fromkeys(each.lane for each in found.spans)
    below = notes(found)
    height = _TOP + _ROW * (len(found.spans) + len(lanes) + len(below) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 90}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_LEFT + _WIDTH + 90}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="15">{_escaped(title)}</text>',
    ]
    x = 10
    for kind, meaning in KINDS.items():
        parts.append(f'<rect x="{x}" y="30" width="11" height="11" fill="{_COLOURS[kind]}"/>')
        parts.append(f'<text x="{x + 15}" y="40" font-size="10">{_escaped(meaning)}</text>')
        x += 30 + round(5.2 * len(meaning))
    step = _tick(end)
    for number in range(int(end // step) + 1):
        at = _LEFT + number * step / end * _WIDTH
        parts.append(
            f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{height - _ROW * (len(below) + 1)}" stroke="#eee"/>'
        )
        parts.append(f'<text x="{at:.1f}" y="{_TOP - 4}" text-anchor="middle" fill="#666">{number * step:g} us</text>')
    y, lane = _TOP, ""
    for each in found.spans:
        if each.lane != lane:
            lane = each.lane
            y += _ROW
            parts.append(f'<text x="10" y="{y - 4}" font-weight="bold">{_escaped(lane)}</text>')
        y += _ROW
        start = _LEFT + each.begin_us / end * _WIDTH
        length = max(1.0, each.took_us / end * _WIDTH)
        parts.append(f'<text x="22" y="{y - 4}">{_escaped(each.label)}</text>')
        parts.append(
            f'<rect x="{start:.1f}" y="{y - _ROW + 4}" width="{length:.1f}" height="{_ROW - 5}" fill="{_COLOURS[each.kind]}">'
            f"<title>{_escaped(each.label)}: {each.took_us:,.0f} us, p99 {each.took_p99_us:,.0f}</title></rect>"
        )
        parts.append(f'<text x="{start + length + 4:.1f}" y="{y - 4}" fill="#333">{each.took_us:,.0f}</text>')
    y += _ROW
    for line in below:
        y += _ROW
        parts.append(f'<text x="10" y="{y - 4}" fill="#444">{_escaped(line)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _tick(end: float) -> float:
    """A round number of microseconds, of which some ten make the whole."""
    for step in (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000):
        if end / step <= 12:
            return step
    return end / 10


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def instants_of(process: str, rows: Iterable[Mapping[str, Any]]) -> list[ProcessInstant]:
    """Of the rows of a node's table `append_trace`."""
    return [
        ProcessInstant(
            process,
            row["at_ns"],
            row["event"],
            row["log_id"],
            row["lsn"],
            row["peer"],
            row["copy"],
            row["wave"],
            row["request_id"],
            row["batch_offset"],
            row["took_ns"],
        )
        for row in rows
    ]
