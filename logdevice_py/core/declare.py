"""How settings and metrics are declared: once, with unit, bounds and meaning, and rendered to the docs from there."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from logdevice_py.core.histogram import Histogram
from logdevice_py.core.units import format_duration, format_size, parse_duration, parse_size

S = TypeVar("S")


def setting(
    default: Any,
    *,
    unit: str,
    doc: str,
    lo: int | None = None,
    hi: int | None = None,
    sim: tuple[int, int] | None = None,
) -> Any:
    """Declare one setting as the default of a dataclass field.

    Args:
        default: its value when nobody sets it, in `unit`.
        unit: "us" (written as a duration: 10ms), "bytes" (written as a size: 64MiB), "flag" (true or false), "text", or a counted noun.
        doc: one sentence on what it does.
        lo: smallest allowed value.
        hi: largest allowed value.
        sim: the range from which simulation draws, when narrower than lo to hi.
    """
    return dataclasses.field(default=default, metadata={"unit": unit, "doc": doc, "lo": lo, "hi": hi, "sim": sim})


def parse_setting(field: dataclasses.Field[Any], raw: Any) -> Any:
    """The value of a setting as written in TOML; ValueError names the setting and what would be right."""
    unit = field.metadata["unit"]
    value: Any
    try:
        if unit == "us" and isinstance(raw, str):
            negative = (
                raw.startswith("-") and (field.metadata["lo"] or 0) < 0
            )  # stands for something else than a duration
            value = -parse_duration(raw[1:]) if negative else parse_duration(raw)
        elif unit == "bytes" and isinstance(raw, str):
            value = parse_size(raw)
        elif unit == "flag":
            if not isinstance(raw, bool):
                raise ValueError("write true or false")
            value = raw
        elif unit == "text":
            if not isinstance(raw, str):
                raise ValueError("write a string")
            value = raw
        elif unit in ("us", "bytes"):
            raise ValueError("write it with a unit, in quotes, like " + ('"10ms"' if unit == "us" else '"64MiB"'))
        elif isinstance(raw, int) and not isinstance(raw, bool):
            value = raw
        else:
            raise ValueError("write an integer")
    except ValueError as error:
        raise ValueError(f"{field.name}: {error}") from None
    lo, hi = field.metadata["lo"], field.metadata["hi"]
    if lo is not None and value < lo:
        raise ValueError(f"{field.name}: {render_value(unit, value)} is below the minimum {render_value(unit, lo)}")
    if hi is not None and value > hi:
        raise ValueError(f"{field.name}: {render_value(unit, value)} is above the maximum {render_value(unit, hi)}")
    return value


def written_value(field: dataclasses.Field[Any], text: str) -> Any:
    """What TOML would make of a value that is written without quotes, on a command line or in a request; `parse_setting` takes it."""
    unit = field.metadata.get("unit", "text")
    if unit in ("us", "bytes", "text"):
        return text
    if unit == "flag":
        return {"true": True, "false": False}.get(text, text)
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 19 else text


def settings_from(cls: type[S], raw: Mapping[str, Any]) -> S:
    """A settings dataclass from a TOML table; unknown names and values out of bounds raise ValueError."""
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in raw:
        if name not in fields:
            close = ", ".join(sorted(fields))
            raise ValueError(f"{name}: no such setting; there are {close}")
    return cls(**{name: parse_setting(fields[name], value) for name, value in raw.items()})


def render_value(unit: str, value: Any) -> str:
    """A value as it is written in TOML, without quotes."""
    if unit == "us":
        return format_duration(value)
    if unit == "bytes":
        return format_size(value)
    if unit == "flag":
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return value.name.lower()
    return str(value)


@dataclass(frozen=True, slots=True)
class MetricDeclaration:
    """One metric: its kind (counter, gauge or histogram), unit and meaning."""

    name: str
    kind: str
    unit: str
    doc: str


def counter(doc: str, *, unit: str) -> Any:
    """Declare a counter as the default of a field of a metrics dataclass: an int that only grows."""
    return dataclasses.field(default=0, metadata={"kind": "counter", "unit": unit, "doc": doc})


def gauge(doc: str, *, unit: str) -> Any:
    """Declare a gauge as the default of a field of a metrics dataclass: an int that goes up and down."""
    return dataclasses.field(default=0, metadata={"kind": "gauge", "unit": unit, "doc": doc})


def histogram(doc: str) -> Any:
    """Declare a histogram of durations as the default of a field of a metrics dataclass: a `Histogram`."""
    return dataclasses.field(default_factory=Histogram, metadata={"kind": "histogram", "unit": "us", "doc": doc})


def declarations(cls: type[Any]) -> Iterator[MetricDeclaration]:
    """The metrics that a metrics dataclass declares, in order."""
    for field in dataclasses.fields(cls):
        yield MetricDeclaration(field.name, field.metadata["kind"], field.metadata["unit"], field.metadata["doc"])
