from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from logdevice_py.core.declare import parse_setting, render_value
from server.dev.render_docs import PAGES, SETTINGS, settings_page

ROOT = Path(__file__).resolve().parents[4]
PAGES_OF_OURS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_page_says_what_the_declarations_say(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), f"docs/{name} is out of date: run make docs"


def anchors_of(page: Path) -> set[str]:
    """Where links into a page may lead, as those who render it name its headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return found


@pytest.mark.parametrize("page", PAGES_OF_OURS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_docs_lead_somewhere(page: Path) -> None:
    assert [(target, anchor) for target, anchor in links_of(page) if not leads_somewhere(page, target, anchor)] == []


def links_of(page: Path) -> list[tuple[str, str]]:
    """Files of ours, or nothing for the page itself, and headings in them."""
    return re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page.read_text())


def leads_somewhere(page: Path, target: str, anchor: str) -> bool:
    linked = page.parent / target if target else page
    return linked.exists() and (not anchor or anchor in anchors_of(linked))


def test_links_are_seen() -> None:
    links = [(page, *link) for page in PAGES_OF_OURS for link in links_of(page)]
    assert len(links) > 50
    assert len([anchor for _, _, anchor in links if anchor]) > 3
    assert not leads_somewhere(PAGES_OF_OURS[0], "", "no-such-heading")
    assert not leads_somewhere(PAGES_OF_OURS[0], "no-such-page.md", "")


def test_every_page_is_in_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    assert [page for page in (ROOT / "docs").rglob("*.md") if str(page.relative_to(ROOT / "docs")) not in site] == []


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
    declared = [field for field in dataclasses.fields(cls) if "unit" in field.metadata]
    assert declared
    for field in declared:
        unit = field.metadata["unit"]
        shown = render_value(unit, field.default)
        written = shown if unit in ("us", "bytes", "text") else shown == "true" if unit == "flag" else int(shown)
        assert parse_setting(field, written) == field.default
