"""Files in which results are kept while seeds go on: refused before the first seed if they cannot be written, whole at all times after that."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def why_not_writable(path: Path) -> str | None:
    """None if a file can be written there."""
    if path.is_dir():
        return f"{path} is a directory"
    try:
        part = _part_of(path)
        part.touch()
        part.unlink()
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return None


class ReportFiles:
    """Writes results again and again. That this fails is told once, and does not end what makes the results."""

    def __init__(self) -> None:
        self.up_to_date = True
        """The last writing worked."""
        self._told = False

    def write(self, texts: Mapping[Path, str]) -> None:
        """Replace each file by its text."""
        try:
            for path, text in texts.items():
                _replace(path, text)
        except OSError as error:
            self.up_to_date = False
            if not self._told:
                print(f"the report cannot be written: {error}; the seeds go on without", file=sys.stderr, flush=True)
            self._told = True
        else:
            self.up_to_date = True


def _replace(path: Path, text: str) -> None:
    part = _part_of(path)
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _part_of(path: Path) -> Path:
    return path.with_name(path.name + ".part")
