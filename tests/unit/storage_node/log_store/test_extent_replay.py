"""Which blocks of a chain count, rule by rule (`extents/replay.py`)."""

from __future__ import annotations

from functools import partial

import pytest

from storage_node.log_store.extents.block_format import (
    DATA_START,
    HEAD_SIZE,
    BadBlockError,
    Changes,
    ExtentHeader,
    encode_block,
    seed_of,
)
from storage_node.log_store.extents.disk import SECTOR
from storage_node.log_store.extents.replay import ExtentSource, Replay, ReplayDamageError, replay

SALT = 77
IMAGE = b"an image of some length " * 40


class MadeChain:
    """Extents in memory."""

    def __init__(self) -> None:
        self.headers: list[ExtentHeader] = []
        self.data: list[bytearray] = []
        self.places: dict[int, tuple[int, int, int]] = {}
        """Of each block: extent (by order), where it begins, where its bodies begin."""
        self._end = 0

    def extent(self, run: int = 1, *, number: int = 0, taken: tuple[int, int] = (0, 0), salt: int = SALT) -> MadeChain:
        """The blocks that follow lie in a new extent."""
        number = number or (self.headers[-1].number + 1 if self.headers else 1)
        header = ExtentHeader(
            cluster=b"c" * 16,
            shard=1,
            generation=1,
            run=run,
            number=number,
            salt=salt + number,
            taken_run=taken[0],
            taken_block=taken[1],
        )
        self.headers.append(header)
        self.data.append(bytearray(header.encode() + bytes(60_000)))
        self._end = DATA_START
        return self

    def block(self, number: int, *, synced: int = 0, run: int | None = None, salt: int | None = None) -> MadeChain:
        """The next block."""
        header = self.headers[-1]
        changes = Changes(copies=[(7, number, 1, 1_000_000, len(IMAGE), None)])
        parts, size, bodies = encode_block(
            changes,
            [IMAGE],
            run=header.run if run is None else run,
            number=number,
            synced=synced,
            seed=seed_of(header.salt if salt is None else salt),
        )
        self.places[number] = len(self.data) - 1, self._end, self._end + bodies
        self.data[-1][self._end : self._end + size] = b"".join(parts)
        self._end += size
        return self

    def spoil(self, number: int, *, what: str) -> MadeChain:
        """Damage the head, the control part or the bodies of a block."""
        extent, begin, bodies = self.places[number]
        at = {"head": begin + 9, "control": begin + HEAD_SIZE + 2, "bodies": bodies + 5}[what]
        self.data[extent][at] ^= 1
        return self

    def erase(self, number: int) -> MadeChain:
        """A block never reached the disk."""
        extent, begin, _ = self.places[number]
        size = -(-(HEAD_SIZE + len(IMAGE)) // SECTOR) * SECTOR
        self.data[extent][begin : begin + size] = bytes(size)
        return self

    def replay(
        self, *, applied: int = 0, same_boot: bool = False, known: dict[int, tuple[int, int]] | None = None
    ) -> Replay:
        """What counts. `known`: first and last block of extents (by number) that tables know all of."""
        sources = []
        for header, data in zip(self.headers, self.data, strict=True):
            source = ExtentSource(header, partial(_part, data))
            if known and header.number in known:
                source.known, source.start = known[header.number], len(data)
            sources.append(source)
        return replay(sources, applied=applied, same_boot=same_boot)

    def numbers(self, **arguments: bool) -> list[int]:
        """Of the blocks that count."""
        return [block.head.number for block in self.replay(**arguments).blocks]  # type: ignore[arg-type]


def _part(data: bytearray, offset: int, length: int) -> bytes:
    return bytes(data[offset : offset + length])


class TestPrefix:
    def test_blocks_count_over_extents_and_runs(self) -> None:
        chain = MadeChain().extent().block(1).block(2).extent().block(3).extent(2, taken=(1, 3)).block(4)
        found = chain.replay()
        assert [block.head.number for block in found.blocks] == [1, 2, 3, 4]
        assert (found.run, found.last_run, found.last, found.torn) == (2, 2, 4, False)

    @pytest.mark.parametrize("what", ["head", "control", "bodies"])
    def test_a_last_block_that_is_not_whole_counts_as_never_written(self, what: str) -> None:
        chain = MadeChain().extent().block(1).block(2).spoil(2, what=what)
        assert chain.numbers() == [1]

    def test_what_follows_a_lost_block_does_not_count_when_nothing_calls_it_synced(self) -> None:
        found = MadeChain().extent().block(1).block(2).block(3).erase(2).replay()
        assert ([block.head.number for block in found.blocks], found.torn) == ([1], True)

    def test_an_extent_that_was_prepared_and_not_used_changes_nothing(self) -> None:
        chain = MadeChain().extent().block(1).extent().extent(2, taken=(1, 1)).block(2).extent(2, taken=(1, 1))
        assert chain.numbers() == [1, 2]

    def test_an_empty_chain_has_nothing(self) -> None:
        assert MadeChain().replay().last == 0
        assert MadeChain().extent().replay().run == 1


class TestTaken:
    def test_what_an_earlier_run_left_behind_what_was_taken_does_not_count(self) -> None:
        # N + 1 was torn and N + 2 landed; the next run uses N + 1 again, and a second crash must not bring N + 2 back
        chain = MadeChain().extent().block(1).block(2).block(3).extent(2, taken=(1, 1)).block(2)
        found = chain.replay()
        assert [(block.head.run, block.head.number) for block in found.blocks] == [(1, 1), (2, 2)]

    def test_less_than_was_taken_is_damage(self) -> None:
        chain = MadeChain().extent().block(1).block(2).extent(2, taken=(1, 2)).block(3).spoil(2, what="control")
        with pytest.raises(ReplayDamageError, match="blocks 2 to 2 of run 1"):
            chain.replay()

    def test_a_run_that_wrote_nothing_passes_on_what_it_took(self) -> None:
        chain = MadeChain().extent().block(1).block(2).extent(2, taken=(1, 1)).extent(3, taken=(1, 1)).block(2)
        found = chain.replay()
        assert [(block.head.run, block.head.number) for block in found.blocks] == [(1, 1), (3, 2)]


class TestEvidence:
    @pytest.mark.parametrize("what", ["head", "control"])
    def test_what_a_later_block_calls_synced_is_damage_where_it_cannot_be_read(self, what: str) -> None:
        chain = MadeChain().extent().block(1).block(2).block(3, synced=2).spoil(2, what=what)
        with pytest.raises(ReplayDamageError, match="block 2 was written before block 3"):
            chain.replay()

    def test_so_it_is_when_the_later_block_lies_in_another_extent(self) -> None:
        chain = MadeChain().extent().block(1).block(2).extent().block(3, synced=2).erase(2)
        with pytest.raises(ReplayDamageError, match="was durable"):
            chain.replay()

    def test_the_head_that_tells_is_looked_for_behind_damage(self) -> None:
        chain = MadeChain().extent().block(1).block(2).block(3).block(4, synced=3).erase(2).erase(3)
        with pytest.raises(ReplayDamageError, match="block 2 was written before block 4"):
            chain.replay()

    def test_what_tables_hold_was_synced(self) -> None:
        chain = MadeChain().extent().block(1).block(2).erase(2)
        with pytest.raises(ReplayDamageError, match="up to 2"):
            chain.replay(applied=2)

    def test_a_body_of_a_block_that_was_synced_may_be_damaged(self) -> None:
        chain = MadeChain().extent().block(1).block(2).block(3, synced=2).spoil(2, what="bodies")
        assert chain.numbers() == [1, 2, 3]

    def test_so_it_is_when_the_block_that_calls_it_synced_does_not_count_itself(self) -> None:
        chain = MadeChain().extent().block(1).block(2).block(3).block(4, synced=2).spoil(2, what="bodies").erase(3)
        found = chain.replay()
        assert ([block.head.number for block in found.blocks], found.torn) == ([1, 2], True)

    def test_what_tables_know_all_of_need_not_be_read(self) -> None:
        chain = MadeChain().extent().block(1).block(2).extent().block(3).spoil(1, what="head")
        found = chain.replay(applied=2, known={1: (1, 2)})
        assert [block.head.number for block in found.blocks] == [3]

    def test_blocks_of_extents_that_were_removed_are_not_missed(self) -> None:
        chain = MadeChain().extent(number=1).block(1).extent(number=4).block(9)
        assert chain.replay(applied=8, known={1: (1, 1)}).last == 9
        with pytest.raises(ReplayDamageError):
            chain.replay(applied=7, known={1: (1, 1)})

    def test_blocks_that_are_missing_where_no_extent_was_removed_are_damage(self) -> None:
        chain = MadeChain().extent(number=1).block(1).block(2).extent(number=2).block(3).erase(2)
        with pytest.raises(ReplayDamageError):
            chain.replay(applied=3)
        with pytest.raises(ReplayDamageError):
            chain.replay(applied=3, known={2: (3, 3)})


class TestSameBoot:
    def test_only_the_last_block_may_be_incomplete(self) -> None:
        chain = MadeChain().extent().block(1).block(2).block(3)
        assert chain.spoil(3, what="control").numbers(same_boot=True) == [1, 2]
        with pytest.raises(ReplayDamageError, match="by a process that died alone"):
            chain.spoil(2, what="control").spoil(3, what="control").replay(same_boot=True)

    def test_a_damaged_body_in_front_of_others_is_damage_of_that_copy(self) -> None:
        chain = MadeChain().extent().block(1).block(2).block(3).spoil(2, what="bodies")
        assert chain.numbers(same_boot=True) == [1, 2, 3]
        assert chain.numbers() == [1]


class TestSalt:
    def test_blocks_of_an_earlier_use_of_the_file_do_not_count(self) -> None:
        chain = MadeChain().extent().block(1).block(2, salt=SALT)
        assert chain.numbers() == [1]

    def test_a_payload_that_imitates_a_block_is_no_evidence(self) -> None:
        chain = MadeChain().extent().block(1).block(2).block(3, synced=2, salt=SALT).spoil(2, what="head")
        assert chain.numbers() == [1]


class TestHeader:
    def test_either_copy_will_do(self) -> None:
        header = MadeChain().extent().headers[0]
        data = bytearray(header.encode())
        data[3] ^= 1
        assert ExtentHeader.decode(bytes(data)) == header
        data[2048 + 3] ^= 1
        with pytest.raises(BadBlockError):
            ExtentHeader.decode(bytes(data))
