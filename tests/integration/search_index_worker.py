"""A search index to which pages are applied until the process is killed: ``python -m tests.integration.search_index_worker DIRECTORY``.

Each page that is applied is a line of the output. From the third page on the index is whole.
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.search_index import SearchIndex
from indexlog.columns import table_of
from indexlog.paging import IndexPage
from indexlog.records import Modification

DOCUMENTS = 40


def page_of(number: int) -> IndexPage:
    """Page 1 and those behind it: puts, patches and deletes of some documents."""
    rows = []
    for place in range(5):
        docid = f"doc-{(number * 7 + place * 11) % DOCUMENTS}"
        kind = (number + place) % 4
        fields = {"text": f"word{number} common"} if kind < 2 else None
        rows.append((docid, Modification(kind in (0, 3), fields, {} if kind == 3 else {number % 6: float(number)})))
    tail = None if number < 3 else str(number)
    return IndexPage(table_of(rows), "", str(number) if tail is None else None, tail)


def main(directory: str) -> None:
    """Go on where the one before was killed."""
    index = SearchIndex(Path(directory))
    number = int(index.place.token or 0)
    while True:
        number += 1
        index.apply(page_of(number))
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
