"""The bill of materials (CycloneDX): what the Debian package brings from PyPI, and the Debian packages of the image."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.utils import canonicalize_name, parse_wheel_filename

from server.dev.release.source import SourceOfRelease

_SCHEMA: Final = SchemaVersion.V1_6


def bill_of_materials(source: SourceOfRelease, wheels: Sequence[Path], debian: Sequence[tuple[str, str, str]]) -> str:
    """The bill as JSON.

    Args:
        wheels: of others.
        debian: name, version and architecture of each package of the image; empty where no image was made.

    Raises:
        ValueError: it is not as the format's schema says.
    """
    root = Component(
        name="logdevice-py",
        version=source.version,
        type=ComponentType.APPLICATION,
        bom_ref="logdevice-py",
        licenses=[LicenseFactory().make_from_string(str(source.project["license"]))],
        purl=PackageURL("pypi", name="logdevice-py", version=source.version),
    )
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, f"logdevice-py/{source.version}/{source.commit}"),
        metadata=BomMetaData(component=root, timestamp=datetime.fromtimestamp(source.epoch, UTC)),
        components=[*map(_of_wheel, wheels), *(_of_debian(*each) for each in debian)],
    )
    bom.register_dependency(root, bom.components)
    text = make_outputter(bom, OutputFormat.JSON, _SCHEMA).output_as_string(indent=1)
    trouble = JsonStrictValidator(_SCHEMA).validate_str(text)
    if trouble is not None:
        raise ValueError(f"the bill of materials is not as the schema says: {trouble}")
    return text + "\n"


def _of_wheel(wheel: Path) -> Component:
    name, version, _, _ = parse_wheel_filename(wheel.name)
    purl = PackageURL("pypi", name=canonicalize_name(name), version=str(version))
    license_text = _license(wheel)
    return Component(
        name=name,
        version=str(version),
        bom_ref=purl.to_string(),
        purl=purl,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(wheel.read_bytes()).hexdigest())],
        licenses=[LicenseFactory().make_from_string(license_text)] if license_text else [],
    )


def _license(wheel: Path) -> str:
    """As the wheel's metadata has it: an expression, a short text, or what a classifier says; empty where it says nothing."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA") and each.count("/") == 1)
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    stated = metadata["License-Expression"] or metadata["License"] or ""
    if stated and len(stated) < 64 and "\n" not in stated:
        return str(stated)
    classified = [each for each in metadata.get_all("Classifier", []) if each.startswith("License :: ")]
    return classified[0].rsplit(" :: ", 1)[1] if classified else ""


def _of_debian(name: str, version: str, architecture: str) -> Component:
    purl = PackageURL("deb", "debian", name, version, {"arch": architecture, "distro": "bookworm"})
    return Component(name=name, version=version, bom_ref=purl.to_string(), purl=purl)
