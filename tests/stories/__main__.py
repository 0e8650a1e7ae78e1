"""``python -m tests.stories`` plays all stories and rewrites their pages in docs/stories; with names, only those."""

from __future__ import annotations

import sys

from tests.stories.pages import FOLDER, index
from tests.stories.stories import STORIES


def main(names: list[str]) -> int:
    """Rewrite the pages that changed, and say which."""
    known = [story.name for story in STORIES]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"there is no story {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    pages = {"README.md": index(STORIES)}
    failed = False
    for story in STORIES:
        if not names or story.name in names:
            try:
                pages[f"{story.name}.md"] = story.page()
            except AssertionError as error:
                failed = True
                print(error)
    FOLDER.mkdir(exist_ok=True)
    for name, page in pages.items():
        path = FOLDER / name
        if not path.exists() or path.read_text() != page:
            path.write_text(page)
            print(f"written: docs/stories/{name}")
    for path in FOLDER.glob("*.md"):
        if path.stem not in (*known, "README"):
            path.unlink()
            print(f"removed: docs/stories/{path.name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
