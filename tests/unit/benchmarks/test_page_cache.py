"""Files made cold."""

import mmap
from pathlib import Path

from benchmarks.ldbench.page_cache import drop_page_cache


def test_without_the_right_to_drop_the_whole_cache_the_files_are_named_to_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a", "deep/b"):
        (tmp_path / name).write_bytes(bytes(mmap.PAGESIZE))
    how = drop_page_cache(tmp_path, whole_machine=tmp_path / "missing" / "drop_caches")
    assert how == "posix_fadvise(DONTNEED) on 2 files"


def test_with_it_the_kernel_is_told_to_drop_pages_only(tmp_path: Path) -> None:
    switch = tmp_path / "drop_caches"
    assert drop_page_cache(tmp_path, whole_machine=switch) == "drop_caches"
    assert switch.read_text() == "1"
