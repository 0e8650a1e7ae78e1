"""What a line of ``ldwrite``'s input is: a payload, a key and a payload, or a record in JSON as ``ldcat --format json`` prints it."""

from __future__ import annotations

import argparse
import base64
import binascii
import json
from collections.abc import Callable
from typing import Any


class LineError(Exception):
    """A line that is no record: its index among those that were parsed together, and why."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


Records = tuple[list[bytes], list[bytes | None] | None]
"""Payloads, and the key of each; None instead of the keys when none has one."""
Parse = Callable[[list[bytes]], Records]


def whole_lines(lines: list[bytes]) -> Records:
    """Each line is a payload."""
    return lines, None


def keyed_lines(delimiter: bytes) -> Parse:
    """Each line is a key, the delimiter and a payload; a line without delimiter is a payload without key."""

    def parse(lines: list[bytes]) -> Records:
        payloads: list[bytes] = []
        keys: list[bytes | None] = []
        for line in lines:
            key, found, payload = line.partition(delimiter)
            payloads.append(payload if found else line)
            keys.append(key if found else None)
        return payloads, keys

    return parse


def json_lines(lines: list[bytes]) -> Records:
    """Each line is a JSON object with `payload` or `payload_base64`, and `key` or `key_base64` where it has a key; the rest is ignored.

    Raises:
        LineError: a line is something else.
    """
    payloads: list[bytes] = []
    keys: list[bytes | None] = []
    for index, line in enumerate(lines):
        try:
            row = json.loads(line)
            if type(row) is not dict:
                raise ValueError("it is no JSON object")
            payload = _bytes_of(row, "payload")
            if payload is None:
                raise ValueError(
                    "the record was appended damaged, it has no payload to copy"
                    if row.get("corrupt")
                    else "it has neither payload nor payload_base64"
                )
            key = _bytes_of(row, "key")
        except json.JSONDecodeError as error:
            raise LineError(index, f"it is no JSON: {error.msg} at column {error.colno}") from None
        except (ValueError, RecursionError) as error:
            raise LineError(index, str(error)) from None
        payloads.append(payload)
        keys.append(key)
    return payloads, keys if any(key is not None for key in keys) else None


def _bytes_of(row: dict[str, Any], name: str) -> bytes | None:
    text, encoded = row.get(name), row.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise ValueError(f"it has both {name} and {name}_base64")
    if text is None and encoded is None:
        return None
    if type(text if encoded is None else encoded) is not str:
        raise ValueError(f"its {name} is no string")
    if encoded is None:
        try:
            return str(text).encode()
        except UnicodeEncodeError:
            raise ValueError(f"its {name} is no Unicode text: half a surrogate pair") from None
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"its {name}_base64 is not base64") from None


def parse_delimiter(text: str) -> bytes:
    r"""The bytes between key and payload; ``\t`` is a tab. For `argparse`."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text.replace("\\t", "\t").encode("utf-8", "surrogateescape")


def record_options(options: argparse.ArgumentParser, *, raw: str, null: str) -> None:
    """How records are told apart, and keys from payloads: the same for programs that read and that write."""
    options.add_argument(
        "--format",
        choices=("raw", "json"),
        default="raw",
        help=f"raw: {raw}; json: one object a line, with key and payload (default: raw)",
    )
    options.add_argument("-0", "--null", action="store_true", help=f"{null} a NUL byte in place of a newline")
    options.add_argument(
        "-K",
        "--key-delimiter",
        type=parse_delimiter,
        metavar="D",
        help="raw records begin with their key and D, like : or \\t; records without a key have no D",
    )


def check_record_options(options: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuse what says nothing in JSON."""
    if arguments.format == "json":
        if arguments.null:
            options.error("-0 goes with --format raw: in JSON a record is a line")
        if arguments.key_delimiter is not None:
            options.error("--key-delimiter goes with --format raw: in JSON the key stands for itself")


def parse_of(arguments: argparse.Namespace) -> Parse:
    """How lines become records, as the options say."""
    if arguments.format == "json":
        return json_lines
    return whole_lines if arguments.key_delimiter is None else keyed_lines(arguments.key_delimiter)
