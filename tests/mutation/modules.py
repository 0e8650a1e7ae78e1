"""What is mutated, and which unit tests must notice: the one place that names files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Module:
    """A machine with the objects that are its own."""

    name: str
    sources: tuple[str, ...]
    """Files, or globs of them."""
    tests: tuple[str, ...]
    deselected: tuple[str, ...] = ()
    """More seeds of one model: they see what its first seeds see, and each surviving mutant would wait for all of them."""


_SEQUENCER: Final = ("tests/unit/sequencer",)
_MORE_SEEDS: Final = tuple(
    f"tests/unit/client/write/test_{test}[{block}]"
    for test, blocks in (
        (
            "write_stream_model.py::test_every_record_is_stored_once_in_order_at_the_position_of_its_receipt",
            (1, 2, 3, 4, 5),
        ),
        ("foreign_frames.py::test_with_somebody_else_under_the_id_receipts_are_true_and_failures_too", (1, 2, 3)),
    )
    for block in blocks
)

MODULES: Final = {
    module.name: module
    for module in (
        Module("activation", ("sequencer/sequencer.py", "sequencer/activation.py"), _SEQUENCER),
        Module("appender", ("sequencer/appender.py", "sequencer/store_availability.py"), _SEQUENCER),
        Module(
            "append_path",
            ("sequencer/append_path.py", "sequencer/write_streams.py", "sequencer/batching.py"),
            _SEQUENCER,
        ),
        Module("epoch_sequencer", ("sequencer/epoch_sequencer.py", "sequencer/sliding_window.py"), _SEQUENCER),
        Module("recovery", ("sequencer/recovery/*.py",), _SEQUENCER),
        Module("read_stream", ("client/read/*.py",), ("tests/unit/client/read",)),
        Module("write_stream", ("client/write/*.py",), ("tests/unit/client/write",), _MORE_SEEDS),
        Module("seal", ("storage_node/seal.py",), ("tests/unit/storage_node/test_*.py",)),
        Module("purge", ("storage_node/purge.py",), ("tests/unit/storage_node/test_*.py",)),
    )
}
