"""What a story is, and the page that is made of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.stories.recorder import Focus
from tests.stories.stage import StoryStage

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "stories"
REWRITE: Final = "make stories"
SEEDS: Final = 20
"""The first seed by which a story shows what it is about is taken."""
_NOTE: Final = f"<!-- Played and written by `{REWRITE}`; edits here are overwritten. -->\n"
_HOW_TO_READ: Final = """# Stories

Each page is a transcript: a small simulated cluster of the production code does one thing, and every event of it is a line. Read them beside the
[protocol](../protocol.md), in this order.

{contents}

## How to read a line

```text
2.0 ms  N1 -> N3:S0 N4:S0  STORE    log 1 e1n22 "pear", wave 1, copyset N3 N4
```

- Virtual time since the story began. A message takes 0.2 ms, a sync 1 ms, in every story: what takes longer, does so for a reason.
- Who: `N1` is a node, `N3:S0` its shard, `C1` a client. N0 and N1 sequence, all other nodes store and have one shard each, so copysets and nodesets
  name nodes. Lines are in the order in which messages are sent, and say so when one arrives late, or never. What several say at one time is one line.
- What: the message as [messages](../messages.md) declares it, without fields that say nothing to a reader (ids of requests, sizes, zeros). `e1n22` is the
  LSN of epoch 1 and ESN 22; `n22` is an ESN. The [words](../terminology.md) are explained elsewhere.
- `disk` lines, in stories that have them, are what a shard writes in one batch: entries, and rows of metadata by the names that
  `storage_node/log_store/interface.py` explains. `N1 <- epoch store` is an answer of the epoch store, with what it changed.

Gossip and other messages that carry nothing for the story are left out.

## How they are kept

`make stories` plays all of them again and rewrites these pages; `tests/stories` fails when a page differs from what the code does. A difference is a
change of the protocol, of a message or of chance (each story takes the first seed of chance that shows what it is about): commit the new page only if you understand what caused it.
"""


@dataclass(frozen=True, slots=True)
class Story:
    """One story."""

    name: str
    """Of its page."""
    title: str
    section: str
    """Heading in docs/protocol.md of what it shows."""
    watch: str
    """What to watch, in a few sentences; names in braces are filled in from `StoryStage.names`."""
    play: Callable[[int], StoryStage]
    """Plays it with a seed: chance decides copysets, for one."""
    shows: tuple[str, ...]
    """Regular expressions; each must be found in some line, else the story does not show what it is about any more."""
    focus: Focus = field(default_factory=Focus)

    def page(self) -> str:
        """The text of the page; AssertionError when the story does not show any more what it is about, whatever chance is."""
        for seed in range(1, SEEDS + 1):
            stage = self.play(seed)
            lines = stage.recorder.lines(self.focus)
            missing = [
                each for each in self.shows if not any(re.search(each.format(**stage.names), it) for it in lines)
            ]
            if not missing:
                return self._page(stage, lines)
        raise AssertionError("\n".join([f"the story {self.name} does not show {missing}:", *lines]))

    def _page(self, stage: StoryStage, lines: list[str]) -> str:
        section = f"[{self.section}](../protocol.md#{anchor(self.section)})"
        return "\n".join(
            [
                _NOTE,
                f"# {self.title}",
                "",
                textwrap.fill(self.watch.format(**stage.names), 150, break_long_words=False, break_on_hyphens=False),
                "",
                f"{stage.about}. Protocol: {section}. [How to read a line](README.md#how-to-read-a-line).",
                "",
                "```text",
                *lines,
                "```",
                "",
            ]
        )


def index(stories: Sequence[Story]) -> str:
    """The text of docs/stories/README.md."""
    contents = []
    for section in dict.fromkeys(story.section for story in stories):
        titles = [f"[{each.title}]({each.name}.md)" for each in stories if each.section == section]
        contents.append(f"- {section.partition('. ')[2] or section}: {', '.join(titles)}")
    return f"{_NOTE}\n{_HOW_TO_READ.format(contents=chr(10).join(contents))}"


def anchor(heading: str) -> str:
    """Where a link to a heading leads."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
