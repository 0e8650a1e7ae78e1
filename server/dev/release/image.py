"""The image of a container: Debian packages, and ours among them, as an OCI archive. No daemon and no base image of others takes part: mmdebstrap makes
the file system from Debian's archive, and the few files of the format are written here."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from server.dev.release.source import SourceOfRelease

USER: Final = 10_001
"""Number of the user and group of nodes in the image: Kubernetes wants to see by a number that it is not root."""
_SUITE: Final = "bookworm"
_MIRRORS: Final = (
    "deb http://deb.debian.org/debian bookworm main",
    "deb http://deb.debian.org/debian bookworm-updates main",
    "deb http://deb.debian.org/debian-security bookworm-security main",
)
_HOOKS: Final = (
    f'chroot "$1" groupadd --system --gid {USER} logdevice',
    f'chroot "$1" useradd --system --uid {USER} --gid {USER} --home-dir /var/lib/logdevice --no-create-home --shell /usr/sbin/nologin logdevice',
    'cp "{package}" "$1/tmp/package.deb"',
    'chroot "$1" dpkg --install /tmp/package.deb',
    'rm "$1/tmp/package.deb"',
    'install -d -o {user} -g {user} -m 0700 "$1/var/lib/logdevice"',
    'rm -rf "$1"/var/log/* "$1"/var/cache/ldconfig/aux-cache "$1"/var/cache/debconf/*-old "$1"/var/lib/dpkg/*-old "$1"/etc/*- "$1"/usr/share/doc/*/changelog* "$1"/usr/share/man',
)
"""What is done to the file system when Debian's packages are there. The size of the image is half of what it would be with manuals."""


def file_system(source: SourceOfRelease, package: Path, scratch: Path) -> Path:
    """The image's files as a tar archive. Takes minutes, root, and Debian's archive."""
    archive = scratch / "root.tar"
    hooks = (hook.format(package=package, user=USER) if "{" in hook else hook for hook in _HOOKS)
    source.run(
        "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--include=python3,adduser,ca-certificates",
        *(f"--customize-hook={hook}" for hook in hooks), _SUITE, archive, *_MIRRORS,
    )  # fmt: skip
    return archive


def write_image(source: SourceOfRelease, archive: Path, into: Path) -> Path:
    """The OCI archive of one layer."""
    plain = archive.read_bytes()
    layer = gzip.compress(plain, 6, mtime=0)
    created = datetime.fromtimestamp(source.epoch, UTC).isoformat().replace("+00:00", "Z")
    labels = {
        "org.opencontainers.image.title": "logdevice-py",
        "org.opencontainers.image.version": source.version,
        "org.opencontainers.image.revision": source.commit,
        "org.opencontainers.image.licenses": str(source.project["license"]),
    }
    config = _json(
        {
            "created": created,
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "User": f"{USER}:{USER}",
                "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"],
                "Entrypoint": ["/usr/bin/logdeviced"],
                "Cmd": ["--help"],
                "WorkingDir": "/var/lib/logdevice",
                "Volumes": {"/var/lib/logdevice": {}},
                "StopSignal": "SIGTERM",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
            "history": [{"created": created, "created_by": "mmdebstrap, dpkg"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar+gzip", layer)],
            "annotations": labels,
        }
    )
    index = {
        **_descriptor("application/vnd.oci.image.manifest.v1+json", manifest),
        "platform": {"architecture": "amd64", "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": source.version},
    }
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": [index]}),
        **{f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}": blob for blob in (config, manifest, layer)},
    }
    image = into / f"logdevice-py-{source.version}-oci.tar"
    with tarfile.open(image, "w", format=tarfile.PAX_FORMAT) as out:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mtime, about.mode = len(content), source.epoch, 0o644
            out.addfile(about, io.BytesIO(content))
    return image


def debian_packages(archive: Path) -> list[tuple[str, str, str]]:
    """Name, version and architecture of each Debian package in a file system, in the order of names."""
    with tarfile.open(archive) as files:
        found = files.extractfile("./var/lib/dpkg/status")
        assert found is not None
        text = found.read().decode()
    packages = []
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if "Package" in fields:
            packages.append((fields["Package"], fields["Version"], fields["Architecture"]))
    return sorted(packages)


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
