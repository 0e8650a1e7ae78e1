"""Who may take failure domains from the cluster file: what has no epoch metadata. Everybody else asks the epoch (`EpochInterval.domains`)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
PACKAGES = ("logdevice_py", "sequencer", "storage_node", "client", "streams", "ldquery", "server")
BY_FILE = {
    "ldquery/ctl/doctor.py": "nodesets to come",
    "ldquery/ctl/impact.py": "metadata logs",
    "ldquery/maintenance/safety.py": "metadata logs, and nodesets to come",
    "ldquery/ctl/lost_shards.py": "metadata logs, and nodesets to come",
    "ldquery/ctl/placement.py": "metadata logs",
    "ldquery/comparison.py": "epochs of an older version",
    "logdevice_py/membership/cluster_view.py": "metadata logs",
    "logdevice_py/metadata/history.py": "metadata logs",
    "logdevice_py/placement/cluster_placement.py": "nodesets to come",
    "logdevice_py/placement/policies.py": "wishes beyond the property",
    "logdevice_py/placement/moves.py": "metadata logs",
    "logdevice_py/placement/nodeset.py": "nodesets to come",
    "sequencer/metadata_log.py": "metadata logs",
    "storage_node/repair/metadata_resync.py": "metadata logs",
    "storage_node/rebuilding/donor.py": "logs of which no survivor knows",
}


def modules_with(pattern: str) -> set[str]:
    found = re.compile(pattern)
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {str(file.relative_to(ROOT)) for file in files if found.search(file.read_text())}


def test_the_cluster_file_is_asked_only_where_there_is_no_epoch() -> None:
    assert modules_with(r"FailureDomains\.by_file\(") == set(BY_FILE)


def test_labels_are_made_only_with_an_interval() -> None:
    home = {"logdevice_py/placement/failure_domains.py", "logdevice_py/metadata/epoch_metadata.py"}
    assert modules_with(r"labels_by_file\(") == home
    constructed = {
        "logdevice_py/placement/impact.py",
        "sequencer/seal_check.py",
        "ldquery/comparison.py",
        "ldquery/ctl/impact.py",
        "ldquery/maintenance/safety.py",
        "logdevice_py/metadata/epoch_metadata.py",
    }
    assert modules_with(r"FailureDomains\((?!\))") == constructed
