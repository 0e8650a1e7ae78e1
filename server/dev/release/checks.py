"""What is checked of the parts of a release that run nowhere here: units by systemd, manifests by the schemas of Kubernetes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from server.dev.release.source import SourceOfRelease

EXPOSURE_MAX: Final = 15
"""Tenths, as ``systemd-analyze security`` counts them: 0 is shut off from all, 100 from nothing; what it calls OK ends at 49."""
KUBERNETES: Final = ("1.31", "1.34")
"""Versions that manifests are checked for."""
_RESULT: Final = re.compile(r"Overall exposure level for \S+: (\d+)\.(\d)")


def check_unit(unit: Path, root: Path) -> str:
    """Have systemd verify the unit of a node, installed below `root`, and rate how far it is shut off. What it found, in a line; ends the program
    where the unit is wrong or too open."""
    if shutil.which("systemd-analyze") is None:
        return "units: not checked, there is no systemd-analyze"
    with tempfile.TemporaryDirectory() as scratch:
        template = Path(scratch, "logdeviced@.service")
        text = unit.read_text()
        template.write_text(text)
        command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(template)]
        rated = subprocess.run(command, capture_output=True, text=True, check=False)
        # the program is not installed here, but where it will be
        runnable = Path(scratch, "runs", "logdeviced@.service")
        runnable.parent.mkdir()
        runnable.write_text(text.replace("/usr/bin/logdeviced", str(root / "usr/bin/logdeviced")))
        verify = ["systemd-analyze", "verify", "--man=no", str(runnable.with_name("logdeviced@0.service"))]
        verified = subprocess.run(verify, capture_output=True, text=True, check=False)
    said = [line for line in verified.stderr.splitlines() if "logdeviced" in line]
    level = _RESULT.search(rated.stdout)
    if rated.returncode or verified.returncode or said or level is None:
        sys.exit("the unit of nodes:\n" + "\n".join([*said, rated.stdout[-300:], rated.stderr, verified.stderr]))
    return f"units: verified, exposure {level[1]}.{level[2]} of 10"


def manifests(source: SourceOfRelease) -> list[Path]:
    """The files of Kubernetes, in the order in which they are to be applied."""
    return sorted(source.conf("kubernetes").glob("*.yaml"))


def check_manifests(source: SourceOfRelease) -> str:
    """Check all manifests against the schemas of several versions of Kubernetes. What was checked, in a line.

    Raises:
        kubernetes_validate.ValidationError: one is not as the schema says.
    """
    import kubernetes_validate  # it compiles grammars for more than a second of a processor

    objects: list[dict[str, Any]] = [
        each for path in manifests(source) for each in yaml.safe_load_all(path.read_text()) if each is not None
    ]
    for version in KUBERNETES:
        for each in objects:
            kubernetes_validate.validate(each, version, strict=True)
    kinds = ", ".join(sorted({str(each["kind"]) for each in objects}))
    return f"Kubernetes: {len(objects)} objects ({kinds}) as the schemas of {' and '.join(KUBERNETES)} say"
