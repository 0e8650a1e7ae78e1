"""``python -m tests.packages``: runs what is in dist. The client's wheel in an environment of its own, and docs/install.md's three machines: network
namespaces whose nodes see nothing but the image's files, read-only, as its user. Takes root, umoci and Java."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from server.dev.release.image import USER
from server.dev.virtual_network import VirtualNetwork
from server.dev.zookeeper_server import ZooKeeperServer
from tests.packages.page import cluster_file_of_the_page

ROOT: Final = Path(__file__).resolve().parents[2]
RECORDS: Final = 100_000
TIMEOUT: Final = 240.0
"""Seconds for anything, on a machine with much other work."""
_MACHINE: Final = """
set -e
mount --make-rprivate /
mount --bind {root} {root}
mount --bind {data} {root}/var/lib/logdevice
mount --bind {conf} {root}/etc/logdevice
mount -t proc proc {root}/proc
mount -t tmpfs tmpfs {root}/tmp
mount -o remount,bind,ro {root}
exec chroot --userspec={user} {root} "$@"
"""


class Machines:
    """Three machines with the image's files."""

    def __init__(self, scratch: Path, files: Path, network: VirtualNetwork) -> None:
        self._scratch = scratch
        self._files = files
        self._network = network
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.conf = scratch / "conf"
        self.conf.mkdir()

    def start(self, node: int) -> None:
        """Start a machine's node."""
        data = self._scratch / f"data{node}"
        data.mkdir(exist_ok=True)
        shutil.chown(data, USER, USER)
        program = ["/usr/bin/logdeviced", "-c", "/etc/logdevice/cluster.toml", "-n", str(node)]
        command = self._command(data, f"{USER}:{USER}", [*program, "--data", f"/var/lib/logdevice/n{node}"])
        with open(self._scratch / f"n{node}.log", "ab") as log:
            self._nodes[node] = subprocess.Popen(
                ["ip", "netns", "exec", self._network.namespace(node), *command], stdout=log, stderr=log
            )

    def kill(self, node: int) -> None:
        """SIGKILL, as when the power goes: the first process of the machine takes all others along."""
        process = self._nodes.pop(node)
        subprocess.run(["pkill", "-KILL", "-P", str(process.pid)], check=False)
        process.kill()
        process.wait()

    def close(self) -> None:
        """End all nodes."""
        for node in list(self._nodes):
            self.kill(node)

    def tool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the image, as root, on a machine that is no node."""
        data = self._scratch / "operator"
        data.mkdir(exist_ok=True)
        command = self._command(data, "0:0", arguments)
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)

    def log(self, node: int) -> str:
        """The end of what a node logged."""
        return (self._scratch / f"n{node}.log").read_text(errors="replace")[-2000:]

    def _command(self, data: Path, user: str, program: Sequence[str]) -> list[str]:
        script = _MACHINE.format(root=self._files, data=data, conf=self.conf, user=user)
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", *program]


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """A program to its end; it ends this one where it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, check=False, timeout=TIMEOUT, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return done


def until(condition: Callable[[], bool], what: str, say: Callable[[], str]) -> None:
    """Wait for something; ends the program where it does not come."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not come:\n{say()}")
        time.sleep(0.5)


def check_sums(dist: Path) -> None:
    """Whether the files are as SHA256SUMS says."""
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    wrong = [line for line in lines if hashlib.sha256((dist / line[66:]).read_bytes()).hexdigest() != line[:64]]
    if wrong or not lines:
        sys.exit(f"not as SHA256SUMS says: {wrong}")
    print(f"{len(lines)} files are as SHA256SUMS says", flush=True)


def client_environment(dist: Path, scratch: Path) -> Path:
    """An environment with the wheel and nothing else that was asked for; its directory of programs."""
    (wheel,) = dist.glob("*.whl")
    run(sys.executable, "-m", "venv", scratch / "client")
    programs = scratch / "client" / "bin"
    run(programs / "pip", "install", "--quiet", wheel)
    print("the client alone:", run(programs / "pip", "freeze").stdout.decode().split(), flush=True)
    return programs


def unpack_image(dist: Path, scratch: Path) -> Path:
    """The files of the image, as umoci reads it."""
    (archive,) = dist.glob("*-oci.tar")
    with tarfile.open(archive) as layout:
        layout.extractall(scratch / "layout", filter="data")
    (tag,) = run("umoci", "list", "--layout", scratch / "layout").stdout.decode().split()
    run("umoci", "unpack", "--image", f"{scratch / 'layout'}:{tag}", scratch / "bundle")
    return scratch / "bundle" / "rootfs"


def main() -> int:
    """The program; its exit status."""
    dist = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "dist"
    with tempfile.TemporaryDirectory(prefix="logdevice-try-") as directory:
        scratch = Path(directory)
        scratch.chmod(0o755)
        check_sums(dist)
        programs = client_environment(dist, scratch)
        files = unpack_image(dist, scratch)
        network = VirtualNetwork(range(3))
        network.open()
        machines = Machines(scratch, files, network)
        zookeeper = ZooKeeperServer(scratch / "zookeeper", host=network.address(-1))
        try:
            zookeeper.start()
            _three_machines(machines, network, zookeeper.url + "/logdevice", programs)
        finally:
            machines.close()
            zookeeper.stop()
            network.close()
    return 0


def _three_machines(machines: Machines, network: VirtualNetwork, epochs: str, programs: Path) -> None:
    """What the page does, and a node that dies in between."""
    cluster_file = machines.conf / "cluster.toml"
    cluster_file.write_text(
        cluster_file_of_the_page({f"10.0.0.1{node}": network.address(node) for node in range(3)}, epochs)
    )
    token = machines.conf / "cluster.token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o640)
    shutil.chown(token, 0, USER)
    for node in range(3):
        machines.start(node)

    def status() -> subprocess.CompletedProcess[str]:
        return machines.tool("/usr/bin/ldctl", "-c", "/etc/logdevice/cluster.toml", "status")

    def well() -> bool:
        return status().returncode == 0

    until(well, "a cluster that is well", lambda: status().stdout + "".join(map(machines.log, range(3))))
    print("three machines of the image are well", flush=True)
    lines = b"".join(b"%d\n" % number for number in range(RECORDS))
    run(programs / "ldwrite", "-c", cluster_file, "1", input=lines)
    machines.kill(0)
    run(programs / "ldwrite", "-c", cluster_file, "1", input=lines)
    machines.start(0)
    until(well, "a cluster that is well again", lambda: status().stdout + machines.log(0))
    read = run(programs / "ldcat", "-c", cluster_file, "1").stdout
    if read != lines * 2:
        sys.exit(f"{len(read)} bytes are read of {2 * len(lines)} that were written")
    print(f"{2 * RECORDS:,} records, written by the client alone around the death of a machine, are read back")
    asked = machines.tool(
        "/usr/bin/ldquery", "-c", "/etc/logdevice/cluster.toml", "--format", "csv", "SELECT count(*) AS n FROM nodes"
    )
    if asked.returncode or asked.stdout.split() != ["n", "3"]:
        sys.exit(f"ldquery of the image: {asked}")


if __name__ == "__main__":
    sys.exit(main())
