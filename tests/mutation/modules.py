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
    one_of: tuple[str, ...] = ()
    """Tests of models over many seeds, of which only the first seeds are run: a surviving mutant would wait for all of them."""


_SEQUENCER: Final = ("tests/unit/sequencer",)
_EPOCHS: Final = ("tests/unit/storage_node/epochs",)
_RECOVERY_MODEL: Final = "tests/unit/sequencer/recovery/test_recovery_model.py"
_READ_MODEL: Final = "tests/unit/client/read/test_read_stream_model.py"
_WRITE_MODEL: Final = "tests/unit/client/write/test_write_stream_model.py"
_FRAMES_OF_OTHERS: Final = "tests/unit/client/write/test_frames_of_others.py"

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
        Module("recovery", ("sequencer/recovery/*.py",), _SEQUENCER, (_RECOVERY_MODEL,)),
        Module(
            "read_stream",
            ("client/read/*.py",),
            ("tests/unit/client/read", "tests/unit/client/spark/test_columns.py"),
            (_READ_MODEL,),
        ),
        Module(
            "write_stream",
            ("client/write/*.py",),
            ("tests/unit/client/write", "tests/unit/client/test_quotas.py"),
            (_WRITE_MODEL, _FRAMES_OF_OTHERS),
        ),
        Module("seal", ("storage_node/epochs/seal.py",), _EPOCHS),
        Module("purge", ("storage_node/epochs/purge.py",), _EPOCHS),
    )
}
