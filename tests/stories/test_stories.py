"""Pages of docs/stories are what the code does."""

from __future__ import annotations

import difflib
import re

import pytest

from tests.stories.pages import FOLDER, REWRITE, Story, anchor, index
from tests.stories.stories import STORIES

PROTOCOL = (FOLDER.parent / "protocol.md").read_text()
WITHOUT_STORY = {"Order across clients"}
"""It gathers what other sections promise."""


def assert_page(name: str, page: str) -> None:
    path = FOLDER / name
    written = path.read_text() if path.exists() else ""
    if page != written:
        diff = difflib.unified_diff(
            written.splitlines(), page.splitlines(), f"docs/stories/{name}", "what the code does", lineterm="", n=2
        )
        pytest.fail(
            "\n".join(
                [
                    f"docs/stories/{name} is not what the code does any more.",
                    f"`{REWRITE}` rewrites it; only commit the change if you understand what caused it.",
                    *diff,
                ]
            ),
            pytrace=False,
        )


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_page_says_what_happens(story: Story) -> None:
    assert_page(f"{story.name}.md", story.page())


def test_index_lists_all_stories() -> None:
    assert_page("README.md", index(STORIES))
    assert {path.stem for path in FOLDER.glob("*.md")} == {"README", *(story.name for story in STORIES)}


def test_every_section_of_the_protocol_links_to_its_stories() -> None:
    sections = dict(re.findall(r"^##+ (.+)\n((?:(?!##).*\n)*)", PROTOCOL, re.MULTILINE))
    assert set(sections) > WITHOUT_STORY
    for heading, text in sections.items():
        if heading in WITHOUT_STORY:
            continue
        linked = set(re.findall(r"\(stories/([\w-]+)\.md\)", text))
        assert linked, f"section {heading} links to no story"
        assert linked == {story.name for story in STORIES if anchor(story.section) == anchor(heading)}, heading


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_can_be_read_at_once(story: Story) -> None:
    lines = (FOLDER / f"{story.name}.md").read_text().splitlines()
    assert lines.index("```") - lines.index("```text") <= 81
