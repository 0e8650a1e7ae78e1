"""Commands to the manifest: what they ask for, as bytes and as values, and the limits of all that comes from others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from client.replica.commands import decode_body, encode_body, flag_field, number_field, refuse
from indexlog.manifest.parts import WHOLE_FILE, PartKind
from indexlog.records import TIMESTAMP_MAX, check_index
from logdevice_py.core.lsn import LSN_MAX
from logdevice_py.core.status import Status

NUMBER_MAX: Final = (1 << 63) - 1
RAW_LOGS_MAX: Final = 1024
STORE_BYTES_MAX: Final = 4096
PATH_BYTES_MAX: Final = 255
_FORMAT: Final = 1
_PATH: Final = re.compile(r"[0-9]+/[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class SliceEntry:
    """What a container holds of one index; its place in the list is that of its batch."""

    index: str
    records: int
    bytes: int
    timestamp: int


class OutputFile(NamedTuple):
    """A file that a job wrote."""

    path: str
    kind: PartKind
    records: int
    bytes: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Initialize:
    """Make the index log: where files are, and the raw logs of generation 0."""

    VERB: ClassVar[int] = 1
    store: str
    logs: Sequence[int]


@dataclass(frozen=True, slots=True)
class BeginJob:
    """Begin a job. The result is its token."""

    VERB: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class EndJob:
    """End a job: nothing is committed under its token any more, and what it wrote and did not commit is garbage."""

    VERB: ClassVar[int] = 3
    token: int


@dataclass(frozen=True, slots=True)
class Deal:
    """The modifications of [start, until] of one raw log are in a container."""

    VERB: ClassVar[int] = 4
    token: int
    log: int
    start: int
    until: int
    drops: int
    """How many drops of indexes whoever made the container knew."""
    unreadable: int
    """Records that are no modifications."""
    path: str
    """Of the container; empty when there were no modifications."""
    slices: Sequence[SliceEntry]


@dataclass(frozen=True, slots=True)
class Replace:
    """A run of an index's parts is in one file."""

    VERB: ClassVar[int] = 5
    token: int
    index: str
    inputs: Sequence[tuple[str, int]]
    """Keys of parts, side by side, oldest first."""
    drops_deletes: bool
    """The run begins with the oldest part, so deletes have gone."""
    output: OutputFile | None
    """None: no document is left."""


@dataclass(frozen=True, slots=True)
class Forget:
    """What was retired up to a serial is not read any more; page tokens below it are not served."""

    VERB: ClassVar[int] = 6
    serial: int


@dataclass(frozen=True, slots=True)
class DropIndex:
    """All that an index has goes."""

    VERB: ClassVar[int] = 7
    index: str
    floors: Sequence[tuple[int, int]]
    """For each raw log that is not dealt whole its tail: what is not behind it goes, too."""


@dataclass(frozen=True, slots=True)
class AddGeneration:
    """Modifications go to other raw logs once the generation before has ended."""

    VERB: ClassVar[int] = 8
    logs: Sequence[int]


@dataclass(frozen=True, slots=True)
class EndGeneration:
    """No raw log of the generation takes anything any more."""

    VERB: ClassVar[int] = 9
    number: int
    ends: Sequence[int]


ManifestCommand: TypeAlias = (
    Initialize | BeginJob | EndJob | Deal | Replace | Forget | DropIndex | AddGeneration | EndGeneration
)


def encode_manifest_command(command: ManifestCommand) -> bytes:
    """The body of a command."""
    return encode_body(_FORMAT, command.VERB, list(astuple(command)))


def decode_manifest_command(data: bytes) -> ManifestCommand:
    """From `encode_manifest_command`; CommandRefused for anything else."""
    return decode_body(data, _FORMAT, "the manifest", _decoded)


def _decoded(verb: Any, fields: list[Any]) -> ManifestCommand:
    if verb == Initialize.VERB:
        store, logs = fields
        return Initialize(_store(store), _logs(logs))
    if verb == BeginJob.VERB:
        () = fields
        return BeginJob()
    if verb == EndJob.VERB:
        (token,) = fields
        return EndJob(_number(token))
    if verb == Deal.VERB:
        token, log, start, until, drops, unreadable, path, slices = fields
        return Deal(
            _number(token),
            _number(log),
            lsn_field(start),
            lsn_field(until),
            _number(drops),
            _number(unreadable),
            path_field(path) if path else "",
            [_slice(each) for each in _array(slices)],
        )
    if verb == Replace.VERB:
        token, index, inputs, drops_deletes, output = fields
        return Replace(
            _number(token),
            check_index(index),
            [_key(each) for each in _array(inputs)],
            flag_field(drops_deletes),
            None if output is None else _output(output),
        )
    if verb == Forget.VERB:
        (serial,) = fields
        return Forget(_number(serial))
    if verb == DropIndex.VERB:
        index, floors = fields
        return DropIndex(check_index(index), [(_number(log), lsn_field(lsn)) for log, lsn in _array(floors)])
    if verb == AddGeneration.VERB:
        (logs,) = fields
        return AddGeneration(_logs(logs))
    if verb == EndGeneration.VERB:
        number, ends = fields
        return EndGeneration(_number(number), [lsn_field(end) for end in _array(ends)])
    raise refuse(Status.NOTSUPPORTED, "a verb of the manifest expected")


def _number(value: Any) -> int:
    return number_field(value, 0, NUMBER_MAX)


def lsn_field(value: Any) -> int:
    """An LSN; 0 is before the first one."""
    return number_field(value, 0, LSN_MAX - 1)


def _array(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError("an array expected")
    return value


def _store(value: Any) -> str:
    if type(value) is not str or not 1 <= len(value.encode()) <= STORE_BYTES_MAX:
        raise ValueError("the URL of a store expected")
    return value


def _logs(value: Any) -> list[int]:
    logs = [number_field(log, 1, NUMBER_MAX) for log in _array(value)]
    if not 1 <= len(logs) <= RAW_LOGS_MAX or len(set(logs)) != len(logs):
        raise ValueError(f"1 to {RAW_LOGS_MAX} logs expected")
    return logs


def path_field(value: Any) -> str:
    """A file in the store; ValueError when it is none."""
    if type(value) is not str or len(value) > PATH_BYTES_MAX or _PATH.fullmatch(value) is None:
        raise ValueError("the path of a file expected: the token of a job, and a name")
    return value


def token_of(path: str) -> int:
    """Which job wrote a file."""
    return int(path.partition("/")[0])


def is_path(value: str) -> bool:
    """Whether a job may have written a file of this path."""
    return len(value) <= PATH_BYTES_MAX and _PATH.fullmatch(value) is not None


def _key(value: Any) -> tuple[str, int]:
    path, place = _array(value)
    return path_field(path), number_field(place, WHOLE_FILE, NUMBER_MAX)


def _slice(value: Any) -> SliceEntry:
    index, records, size, timestamp = _array(value)
    return SliceEntry(
        check_index(index),
        number_field(records, 1, NUMBER_MAX),
        _number(size),
        number_field(timestamp, 0, TIMESTAMP_MAX),
    )


def _output(value: Any) -> OutputFile:
    path, kind, records, size, timestamp = _array(value)
    return OutputFile(
        path_field(path),
        PartKind(number_field(kind, PartKind.SORTED, PartKind.OPTIMIZED)),
        number_field(records, 1, NUMBER_MAX),
        _number(size),
        number_field(timestamp, 0, TIMESTAMP_MAX),
    )
