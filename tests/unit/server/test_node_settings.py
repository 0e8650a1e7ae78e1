"""The settings of a node come from the sections of the cluster file."""

import pytest

from logdevice_py.core.status import LogDeviceError, Status
from server.live_settings import LiveSettings
from server.node_settings import NodeSettings


def test_the_section_storage_is_shared_by_the_machines_and_the_stores() -> None:
    settings = NodeSettings.of({"storage": {"partitions_max": 77, "read_bytes_max": "3MiB"}})
    assert settings.log_store.partitions_max == 77
    assert settings.storage.read_bytes_max == 3 << 20
    assert settings.runtime == NodeSettings.of({}).runtime


@pytest.mark.parametrize(("section", "name"), [("storage", "no_such"), ("recovery", "no_such"), ("runtime", "no_such")])
def test_a_setting_that_does_not_exist_is_an_error(section: str, name: str) -> None:
    with pytest.raises(LogDeviceError, match=rf"\[settings.{section}\].*{name}") as caught:
        NodeSettings.of({section: {name: 1}})
    assert caught.value.status is Status.INVALID_CONFIG


def test_a_mistyped_setting_of_a_running_node_is_told_with_the_nearest() -> None:
    live = LiveSettings({}, {"settings.sequencer": lambda settings: None})
    with pytest.raises(LogDeviceError, match=r"graylst: no setting of .+; did you mean graylist\?$"):
        live.set("settings.sequencer", "graylst", "3s")
