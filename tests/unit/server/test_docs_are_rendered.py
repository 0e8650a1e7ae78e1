from __future__ import annotations

import re
from pathlib import Path

import pytest

from server.render_docs import PAGES

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", PAGES)
def test_page_says_what_the_declarations_say(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), f"docs/{name} is out of date: run make docs"


def test_links_between_docs_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
