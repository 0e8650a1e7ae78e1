"""Commands to the manifest: what they ask for, as bytes and as values, and the limits of all that comes from others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeAlias

from client.replica.command_set import CommandField, CommandSet, Flag, integer, member
from client.replica.commands import flag_field, number_field
from indexlog.manifest.parts import WHOLE_FILE, JobKind, PartKind
from indexlog.records import TIMESTAMP_MAX, check_index
from logdevice_py.core.lsn import LSN_MAX

NUMBER_MAX: Final = (1 << 63) - 1
RAW_LOGS_MAX: Final = 1024
STORE_BYTES_MAX: Final = 4096
PATH_BYTES_MAX: Final = 255
_FORMAT: Final = 2
_PATH: Final = re.compile(r"[0-9]+/[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class SliceEntry:
    """What a container holds of one index. Its rows are behind those of the entries before."""

    index: str
    records: int
    bytes: int
    timestamp: int


class OutputFile(NamedTuple):
    """A file that a job wrote, or what it holds of one index."""

    path: str
    kind: PartKind
    records: int
    bytes: int
    """As `Part.bytes`."""
    timestamp: int
    place: int = WHOLE_FILE
    """As `Part.place`."""


@dataclass(frozen=True, slots=True)
class ReplacedRun:
    """As `Replace`, of one index among several."""

    index: str
    inputs: Sequence[tuple[str, int]]
    drops_deletes: bool
    output: OutputFile | None


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


def _path_or_nothing(value: Any) -> str:
    return path_field(value) if value else ""


def _keys(value: Any) -> list[tuple[str, int]]:
    return [(path_field(path), number_field(place, WHOLE_FILE, NUMBER_MAX)) for path, place in _array(value)]


def _floors(value: Any) -> list[tuple[int, int]]:
    return [(_number(log), lsn_field(lsn)) for log, lsn in _array(value)]


def _ends(value: Any) -> list[int]:
    return [lsn_field(end) for end in _array(value)]


def _slices(value: Any) -> list[SliceEntry]:
    return [
        SliceEntry(
            check_index(index),
            number_field(records, 1, NUMBER_MAX),
            _number(size),
            number_field(timestamp, 0, TIMESTAMP_MAX),
        )
        for index, records, size, timestamp in _array(value)
    ]


def _slice_rows(slices: Sequence[SliceEntry]) -> list[tuple[str, int, int, int]]:
    return [(each.index, each.records, each.bytes, each.timestamp) for each in slices]


def _output(value: Any) -> OutputFile | None:
    if value is None:
        return None
    path, kind, records, size, timestamp, place = _array(value)
    return OutputFile(
        path_field(path),
        PartKind(number_field(kind, PartKind.SORTED, PartKind.OPTIMIZED)),
        number_field(records, 1, NUMBER_MAX),
        _number(size),
        number_field(timestamp, 0, TIMESTAMP_MAX),
        number_field(place, WHOLE_FILE, NUMBER_MAX),
    )


def _outputs(value: Any) -> list[OutputFile]:
    found = [output for each in _array(value) if (output := _output(each)) is not None]
    keys = [(output.path, output.place) for output in found]
    if sorted(set(keys)) != keys:
        raise ValueError("files in the order of their paths expected, each once")
    return found


def _runs(value: Any) -> list[ReplacedRun]:
    paths, rows = _array(value)
    known = [path_field(path) for path in _array(paths)]

    def path(number: Any) -> str:
        return known[number_field(number, 0, len(known) - 1)]

    runs = [
        ReplacedRun(
            check_index(index),
            [(path(number), number_field(place, WHOLE_FILE, NUMBER_MAX)) for number, place in _array(inputs)],
            flag_field(drops_deletes),
            _output(None if output is None else [path(output[0]), *output[1:]]),
        )
        for index, inputs, drops_deletes, output in _array(rows)
    ]
    if not runs or len({run.index for run in runs}) != len(runs):
        raise ValueError("runs of several indexes expected, one of each")
    return runs


def _run_rows(runs: Sequence[ReplacedRun]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Paths, each once, and runs that name them by number."""
    paths: dict[str, int] = {}

    def number(path: str) -> int:
        return paths.setdefault(path, len(paths))

    rows = [
        (
            run.index,
            [(number(path), place) for path, place in run.inputs],
            run.drops_deletes,
            None if run.output is None else (number(run.output.path), *run.output[1:]),
        )
        for run in runs
    ]
    return list(paths), rows


Number: TypeAlias = Annotated[int, integer(0, NUMBER_MAX)]
LsnField: TypeAlias = Annotated[int, CommandField(lsn_field)]
IndexCode: TypeAlias = Annotated[str, CommandField(check_index)]
RawLogs: TypeAlias = Annotated[Sequence[int], CommandField(_logs)]


@dataclass(frozen=True, slots=True)
class Initialize:
    """Make the index log: where files are, and the raw logs of generation 0."""

    VERB: ClassVar[int] = 1
    store: Annotated[str, CommandField(_store)]
    logs: RawLogs


@dataclass(frozen=True, slots=True)
class BeginJob:
    """Begin a job. The result is its token."""

    VERB: ClassVar[int] = 2
    kind: Annotated[JobKind, member(JobKind)] = JobKind.OTHER


@dataclass(frozen=True, slots=True)
class EndJob:
    """End a job: nothing is committed under its token any more, and what it wrote and did not commit is garbage."""

    VERB: ClassVar[int] = 3
    token: Number


@dataclass(frozen=True, slots=True)
class Deal:
    """The modifications of [start, until] of one raw log are in a container."""

    VERB: ClassVar[int] = 4
    token: Number
    log: Number
    start: LsnField
    until: LsnField
    drops: Number
    """How many drops of indexes whoever made the container knew."""
    unreadable: Number
    """Records that are no modifications."""
    path: Annotated[str, CommandField(_path_or_nothing)]
    """Of the container; empty when there were no modifications."""
    slices: Annotated[Sequence[SliceEntry], CommandField(_slices, _slice_rows)]


@dataclass(frozen=True, slots=True)
class Replace:
    """A run of an index's parts is in one file, or in several, if it is a large one."""

    VERB: ClassVar[int] = 5
    token: Number
    index: IndexCode
    inputs: Annotated[Sequence[tuple[str, int]], CommandField(_keys)]
    """Keys of parts, side by side, oldest first."""
    drops_deletes: Flag
    """The run begins with the oldest part, so deletes have gone."""
    outputs: Annotated[Sequence[OutputFile], CommandField(_outputs)]
    """Each of other document ids, in the order of paths; none: no document is left."""


@dataclass(frozen=True, slots=True)
class ReplaceRuns:
    """A run of parts of each of several indexes is in a file that they share. Each is judged by itself; the result is how many were refused."""

    VERB: ClassVar[int] = 10
    token: Number
    runs: Annotated[Sequence[ReplacedRun], CommandField(_runs, _run_rows)]


@dataclass(frozen=True, slots=True)
class Forget:
    """What was retired up to a serial is not read any more; page tokens below it are not served."""

    VERB: ClassVar[int] = 6
    serial: Number


@dataclass(frozen=True, slots=True)
class DropIndex:
    """All that an index has goes."""

    VERB: ClassVar[int] = 7
    index: IndexCode
    floors: Annotated[Sequence[tuple[int, int]], CommandField(_floors)]
    """For each raw log that is not dealt whole its tail: what is not behind it goes, too."""


@dataclass(frozen=True, slots=True)
class AddGeneration:
    """Modifications go to other raw logs once the generation before has ended."""

    VERB: ClassVar[int] = 8
    logs: RawLogs


@dataclass(frozen=True, slots=True)
class EndGeneration:
    """No raw log of the generation takes anything any more."""

    VERB: ClassVar[int] = 9
    number: Number
    ends: Annotated[Sequence[int], CommandField(_ends)]


def token_of(path: str) -> int:
    """Which job wrote a file."""
    return int(path.partition("/")[0])


def is_path(value: str) -> bool:
    """Whether a job may have written a file of this path."""
    return len(value) <= PATH_BYTES_MAX and _PATH.fullmatch(value) is not None


ManifestCommand: TypeAlias = (
    Initialize | BeginJob | EndJob | Deal | Replace | ReplaceRuns | Forget | DropIndex | AddGeneration | EndGeneration
)

COMMANDS: Final = CommandSet[ManifestCommand]("the manifest", _FORMAT, ManifestCommand)
encode_manifest_command: Final = COMMANDS.encode
decode_manifest_command: Final = COMMANDS.decode
