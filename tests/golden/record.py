"""The files of golden bytes: what each format has looked like since it was first written, with what the bytes mean."""

from __future__ import annotations

import dataclasses
import enum
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

DIRECTORY: Final = Path(__file__).parent
_WIDTH: Final = 32
"""Bytes a line."""
_BEFORE: Final = ", before"
"""In the name of bytes that are not written any more, and still read."""


_NEVER: Final = object()
_ADDED_LATER: Final[dict[tuple[str, str], Any]] = {
    ("EpochInterval", "extra_copies"): 0,
    ("EpochInterval", "joined"): (),
    ("EpochInterval", "widened"): 0,
    ("EpochMetaData", "guarded_since"): 0,
    ("EpochMetaData", "strict_since"): 0,
    ("EpochState", "tail_records"): 0,
    ("EpochState", "tail_extensions"): b"",
    ("CleanLog", "summary"): b"",
    ("GossipNode", "failed"): [],
    ("EpochEnd", "summary"): b"",
    ("RecoveredEpoch", "summary"): b"",
    ("Extensions", "counts"): None,
    ("Extensions", "summary"): None,
    ("TailRecord", "records"): None,
    ("TailRecord", "state"): None,
    ("TailRecord", "condition"): 0,
}
"""Fields within fields that were added when there was something recorded already, with their default: which is not told."""


@dataclass(frozen=True)
class GoldenCase:
    """One value of a format."""

    name: str
    data: bytes
    """As this version writes it."""
    read: Callable[[bytes], Any] | None
    """What this version makes of such bytes; None: nobody reads them back, they are compared or looked up."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """What the bytes were made from, where they do not tell."""
    written: bool = True
    """False: an earlier version wrote them, or a library whose output may change. They are read as they were recorded."""

    def fields(self, data: bytes) -> dict[str, str]:
        """What such bytes mean, a line for each field."""
        told = {name: _text(value) for name, value in self.inputs.items()}
        if self.read is not None:
            told |= dict(_lines(self.read(data)))
        return told


@dataclass(frozen=True)
class GoldenFormat:
    """One file."""

    name: str
    version: str
    """What a change of these bytes breaks."""
    change: str
    """How the format may be changed."""
    cases: list[GoldenCase]

    @property
    def path(self) -> Path:
        """Where it is recorded."""
        return DIRECTORY / f"{self.name}.txt"


@dataclass(frozen=True)
class RecordedCase:
    """A case as it stands in the file."""

    fields: dict[str, str]
    data: bytes


def read_file(format_: GoldenFormat) -> dict[str, RecordedCase]:
    """What is recorded of a format, by name."""
    return read_path(format_.path)


def read_path(path: Path) -> dict[str, RecordedCase]:
    """What a file holds, by name."""
    found: dict[str, RecordedCase] = {}
    name, fields, data = "", dict[str, str](), bytearray()

    def end() -> None:
        if name:
            assert name not in found, name
            found[name] = RecordedCase(dict(fields), bytes(data))
        fields.clear()
        data.clear()

    for line in path.read_text().splitlines() if path.exists() else ():
        if not line or line.startswith("#"):
            continue
        if not line.startswith("  "):
            end()
            name = line
        elif line.startswith("  | "):
            data += bytes.fromhex(line[4:])
        else:
            key, _, value = line.strip().partition(": ")
            fields[key] = value
    end()
    return found


def base_name(name: str) -> str:
    """The case of which bytes are recorded, that of today or one from before."""
    return name.partition(_BEFORE)[0]


def trouble_of(case: GoldenCase, recorded: RecordedCase) -> str:
    """What is wrong with how recorded bytes are read; empty: nothing. Fields that they do not have are none of their business."""
    try:
        told = case.fields(recorded.data)
    except Exception as error:  # noqa: BLE001 - whatever a reader does instead of reading
        return f"they cannot be read: {type(error).__name__}: {error}"
    changed = [
        f"{name} is read as {told.get(name)}, it was {value}"
        for name, value in recorded.fields.items()
        if told.get(name) != value
    ]
    return "; ".join(changed)


def rewritten(format_: GoldenFormat) -> tuple[str, list[str]]:
    """What the file is to hold, and what of the present content is left out because it cannot be read any more. Bytes that are not written any
    more and still are read stay."""
    recorded, cases = read_file(format_), {case.name: case for case in format_.cases}
    lost: list[str] = []
    blocks: list[str] = []
    for case in format_.cases:
        kept = recorded.get(case.name)
        usable = kept is not None and not trouble_of(case, kept)
        data = kept.data if kept is not None and usable and not case.written else case.data
        blocks.append(_block(case.name, case.fields(data), data))
        former = [each for name, each in recorded.items() if name != case.name and base_name(name) == case.name]
        if kept is not None and not (usable and kept.data == data):
            former.append(kept)
        number = 0
        for each in former:
            trouble = trouble_of(case, each)
            if trouble:
                lost.append(f"{case.name}: {trouble}")
            elif each.data != data:
                number += 1
                blocks.append(_block(f"{case.name}{_BEFORE} {number}", each.fields, each.data))
    lost += [f"{name}: there is no such case any more" for name in recorded if base_name(name) not in cases]
    head = "\n".join(
        "# " + line
        for text in (f"Golden bytes: {format_.version}.", format_.change, "Written by `make goldens`.")
        for line in textwrap.wrap(text, 120)
    )
    return head + "\n\n" + "\n".join(blocks), lost


def _block(name: str, fields: dict[str, str], data: bytes) -> str:
    lines = [name, *(f"  {key}: {value}" for key, value in fields.items())]
    lines += [f"  | {data[at : at + _WIDTH].hex()}" for at in range(0, len(data), _WIDTH)]
    return "\n".join(lines) + "\n"


def _lines(value: Any) -> Iterator[tuple[str, str]]:
    if dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            yield from _lines_of(each.name, getattr(value, each.name))
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _lines_of(str(name), each)
    else:
        yield from _lines_of("value", value)


def _lines_of(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if (isinstance(value, list | tuple) and value and isinstance(value[0], tuple | list)) or _holds_objects(value):
        for index, each in enumerate(value):
            yield f"{name}[{index}]", _text(each)
    else:
        yield name, _text(value)


def _object(value: Any, fields: dict[str, Any]) -> str:
    kind = type(value).__name__
    told = {name: each for name, each in fields.items() if _ADDED_LATER.get((kind, name), _NEVER) != each}
    return f"{kind}({', '.join(f'{name}={_text(each)}' for name, each in told.items())})"


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and dataclasses.is_dataclass(value[0])


def _text(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return value.name or str(value)
    if isinstance(value, bytes):
        return f"{value.hex() or 'empty'}"
    if dataclasses.is_dataclass(value):
        return _object(value, {each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _object(value, dict(zip(value._fields, value, strict=True)))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {_text(each)}" for key, each in value.items()) + "}"
    return repr(value) if isinstance(value, str) else str(value)
