"""What a release is made of: manifests, units, versions and pages fit each other and the code; equal inputs give equal files."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from logdevice_py.config.parse import load_cluster
from server.dev.release import wheels
from server.dev.release.checks import check_manifests, check_unit, manifests
from server.dev.release.debian import HOME, INTERPRETER, build_package, debian_version
from server.dev.release.image import USER, debian_packages, write_image
from server.dev.release.materials import bill_of_materials
from server.dev.release.source import ROOT, SourceOfRelease
from tests.packages.page import cluster_file_of_the_page

EPOCH = 1_790_000_000


@pytest.fixture
def source() -> SourceOfRelease:
    return SourceOfRelease(ROOT, commit="0" * 40, epoch=EPOCH)


def objects(source: SourceOfRelease) -> list[dict[str, Any]]:
    return [each for path in manifests(source) for each in yaml.safe_load_all(path.read_text())]


def cluster_file_of_kubernetes(source: SourceOfRelease) -> str:
    (found,) = [each["data"]["cluster.toml"] for each in objects(source) if each["kind"] == "ConfigMap"]
    return str(found)


def a_wheel(path: Path, name: str = "other", **files: bytes | str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\nLicense: MIT\n")
        for place, content in files.items():
            archive.writestr(place, content)
    return path


# Kubernetes, systemd and pages


def test_manifests_are_as_the_schemas_of_kubernetes_say(source: SourceOfRelease) -> None:
    assert "StatefulSet" in check_manifests(source)


def test_each_pod_is_a_node_of_the_cluster_file(source: SourceOfRelease) -> None:
    config = load_cluster(cluster_file_of_kubernetes(source))
    (nodes,) = [
        each
        for each in objects(source)
        if each["kind"] == "StatefulSet" and "logdevice" in str(each["spec"]["serviceName"])
    ]
    service, name = nodes["spec"]["serviceName"], nodes["metadata"]["name"]
    pods = [f"{name}-{number}.{service}" for number in range(nodes["spec"]["replicas"])]
    assert [node.host for node in config.nodes.values()] == pods
    pod = nodes["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == USER
    (container,) = pod["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert {(node.port, node.admin_port) for node in config.nodes.values()} == {(ports["data"], ports["admin"])}


def test_pods_are_rated_by_probes_that_need_no_token(source: SourceOfRelease) -> None:
    (nodes,) = [
        each for each in objects(source) if each["kind"] == "StatefulSet" and each["metadata"]["name"] == "logdevice"
    ]
    (container,) = nodes["spec"]["template"]["spec"]["containers"]
    paths = {kind: container[kind]["httpGet"]["path"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert paths == {"startupProbe": "/v1/health", "readinessProbe": "/v1/ready", "livenessProbe": "/v1/health"}
    assert load_cluster(cluster_file_of_kubernetes(source)).settings["admin"]["expose"] is True


def test_the_cluster_file_of_the_page_is_one(source: SourceOfRelease) -> None:
    config = load_cluster(cluster_file_of_the_page())
    assert len(config.nodes) == 3
    moved = load_cluster(cluster_file_of_the_page({"10.0.0.10": "10.7.0.2"}, "zookeeper://10.7.0.1:2181/logdevice"))
    assert [node.host for node in moved.nodes.values()] == ["10.7.0.2", "10.0.0.11", "10.0.0.12"]
    assert moved.epoch_store == "zookeeper://10.7.0.1:2181/logdevice"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_unit_of_a_node_is_verified_and_shut_off(source: SourceOfRelease, tmp_path: Path) -> None:
    program = tmp_path / "usr/bin/logdeviced"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = source.conf("systemd", "logdeviced@.service")
    assert "verified, exposure 1." in check_unit(unit, tmp_path)
    open_unit = tmp_path / "logdeviced@.service"
    open_unit.write_text(
        "\n".join(
            line for line in unit.read_text().splitlines() if not line.startswith(("Protect", "Private", "System"))
        )
    )
    with pytest.raises(SystemExit, match="exposure"):
        check_unit(open_unit, tmp_path)


# What others wrote


def test_the_package_brings_what_the_project_asks_for(source: SourceOfRelease) -> None:
    lines = [line.split() for line in source.conf("debian", wheels.LOCK).read_text().splitlines() if line[0] != "#"]
    versions = dict(line[0].split("==") for line in lines)
    assert all(line[1].startswith("--hash=sha256:") for line in lines)
    named = {name.replace("_", "-").lower(): version for name, version in versions.items()}
    required = [Requirement(line) for line in source.requirements(*wheels.EXTRAS)]
    assert len(required) > 10
    wrong = [
        each for each in required if not each.specifier.contains(named.get(each.name.replace("_", "-").lower(), "0"))
    ]
    assert wrong == [], "python -m server.dev.release lock"


def test_scripts_of_wheels_are_left_out_and_data_is_put_in_place(tmp_path: Path) -> None:
    wheel = a_wheel(
        tmp_path / "other-1.0-py3-none-any.whl",
        **{"other-1.0.data/scripts/run": "#!python", "other-1.0.data/purelib/other/late.py": "x = 1"},
    )
    wheels.unpack(wheel, tmp_path / "packages")
    found = sorted(
        str(path.relative_to(tmp_path / "packages")) for path in (tmp_path / "packages").rglob("*") if path.is_file()
    )
    assert found == ["other-1.0.dist-info/METADATA", "other/__init__.py", "other/late.py"]


@pytest.mark.parametrize("name", ["../evil.py", "/evil.py", "other/../../evil.py"])
def test_a_wheel_writes_nowhere_else(name: str, tmp_path: Path) -> None:
    wheel = a_wheel(tmp_path / "other-1.0-py3-none-any.whl", **{name: "x"})
    with pytest.raises(SystemExit, match="no path within a package"):
        wheels.unpack(wheel, tmp_path / "packages" / "site")
    assert not list(tmp_path.rglob("evil.py"))


def test_the_bill_names_wheels_and_debian_packages_and_is_the_same_again(
    source: SourceOfRelease, tmp_path: Path
) -> None:
    wheel = a_wheel(tmp_path / "other-1.0-py3-none-any.whl")
    text = bill_of_materials(source, [wheel], [("libc6", "2.36-9", "amd64")])
    assert text == bill_of_materials(source, [wheel], [("libc6", "2.36-9", "amd64")])
    bill = json.loads(text)
    purls = {each["purl"] for each in bill["components"]}
    assert purls == {"pkg:pypi/other@1.0", "pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=bookworm"}
    (other,) = [each for each in bill["components"] if each["name"] == "other"]
    assert other["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    assert other["licenses"] == [{"license": {"id": "MIT"}}]


# Files


@pytest.mark.parametrize(
    ("version", "debian"),
    [("1.2.3", "1.2.3"), ("1.2.0.dev4", "1.2.0~dev4"), ("1.2.0rc1", "1.2.0~rc1"), ("1.2.0b2", "1.2.0~b2")],
)
def test_what_leads_to_a_version_sorts_before_it(version: str, debian: str) -> None:
    assert debian_version(version) == debian


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb here")
def test_the_package_is_the_same_again_and_has_programs_unit_and_pages(source: SourceOfRelease, tmp_path: Path) -> None:
    packages = []
    for name in ("one", "two"):
        place = tmp_path / name
        (place / "out").mkdir(parents=True)
        wheel = a_wheel(place / "other-1.0-py3-none-any.whl", **{"other/late.py": "x = {1, 2}\n"})
        packages.append(build_package(source, [wheel], place, place / "out"))
    assert packages[0].read_bytes() == packages[1].read_bytes()
    listed = subprocess.run(["dpkg-deb", "--contents", packages[0]], capture_output=True, text=True, check=True).stdout
    files = {line.split()[5]: line.split()[:2] for line in listed.splitlines()}
    for program in ("logdeviced", "ldctl", "ldquery", "ldwrite", "ldcat", "ldtail", "ldstream"):
        assert files[f"./usr/bin/{program}"] == ["-rwxr-xr-x", "root/root"]
    assert "./lib/systemd/system/logdeviced@.service" in files
    assert "./usr/share/doc/logdevice-py/install.md" in files
    assert files["./usr/lib/logdevice-py/lib/python3.11/site-packages/other/__init__.py"] == ["-rw-r--r--", "root/root"]
    assert not any("ldindex" in name for name in files), "it needs an extra that the package does not bring"
    subprocess.run(["dpkg-deb", "--extract", packages[0], tmp_path / "root"], check=True)
    home = tmp_path / "root" / HOME / "lib" / INTERPRETER / "site-packages" / "other"
    compiled = (home / "__pycache__" / "late.cpython-311.pyc").read_bytes()
    assert compiled[4:8] == b"\x01\0\0\0", "it is not compared with its source, nor with its time"
    assert f"/{HOME}/lib/{INTERPRETER}/site-packages/other/late.py".encode() in compiled
    assert (home / "__pycache__" / "__init__.cpython-311.pyc").exists()


def test_an_image_is_the_same_again_and_its_digests_are_those_of_its_blobs(
    source: SourceOfRelease, tmp_path: Path
) -> None:
    archive = tmp_path / "root.tar"
    status = b"Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9\nDescription: x\n more: text\n\n"
    with tarfile.open(archive, "w") as out:
        about = tarfile.TarInfo("./var/lib/dpkg/status")
        about.size = len(status)
        out.addfile(about, io.BytesIO(status))
    assert debian_packages(archive) == [("libc6", "2.36-9", "amd64")]
    image = write_image(source, archive, tmp_path)
    first = image.read_bytes()
    os.utime(archive, (1, 1))
    assert write_image(source, archive, tmp_path).read_bytes() == first
    with tarfile.open(image) as layout:
        blobs = {each.name: layout.extractfile(each) for each in layout.getmembers()}
        content = {name: file.read() for name, file in blobs.items() if file is not None}
    assert json.loads(content["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    named = {name: data for name, data in content.items() if name.startswith("blobs/")}
    assert len(named) == 3
    assert {name: f"blobs/sha256/{hashlib.sha256(data).hexdigest()}" for name, data in named.items()} == {
        name: name for name in named
    }
    (index,) = json.loads(content["index.json"])["manifests"]
    manifest = json.loads(content[f"blobs/sha256/{index['digest'][7:]}"])
    config = json.loads(content[f"blobs/sha256/{manifest['config']['digest'][7:]}"])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}"]
    assert config["config"]["User"] == f"{USER}:{USER}"
