"""One search index: the documents of an index of an index log, in Tantivy. It can be killed at any moment, and goes on where it was.

What was read and where to go on are committed together: the token of the last page is a document of the same Tantivy index, and Tantivy's commit is one
rename. A page that was not committed is read again, and it changes nothing that was committed before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tantivy

from indexlog.paging import IndexPage
from indexlog.records import Modification, document, merge, pack_contents, unpack_contents

HEAP_BYTES = 15_000_000  # the least that Tantivy takes
PLACE = "place"


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("docid", stored=True, tokenizer_name="raw")
    builder.add_text_field("text")
    builder.add_bytes_field(
        "contents", stored=True
    )  # of the document as it is, for modifications that change a part of it
    builder.add_integer_field("timestamp", stored=True)
    builder.add_text_field("kind", tokenizer_name="raw")
    builder.add_text_field("state", stored=True, tokenizer_name="raw")
    return builder.build()


SCHEMA = _schema()


@dataclass(frozen=True)
class Place:
    """How far the index log is read."""

    token: str | None = None
    """Of the last page; None: nothing was read."""
    is_whole: bool = False
    """The state at which reading began was read to its end; from there on modifications are followed."""


@dataclass(frozen=True)
class Hit:
    """A document that was found."""

    docid: str
    score: float
    contents: Modification


class SearchIndex:
    """A Tantivy index in a directory; all calls block. One process at a time writes to it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._index = tantivy.Index(SCHEMA, str(directory))
        self._writer: Any = None
        self.place = self._stored_place()

    def _stored_place(self) -> Place:
        searcher = self._index.searcher()
        found = searcher.search(tantivy.Query.term_query(SCHEMA, "kind", PLACE), 1).hits
        return Place(**json.loads(searcher.doc(found[0][1]).get_first("state"))) if found else Place()

    def apply(self, page: IndexPage) -> int:
        """Change what a page says, and commit that together with the page's token. How many modifications it had."""
        rows = list(page.rows())
        older = self.documents(docid for docid, change in rows if not change.deleted)
        if self._writer is None:
            self._writer = self._index.writer(HEAP_BYTES, 1)
        try:
            for docid, change in rows:
                left = document(merge(older[docid], change) if docid in older else change)
                self._writer.delete_documents_by_term("docid", docid)
                if left is not None:
                    self._writer.add_document(_stored(docid, left))
            place = Place(page.token, self.place.is_whole or page.tail_token is not None)
            self._writer.delete_documents_by_term("kind", PLACE)
            self._writer.add_document(_made(kind=PLACE, state=json.dumps(vars(place))))
            self._writer.commit()
        except BaseException:
            self._writer = None  # with what was not committed
            raise
        self._index.reload()
        self.place = place
        return len(rows)

    def rest(self) -> None:
        """Merge what is worth it, and let go of memory and threads until there is something to apply."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.wait_merging_threads()
            self._index.reload()

    def documents(self, docids: Iterable[str]) -> dict[str, Modification]:
        """Those of some documents that there are."""
        wanted = list(docids)
        if not wanted:
            return {}
        searcher = self._index.searcher()
        found = searcher.search(tantivy.Query.term_set_query(SCHEMA, "docid", wanted), len(wanted)).hits
        return {hit.docid: hit.contents for hit in (_hit(searcher, score, at) for score, at in found)}

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        """The best documents for a query in Tantivy's language.

        Raises:
            ValueError: it is none.
        """
        searcher = self._index.searcher()
        found = searcher.search(self._index.parse_query(query, ["text"]), limit).hits
        return [_hit(searcher, score, at) for score, at in found]

    def count(self) -> int:
        """How many documents there are."""
        searcher = self._index.searcher()
        return int(searcher.num_docs) - (self.place.token is not None)


def _stored(docid: str, left: Modification) -> Any:
    words = [docid, *(left.fields or {}).values(), *left.categories.values()]
    contents = pack_contents(left) or b""
    return _made(docid=docid, text="\n".join(words), contents=contents, timestamp=left.timestamp, kind="document")


def _made(**values: object) -> Any:
    return tantivy.Document.from_dict(values, SCHEMA)


def _hit(searcher: Any, score: float, at: Any) -> Hit:
    found = searcher.doc(at)
    contents = bytes(found.get_first("contents")) or None
    return Hit(found.get_first("docid"), score, unpack_contents(False, contents, found.get_first("timestamp")))


class KeptIndex:
    """A search index that serves while it is made anew: each attempt has a directory of its own, and serves once it is whole."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        there = [found for number in reversed(self._numbers()) if (found := self._opened(number)) is not None]
        self.making = there[0] if there else self._next()
        """To which pages are applied."""
        self.serving = next((each for each in there if each.place.is_whole), self.making)
        """In which is searched."""
        self._tidy()

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self.directory.iterdir() if path.name.isdecimal())

    def _opened(self, number: int) -> SearchIndex | None:
        try:
            return SearchIndex(self.directory / str(number))
        except ValueError:  # made by another version of this program, with other fields
            return None

    def _next(self) -> SearchIndex:
        return SearchIndex(self.directory / str(max(self._numbers(), default=0) + 1))

    def _tidy(self) -> None:
        kept = {self.making.directory, self.serving.directory}
        for path in set(self.directory.iterdir()) - kept:
            gone = (
                self.directory / f"gone-{path.name.removeprefix('gone-')}"
            )  # what is half removed is not opened again
            path.rename(gone)
            shutil.rmtree(gone)

    def apply(self, page: IndexPage) -> int:
        """As `SearchIndex.apply`."""
        count = self.making.apply(page)
        if self.making is not self.serving and self.making.place.is_whole:
            self.serving = self.making
            self._tidy()
        return count

    def begin_again(self) -> None:
        """Nobody can read on from here: make the index from nothing, and serve what there is until then."""
        self.making.rest()
        self.making = self._next()
        self._tidy()

    def rest(self) -> None:
        """As `SearchIndex.rest`."""
        self.making.rest()
