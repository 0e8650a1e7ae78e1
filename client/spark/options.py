"""Options of the Spark source, read and checked once.

Nothing here knows Spark, or imports a package that an executor may lack: what it lacks is to be told by name, not by a failed import.
"""

from __future__ import annotations

import datetime
import enum
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, TypeVar

from client.spark.access import ACCESS, ClusterAccess
from logdevice_py.core.ids import TREE_LOG_ID_MAX, TREE_LOG_ID_MIN, LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import nearest
from logdevice_py.core.units import Micros, parse_duration, parse_size

if TYPE_CHECKING:
    from logdevice_py.config.logs import LogTree

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_RANGE: Final = re.compile(r"(\d{1,20})-(\d{1,20})")
READING: Final = (
    "cluster",
    *ACCESS,
    "logs",
    "startingLsn",
    "endingLsn",
    "startingTimestamp",
    "endingTimestamp",
    "timeAccuracy",
    "columns",
    "payloadFormat",
    "onGap",
    "includeGaps",
    "includeProof",
    "minPartitions",
    "maxBytesPerPartition",
    "pushdown",
    "readTimeout",
    "requestTimeout",
)
_OF_A_TABLE: Final = {"endingLsn", "endingTimestamp", "pushdown", "maxBytesPerPartition"}
_OF_A_STREAM: Final = ("maxRecordsPerTrigger", "maxBytesPerTrigger")
STREAMING: Final = (*(name for name in READING if name not in _OF_A_TABLE), *_OF_A_STREAM)
_BATCH: Final = "a batch read"
_STREAM: Final = "a stream"
_ELSEWHERE: Final = dict.fromkeys(sorted(_OF_A_TABLE), _BATCH) | dict.fromkeys(_OF_A_STREAM, _STREAM)
"""Options that only one kind of reading has, with that."""
_EITHER_SINK: Final = ("cluster", *ACCESS, "log", "compression", "since", "readTimeout")
WRITING: Final = (*_EITHER_SINK, "jobId", "requestTimeout")
STREAM_WRITING: Final = (*_EITHER_SINK, "delivery")
_DELIVERIES: Final = ("exactlyOnce", "atLeastOnce")
_OF_KAFKAS_SOURCE: Final = {
    "subscribe": "logs",
    "startingoffsets": "startingLsn",
    "endingoffsets": "endingLsn",
    "failondataloss": "onGap",
    "maxoffsetspertrigger": "maxRecordsPerTrigger",
    "topic": "log",
}
"""What users of Kafka's source may write, by what it is here."""
_OF_KAFKAS_POSITIONS: Final = {"latest": "tail", "earliest": "oldest"}
"""The same of its positions."""
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Keys that Spark puts among the options by itself."""
_OF_A_TABLE_OF_SQL: Final = "option."
"""Begins the options among the properties of such a table."""
_Word = TypeVar("_Word", bound=enum.Enum)


def refusal(text: str) -> LogDeviceError:
    """An option that cannot be used."""
    return LogDeviceError(Status.INVALID_PARAM, text)


class OnGap(enum.Enum):
    """What a task does where records are missing that were or may have been there."""

    FAIL_ON_LOSS = "failOnLoss"  # raise
    REPORT = "report"  # a row for the range
    SKIP = "skip"  # go on, and say how many LSNs in the log of the executor


class PayloadFormat(enum.Enum):
    """What the column payload is."""

    BINARY = "binary"
    UTF8 = "utf8"  # text; a record that is none ends the query


class TimeAccuracy(enum.Enum):
    """How positions by time are found."""

    STRICT = "strict"  # records are read
    APPROXIMATE = "approximate"  # no record is read: too early by a time partition of the shards at most


class Place(enum.Enum):
    """What a position is counted from."""

    OLDEST = enum.auto()  # behind what was trimmed
    TAIL = enum.auto()  # the last LSN that can be read when the plan is made
    LSN = enum.auto()  # itself
    TIME = enum.auto()  # the first entry that is not older


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a range begins or ends, before it is looked up."""

    place: Place
    value: int = 0
    """An LSN, or Unix UTC microseconds."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """One end of the range of every log."""

    default: Bound
    by_name: Mapping[str, Bound]
    """Of logs that have their own, by id or path as the option says them."""

    def of_logs(self, logs: Collection[LogId], tree: LogTree) -> dict[LogId, Bound]:
        """The same for each of these logs; of two names of one log the more special one holds.

        Raises:
            LogDeviceError: NOTFOUND, INVALID_PARAM (a name is of none of these logs).
        """
        found = dict.fromkeys(logs, self.default)
        for name in sorted(self.by_name, key=lambda name: (len(logs_named(name, tree)) == 1, name)):
            named = [log for log in logs_named(name, tree) if log in found]
            if not named:
                raise refusal(f"a position is given for {name}, which is not among the logs that are read")
            found.update(dict.fromkeys(named, self.by_name[name]))
        return found


def check_order(log: LogId, start: Bound, end: Bound) -> None:
    """That a range which says both of its ends in the same way does not end before it begins.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    if start.place is not end.place or end.value >= start.value:
        return
    if start.place is Place.LSN:
        raise refusal(f"the range of log {log} ends at {LSN(end.value)}, before it begins at {LSN(start.value)}")
    raise refusal(f"the range of log {log}: endingTimestamp is before startingTimestamp")


def logs_named(text: str, tree: LogTree) -> list[LogId]:
    """The logs of ``/team/clicks,7,100-120``: groups, directories, places in groups, patterns of groups like ``/*/clicks``, ids and ranges of
    ids; ascending, each once. Ids may be of logs of the log tree, of which this does not know whether they exist.

    Raises:
        LogDeviceError: NOTFOUND, INVALID_PARAM.
    """
    found: set[LogId] = set()
    for name in (part.strip() for part in text.split(",")):
        if not name:
            continue
        ids = _RANGE.fullmatch(name)
        group = tree.group_at(name)
        if ids is not None:
            lo, hi = int(ids[1]), int(ids[2])
            if lo > hi:
                raise refusal(f"logs: {name} begins behind its end")
            within = [LogId(log) for each in tree.groups for log in range(max(lo, each.lo), min(hi, each.hi) + 1)]
            if not within:
                raise LogDeviceError(Status.NOTFOUND, f"logs: there are no logs {name}")
            found.update(within)
        elif group is not None:
            found.update(map(LogId, group.ids()))
        elif name.isdecimal() and TREE_LOG_ID_MIN <= int(name) <= TREE_LOG_ID_MAX:
            found.add(LogId(int(name)))
        elif any(each in name for each in "*?["):
            matching = [each for each in tree.groups if fnmatchcase(each.path, name)]
            if not matching:
                raise LogDeviceError(Status.NOTFOUND, f"logs: no group has a path like {name}")
            found.update(LogId(log) for each in matching for log in each.ids())
        elif below := [each for each in tree.groups if each.path.startswith(name.rstrip("/") + "/")]:
            found.update(LogId(log) for each in below for log in each.ids())
        else:
            found.add(tree.find(name))
    if not found:
        raise refusal("logs: names no log; write it like /team/clicks,7,100-120")
    return sorted(found)


def _lsn_bound(text: str, tail_allowed: bool = True) -> Bound:
    word = text.strip().lower()
    if word == "oldest":
        return Bound(Place.OLDEST)
    if word == "tail" and tail_allowed:
        return Bound(Place.TAIL)
    try:
        return Bound(Place.LSN, LSN.parse(word))
    except ValueError as error:
        if "range" in str(error):
            raise refusal(str(error)) from None
        if (meant := _OF_KAFKAS_POSITIONS.get(word)) is not None:
            raise refusal(f"{text!r} is no position; did you mean {meant}?") from None
        raise refusal(f"{text!r} is no position: write e3n17, an integer, oldest or tail") from None


def _time_bound(text: str) -> Bound:
    word = text.strip()
    if word.isdigit():
        return Bound(Place.TIME, int(word) * 1000)
    try:
        when = datetime.datetime.fromisoformat(word)
    except ValueError:
        raise refusal(f"{text!r} is no time: write 2026-01-31T12:00:00Z, or milliseconds since 1970") from None
    if when.tzinfo is None:
        raise refusal(f"{text!r} has no time zone: write {when.isoformat()}Z for UTC, or +02:00 and the like")
    return Bound(Place.TIME, (when - _EPOCH) // datetime.timedelta(microseconds=1))


def _bounds(options: Mapping[str, str], side: str, default: Bound) -> Bounds:
    """The options `side`Lsn and `side`Timestamp: each one position, or a JSON object of positions by log."""
    by_lsn = _positions(options, f"{side}Lsn", _lsn_bound)
    by_time = _positions(options, f"{side}Timestamp", _time_bound)
    if isinstance(by_lsn, Bound) and isinstance(by_time, Bound):
        raise refusal(f"{side}Lsn and {side}Timestamp are both given: one of them may be, or be a JSON object by log")
    own: dict[str, Bound] = {}
    for each in (by_lsn, by_time):
        if isinstance(each, Bound):
            default = each
        elif twice := own.keys() & each.keys():
            raise refusal(f"{side}Lsn and {side}Timestamp both name {', '.join(sorted(twice))}")
        else:
            own.update(each)
    return Bounds(default, own)


def _positions(options: Mapping[str, str], key: str, read: Callable[[str], Bound]) -> Bound | dict[str, Bound]:
    text = options.get(key.lower(), "{}")
    try:
        if not text.lstrip().startswith("{"):
            return read(text)
        try:
            given = json.loads(text)
        except ValueError as error:
            raise refusal(f"is no JSON object: {error}") from None
        return {str(name): read(str(value)) for name, value in given.items()}
    except LogDeviceError as error:
        raise refusal(f"{key}: {error.detail}") from None


def _flag(options: Mapping[str, str], key: str) -> bool:
    text = options.get(key.lower(), "false").strip().lower()
    if text not in ("true", "false"):
        raise refusal(f"{key} is {text!r}; it must be true or false")
    return text == "true"


def _word(options: Mapping[str, str], key: str, default: _Word) -> _Word:
    text = options.get(key.lower(), default.value)
    words: list[_Word] = list(type(default))
    for each in words:
        if each.value.lower() == text.strip().lower():
            return each
    raise refusal(f"{key} is {text!r}; it must be one of {', '.join(each.value for each in words)}")


def _names(options: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    text = options.get(key.lower())
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise refusal(f"{key} is {text!r}; it must name columns, each once, with commas between them")
    return names


def _number(options: Mapping[str, str], key: str) -> int | None:
    text = options.get(key.lower())
    if text is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,17}", text.strip()):
        raise refusal(f"{key} is {text!r}; it must be an integer, 1 at least")
    return int(text)


def _duration(options: Mapping[str, str], key: str, default: Micros) -> Micros:
    text = options.get(key.lower())
    if text is None:
        return default
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise refusal(f"{key}: {error}") from None
    if value <= 0:
        raise refusal(f"{key} is {text!r}; it must be above 0")
    return value


def _size(options: Mapping[str, str], key: str) -> int | None:
    text = options.get(key.lower())
    if text is None:
        return None
    try:
        value = int(text) if text.strip().isdigit() else parse_size(text)
    except ValueError as error:
        raise refusal(f"{key}: {error}") from None
    if value < 1:
        raise refusal(f"{key} is {text!r}; it must be 1 byte at least")
    return value


def known_options(options: Mapping[str, Any], known: Iterable[str], what: str, path_is: str) -> dict[str, str]:
    """The options with keys in lower case.

    Args:
        options: as given; Spark does not care for the case of keys.
        known: what there is.
        what: for messages.
        path_is: the option that the argument of ``load`` and ``save`` stands for.

    Raises:
        LogDeviceError: INVALID_PARAM: one of them is unknown; a wrong option is never ignored.
    """
    given = {str(key).lower(): str(value) for key, value in options.items()}
    if any(key.startswith(_OF_A_TABLE_OF_SQL) for key in given):
        raise refusal(
            "Spark does not tell a source in Python the options of a table when it is read: write CREATE TEMPORARY VIEW instead of CREATE TABLE"
        )
    if "path" in given:
        if path_is in given:
            raise refusal(f"{path_is} is given twice: as the option and as {given['path']!r}")
        given[path_is] = given.pop("path")
    names = {name.lower(): name for name in known}
    for key in given.keys() - names.keys() - _SPARKS_OWN:
        meant_by_kafka = _OF_KAFKAS_SOURCE.get(key, "")
        elsewhere = next((each for each in _ELSEWHERE if each.lower() in (key, meant_by_kafka.lower())), None)
        if elsewhere is not None and what in (_BATCH, _STREAM) and elsewhere.lower() not in names:
            raise refusal(f"{what} has no option {key!r}: {elsewhere} is for {_ELSEWHERE[elsewhere]} only")
        close = [meant_by_kafka.lower(), nearest(key, names) or ""]
        meant = next((names[each] for each in close if each in names), None)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(sorted(names.values()))}"
        raise refusal(f"{what} has no option {key!r}; {hint}")
    if not given.get("cluster"):
        raise refusal("cluster is missing: the path of the cluster file, or its text")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceOptions:
    """How often the rows of a write get into their logs."""

    job: str | None
    exact: bool
    since: int | None
    read_timeout_us: Micros
    request_timeout_us: Micros
    """How long planning waits for the cluster."""


def once_options(given: Mapping[str, str]) -> OnceOptions:
    """From a sink's options, with keys in lower case. Nothing of a query can have been appended before its checkpoint was made.

    Raises:
        LogDeviceError: INVALID_PARAM; the text names the option.
    """
    delivery = given.get("delivery", _DELIVERIES[0]).strip().lower()
    if delivery not in map(str.lower, _DELIVERIES):
        raise refusal(f"delivery is {given['delivery']!r}; it must be one of {', '.join(_DELIVERIES)}")
    job = given.get("jobid")
    if job is not None and not job.strip():
        raise refusal("jobId is empty; it names the job, and no other job of any time")
    since = None
    if "since" in given:
        try:
            since = _time_bound(given["since"]).value
        except LogDeviceError as error:
            raise refusal(f"since: {error.detail}") from None
    return OnceOptions(
        job=job,
        exact=delivery == _DELIVERIES[0].lower(),
        since=since,
        read_timeout_us=_duration(given, "readTimeout", Micros(120_000_000)),
        request_timeout_us=_duration(given, "requestTimeout", Micros(10_000_000)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What is read, and how."""

    cluster: str
    """The path of the cluster file, or its text."""
    access: ClusterAccess
    """Who the query is, and its keys."""
    logs: str
    start: Bounds
    end: Bounds
    time_approximate: bool
    """Positions by time may be too early by as much as a time partition holds."""
    columns: tuple[str, ...] | None
    """None: all."""
    payload_format: PayloadFormat
    on_gap: OnGap
    include_gaps: bool
    include_proof: bool
    min_partitions: int
    """Of a batch read or of one micro-batch; 0: as the sizes or logs have it."""
    partition_bytes_max: int
    pushdown: bool
    read_timeout_us: Micros
    """How long a task waits without a single record or gap before it fails."""
    request_timeout_us: Micros
    """How long planning waits for a log's tail."""
    trigger_records_max: int | None
    """Records of one micro-batch; None: all that are there."""
    trigger_bytes_max: int | None
    """Bytes of payloads and keys of one micro-batch; None: all that are there."""

    @property
    def has_marks(self) -> bool:
        """There are rows that are no records."""
        return self.include_gaps or self.include_proof or self.on_gap is OnGap.REPORT

    @classmethod
    def of(cls, options: Mapping[str, Any], *, streaming: bool = False) -> SourceOptions:
        """From a source's options.

        Raises:
            LogDeviceError: INVALID_PARAM; the text names the option.
        """
        what = _STREAM if streaming else _BATCH
        return cls.lenient(known_options(options, STREAMING if streaming else READING, what, "logs"))

    @classmethod
    def lenient(cls, options: Mapping[str, Any]) -> SourceOptions:
        """The same without looking for unknown options: where it is not known yet whether a stream or a table is read."""
        given = known_options(options, {*READING, *STREAMING}, "reading", "logs")
        if not given.get("logs", "").strip():
            raise refusal("logs is missing; write it like /team/clicks,7,100-120")
        return cls(
            cluster=given["cluster"],
            access=ClusterAccess.of(given),
            logs=given["logs"],
            start=_bounds(given, "starting", Bound(Place.OLDEST)),
            end=_bounds(given, "ending", Bound(Place.TAIL)),
            time_approximate=_word(given, "timeAccuracy", TimeAccuracy.STRICT) is TimeAccuracy.APPROXIMATE,
            columns=_names(given, "columns"),
            payload_format=_word(given, "payloadFormat", PayloadFormat.BINARY),
            on_gap=_word(given, "onGap", OnGap.FAIL_ON_LOSS),
            include_gaps=_flag(given, "includeGaps"),
            include_proof=_flag(given, "includeProof"),
            min_partitions=_number(given, "minPartitions") or 0,
            partition_bytes_max=_size(given, "maxBytesPerPartition") or 64 << 20,
            pushdown=_flag(given, "pushdown"),
            read_timeout_us=_duration(given, "readTimeout", Micros(120_000_000)),
            request_timeout_us=_duration(given, "requestTimeout", Micros(10_000_000)),
            trigger_records_max=_number(given, "maxRecordsPerTrigger"),
            trigger_bytes_max=_size(given, "maxBytesPerTrigger"),
        )
