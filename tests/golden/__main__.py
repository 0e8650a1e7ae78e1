"""``make goldens``: records the bytes of today, beside those of before that are still read."""

from __future__ import annotations

import sys

from tests.golden.formats import formats
from tests.golden.record import rewritten


def main() -> int:
    """1: something that was recorded cannot be read any more, and is left out."""
    unreadable = False
    for format_ in formats():
        text, lost = rewritten(format_)
        for line in lost:
            unreadable = True
            print(f"{format_.path.name}: left out: {line}\n    This breaks {format_.version}. {format_.change}")
        if not format_.path.exists() or format_.path.read_text() != text:
            format_.path.write_text(text)
            print(f"written: {format_.path.name}")
    return int(unreadable)


if __name__ == "__main__":
    sys.exit(main())
