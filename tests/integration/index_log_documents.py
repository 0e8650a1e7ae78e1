"""Documents that a test writes, with what each of them has to be: compared with pages, with raw logs and with the files of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from indexlog.index_log import IndexLog
from indexlog.planning import ALL_AT_ONCE
from indexlog.records import LogRecord, Modification, document
from indexlog.verifying import verify
from indexlog.writer import IndexWriter

Contents: TypeAlias = tuple[dict[str, str] | None, dict[int, float], dict[str, str]]
"""Fields, variables, categories."""


def contents_of(documents: Mapping[str, Modification]) -> dict[str, Contents]:
    """Of documents that were read, without times."""
    return {
        docid: (None if each.fields is None else dict(each.fields), dict(each.variables), dict(each.categories))
        for docid, change in documents.items()
        if (each := document(change)) is not None
    }


@dataclass
class WrittenDocuments:
    """Writes puts, patches and deletes, and applies them to documents of its own by the rules that the documentation states."""

    indexes: Sequence[str] = ("books", "films", "songs")
    documents: int = 12
    """Of an index."""
    seed: int = 1

    def __post_init__(self) -> None:
        self._rng = Random(self.seed)
        self.written = 0
        self.expected: dict[str, dict[str, Contents]] = {index: {} for index in self.indexes}

    async def write(self, writer: IndexWriter, count: int) -> None:
        """So many modifications, each acknowledged before this ends; those of one document one after the other."""
        sent = []
        for _ in range(count):
            index, docid = self._rng.choice(self.indexes), f"doc-{self._rng.randrange(self.documents):02}"
            sent.append(await writer.append(self._next(index, docid)))
        await asyncio.gather(*sent)

    def _next(self, index: str, docid: str) -> LogRecord:
        self.written += 1
        of_index, number = self.expected[index], self.written
        match self._rng.randrange(5):
            case 0:
                of_index.pop(docid, None)
                return LogRecord(index, docid, Modification(True))
            case 1 | 2:
                of_index[docid] = ({"n": str(number)}, {0: float(number)}, {})
                return LogRecord(index, docid, Modification(True, {"n": str(number)}, {0: float(number)}))
            case _:
                name = self._rng.randrange(1, 4)
                fields, variables, categories = of_index.get(docid, (None, {}, {}))
                more = {f"kind-{name}": str(number)}
                of_index[docid] = (fields, variables | {name: float(number)}, categories | more)
                return LogRecord(index, docid, Modification(False, None, {name: float(number)}, more))

    async def check(self, log: IndexLog) -> None:
        """Pages give what was written, nothing else, and the raw logs say the same."""
        for index in self.indexes:
            assert contents_of(await log.documents(index)) == self.expected[index], index
        assert [report async for report in verify(log) if report.trouble] == []


async def check_no_file_is_left(log: IndexLog) -> None:
    """Jobs that were killed end by others that come after them, and all files that are not needed go."""
    for _ in range(101):
        await log.deal()
        await log.optimize(ALL_AT_ONCE)
    assert log.state.jobs == {}, "a hundred later ones have ended them"
    await log.collect(grace=-1)
    assert {path for path, _ in log.store.list()} == set(log.state.paths())
