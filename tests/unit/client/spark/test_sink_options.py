"""What a sink refuses before it looks at a cluster."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from client.spark.writer import sink_options
from logdevice_py.core.status import LogDeviceError, Status


@pytest.mark.parametrize(
    ("streaming", "text"), [(False, 'use mode\\("append"\\)'), (True, 'no outputMode\\("complete"\\).*foreachBatch')]
)
def test_a_log_is_not_overwritten_and_the_way_to_do_it_is_told(streaming: bool, text: str) -> None:
    with pytest.raises(LogDeviceError, match=text) as caught:
        sink_options({"cluster": "cluster.toml"}, StructType(), overwrite=True, streaming=streaming)
    assert caught.value.status is Status.INVALID_PARAM
