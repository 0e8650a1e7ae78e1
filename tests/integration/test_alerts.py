"""The alert rules in conf/, judged by Prometheus's own tool: each fires on what it is for, and not on what is usual."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "conf" / "alerts.yml"
_JOB: Final = '{job="logdevice",instance="n1"}'
_SHARD: Final = '{job="logdevice",instance="n1",shard="0"}'
_DAY: Final = 86_400


def _histogram(name: str, slow: bool) -> dict[str, str]:
    """All calls of an hour are below 1 ms, or all are beyond a second."""
    edges = [("0.001", 0 if slow else 60), ("1.024", 0 if slow else 60), ("2.048", 60), ("+Inf", 60)]
    return {f'{name}_bucket{{job="logdevice",instance="n1",le="{edge}"}}': f"0+{step}x90" for edge, step in edges}


def _gauge(name: str, labels: str, fires: float, usual: float) -> tuple[dict[str, str], dict[str, str]]:
    return {name + labels: f"{fires}x90"}, {name + labels: f"{usual}x90"}


def _counter(name: str, per_minute: float, usual: float = 0) -> tuple[dict[str, str], dict[str, str]]:
    return {name + _JOB: f"0+{per_minute}x90"}, {name + _JOB: f"0+{usual}x90"}


CASES: Final[dict[str, tuple[dict[str, str], dict[str, str]]]] = {
    "LogDeviceRecordsMayBeLost": _gauge("logdevice_copies_logs_with_lost_records", _JOB, 1, 0),
    "LogDeviceRecordsLost": (
        {
            f"logdevice_recovery_entries_lost_total{_JOB}": "0x89 1",
            f"logdevice_recovery_epochs_recovered_non_authoritatively_total{_JOB}": "0x90",
        },
        {
            f"logdevice_recovery_entries_lost_total{_JOB}": "7x90",
            f"logdevice_recovery_epochs_recovered_non_authoritatively_total{_JOB}": "2x90",
        },
    ),
    "LogDeviceShardFailed": _gauge("logdevice_log_store_failed", _SHARD, 1, 0),
    "LogDeviceShortOfCopies": _gauge("logdevice_copies_under_replicated_logs", _JOB, 3, 0),
    "LogDeviceDamagedCopies": _gauge("logdevice_storage_damaged_ranges", _JOB, 2, 0),
    "LogDeviceNotVerified": _gauge("logdevice_scrubber_verification_age_seconds", _SHARD, 15 * _DAY, 13 * _DAY),
    "LogDeviceNodeDown": _gauge("up", _JOB, 0, 1),
    "LogDeviceLogsUnavailable": _gauge("logdevice_sequencer_logs_unreleased", _JOB, 4, 0),
    "LogDeviceNoSpace": _gauge("logdevice_log_store_no_space", _SHARD, 1, 0),
    "LogDeviceEpochStoreSilent": _counter("logdevice_epoch_store_unavailable_total", 1, 0.2),
    "LogDeviceAppendsSlow": (
        _histogram("logdevice_sequencer_append_latency_seconds", slow=True),
        _histogram("logdevice_sequencer_append_latency_seconds", slow=False),
    ),
    "LogDeviceWindowsFull": _gauge("logdevice_sequencer_fullest_window", _JOB, 100, 90),
    "LogDeviceSequencersMove": _counter("logdevice_sequencer_preemptions_total", 3, 1),
    "LogDeviceLoopLags": (
        _histogram("logdevice_process_loop_lag_seconds", slow=True),
        _histogram("logdevice_process_loop_lag_seconds", slow=False),
    ),
    "LogDeviceDiskFills": (
        {
            f"logdevice_log_store_available_bytes{_SHARD}": "19x90",
            f"logdevice_log_store_disk_bytes{_SHARD}": "100x90",
        },
        {
            f"logdevice_log_store_available_bytes{_SHARD}": "21x90",
            f"logdevice_log_store_disk_bytes{_SHARD}": "100x90",
        },
    ),
    "LogDeviceTrimsForSpace": _gauge("logdevice_log_store_trimming_for_space", _SHARD, 1, 0),
    "LogDeviceDescriptorsShort": (
        {f"process_open_fds{_JOB}": "90x90", f"process_max_fds{_JOB}": "100x90"},
        {f"process_open_fds{_JOB}": "70x90", f"process_max_fds{_JOB}": "100x90"},
    ),
    # the tool's clock begins at 0; without a certificate the gauge is 0
    "LogDeviceCertificateExpires": _gauge("logdevice_transport_certificate_expiry_seconds", _JOB, 20 * _DAY, 0),
    "LogDeviceConnectionsRefused": _counter("logdevice_transport_connections_refused_total", 2, 0.5),
    "LogDeviceIndexLogBehind": _gauge("logdevice_index_log_undealt_age_seconds", _JOB, 700, 60),
}
"""Of each alert: series with which it fires after an hour and a half, and with which it does not."""


def _test(alert: str, series: dict[str, str], *, fires: bool) -> dict[str, Any]:
    return {
        "interval": "1m",
        "name": f"{alert} {'fires' if fires else 'is silent'}",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": "90m",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
        ],
    }


def _names() -> list[str]:
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def test_every_alert_is_tried() -> None:
    assert sorted(_names()) == sorted(CASES)


def test_each_fires_on_what_it_is_for_and_on_nothing_usual(tmp_path: Path) -> None:
    fetched = Path(sys.prefix) / "promtool" / "usr" / "bin"
    tool = shutil.which("promtool", path=f"{os.environ['PATH']}{os.pathsep}{fetched}")
    if tool is None:
        pytest.skip("promtool is not here: make promtool")
    tests = [
        _test(alert, series, fires=which == 0) for alert, both in CASES.items() for which, series in enumerate(both)
    ]
    path = tmp_path / "alerts_test.yml"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([tool, "test", "rules", str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout + done.stderr
