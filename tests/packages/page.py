"""The cluster file of docs/install.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Final

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "install.md"
_BLOCK: Final = re.compile(r"```toml\n(.*?)```", re.DOTALL)
_EPOCHS: Final = re.compile(r'^epoch_store = ".*"$', re.MULTILINE)


def cluster_file_of_the_page(addresses: Mapping[str, str] | None = None, epochs: str = "") -> str:
    """Its text, with other addresses and another epoch store where they are given."""
    block, *_ = _BLOCK.findall(PAGE.read_text())  # what follows is added to it for TLS and permissions
    text = dedent(" " * 4 + block.lstrip()) if block.startswith(" ") else block
    if epochs:
        text = _EPOCHS.sub(f'epoch_store = "{epochs}"', text)
    for written, used in (addresses or {}).items():
        text = text.replace(f'"{written}"', f'"{used}"')
    return text
