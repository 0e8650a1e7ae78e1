"""The dashboard and the alerts in conf/ go by metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logdevice_py.core.declare import declarations
from logdevice_py.runtime.http.prometheus import prometheus_name
from server.dev.render_docs import METRICS

CONF = Path(__file__).resolve().parents[4] / "conf"
DASHBOARD = CONF / "grafana-dashboard.json"
_NAME = re.compile(r"\b(?:logdevice|process)_[a-z0-9_]+")
_OF_THE_LIBRARY = {
    "process_cpu_seconds_total": "counter",
    "process_resident_memory_bytes": "gauge",
    "process_open_fds": "gauge",
    "process_max_fds": "gauge",
}


def exported() -> dict[str, str]:
    """Every series that a node exports, with the kind of its metric."""
    found = dict(_OF_THE_LIBRARY)
    for section, cls in METRICS.items():
        for metric in declarations(cls):
            name = prometheus_name(section, metric)
            suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
            found.update({name + suffix: metric.kind for suffix in suffixes})
    return found


def panels() -> Iterator[dict[str, Any]]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        if panel["type"] != "row":
            yield panel


def shown() -> set[str]:
    """The series that are shown."""
    return {name for panel in panels() for target in panel["targets"] for name in _NAME.findall(target["expr"])}


def of_alerts() -> set[str]:
    """The series that alerts go by."""
    lines = (CONF / "alerts.yml").read_text().splitlines()
    return {name for line in lines if "expr:" in line for name in _NAME.findall(line)}


def test_every_series_is_exported() -> None:
    assert len(shown()) > 50
    assert shown() - exported().keys() == set()


def test_alerts_go_by_what_is_exported() -> None:
    assert len(of_alerts()) > 20
    assert of_alerts() - exported().keys() == set()


def test_rates_are_of_what_only_grows_and_the_rest_is_shown_as_it_is() -> None:
    kinds = exported()
    targets = [target["expr"] for panel in panels() for target in panel["targets"]]
    rated = [
        (name, True) for target in targets for name in re.findall(r"rate\(((?:logdevice|process)_[a-z0-9_]+)", target)
    ]
    bare = [
        (name, False)
        for target in targets
        for name in re.findall(r"(?<!rate\()\b((?:logdevice|process)_[a-z0-9_]+)", target)
    ]
    assert min(len(rated), len(bare)) > 5
    assert [(name, is_rated) for name, is_rated in rated + bare if is_rated == (kinds[name] == "gauge")] == []


def test_every_panel_has_a_place_of_its_own_and_chooses_job_and_instance() -> None:
    places = set()
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(list(panels())) > 10
    for panel in panels():
        place = panel["gridPos"]
        assert (place["x"], place["y"]) not in places
        places.add((place["x"], place["y"]))
        assert place["x"] + place["w"] <= 24
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["expr"].count("{") == target["expr"].count('{job="$job",instance=~"$instance"}')
