from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from logdevice_py.core.declare import parse_setting, render_value
from server.render_docs import PAGES, SETTINGS, settings_page

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", PAGES)
def test_page_says_what_the_declarations_say(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), f"docs/{name} is out of date: run make docs"


def test_links_between_docs_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def rows_of(page: str) -> dict[str, list[str]]:
    """Cells of every table row, by the name in the first one."""
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells[1:] for cells in lines}


def test_choices_are_shown_by_their_names() -> None:
    rows = rows_of(settings_page())
    assert rows["durability"][:3] == ["sync", "text", "sync, async"]
    assert rows["batching_compression"][:3] == ["none", "text", "none, lz4, zstd"]
    assert rows["hello_timeout_us"][2] == "at least 10ms"


@pytest.mark.parametrize("cls", [cls for _, _, _, cls in SETTINGS])
def test_every_default_is_shown_as_it_would_be_written(cls: type) -> None:
    for field in dataclasses.fields(cls):
        if "unit" in field.metadata:
            unit = field.metadata["unit"]
            shown = render_value(unit, field.default)
            written = shown if unit in ("us", "bytes", "text") else shown == "true" if unit == "flag" else int(shown)
            assert parse_setting(field, written) == field.default
