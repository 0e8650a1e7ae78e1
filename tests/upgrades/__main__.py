"""``python -m tests.upgrades``: five nodes of an earlier version are replaced by this one, one after the other, under load, and then back. Nothing may be lost, doubled
or reordered, whichever version reads; no append may fail, p99 be three times that of a control before, nor a reader get nothing for two seconds. docs/upgrades.md says
what is promised."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from benchmarks.percentiles import percentile
from logdevice_py.programs import own_program
from tests.upgrades.experience import MeasuredSpan, failures, latencies, longest_wait, missed, stalled
from tests.upgrades.verdict import WriterJournal, trouble

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = Path(__file__).parent
OLDEST: Final = "dddc1fd7"
"""0.1.0."""
NODES: Final = 5
TIMEOUT: Final = 240.0
LATE_MAX: Final = 0.2
"""Seconds that an append may take for its writer to be on time."""
LOGS: Final = {1: ("direct", "old"), 2: ("direct", "new"), 3: ("buffered", "old"), 4: ("buffered", "new")}
"""How each log is written, and by a client of which version."""


@dataclass(frozen=True, slots=True)
class Version:
    """Programs of one version."""

    name: str
    python: Path
    logdeviced: tuple[str, ...]

    def script(self, name: str, *arguments: object) -> list[str]:
        """What runs one of our scripts with this version."""
        return [str(self.python), "-P", str(HERE / name), *map(str, arguments)]


def this_version() -> Version:
    """What lies here."""
    return Version("new", Path(sys.executable), tuple(own_program("server.logdeviced")))


def earlier_version(commit: str, scratch: Path) -> Version:
    """A commit's wheel, built and installed into an environment of its own."""
    source, wheels = scratch / "source", scratch / "wheels"
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(source, filter="data")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels], cwd=source, check=True)
    (wheel,) = wheels.glob("*.whl")
    environment = scratch / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    programs = environment / "bin"
    extra = "[server]" if "\nserver = [" in (source / "pyproject.toml").read_text() else ""
    subprocess.run([programs / "pip", "install", "--quiet", f"{wheel}{extra}"], check=True)
    return Version("old", programs / "python", (str(programs / "logdeviced"),))


class UpgradedCluster:
    """Nodes as processes, each of a version."""

    def __init__(self, directory: Path, settings: str) -> None:
        self.directory = directory
        net = f"127.{64 + os.getpid() % 128}.{os.getpid() >> 7 & 0x7F}"
        self.file = directory / "cluster.toml"
        self._hosts = {node: f"{net}.{node + 1}" for node in range(NODES)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        nodes = "".join(
            f'[nodes.N{node}]\nhost = "{host}"\nport = 16110\nadmin_port = 16111\nlocation = "rack{node % 3}"\n\n'
            for node, host in self._hosts.items()
        )
        self.file.write_text(
            f'version = 1\nname = "upgraded"\nuuid = "{uuid.uuid4()}"\nepoch_store = "sqlite://{directory}/epochs.db"\n\n{nodes}'
            '[metadata_log]\nreplicate = "rack:2,node:3"\n\n[defaults]\nreplicate = "rack:2,node:3"\n\n[logs."/logs"]\nids = "1..4"\n[logs."/later"]\nids = "101..199"\n'
            + settings
        )

    def launch(self, node: int, version: Version) -> None:
        """Start a node."""
        command = [
            *version.logdeviced,
            "-c",
            str(self.file),
            "-n",
            str(node),
            "--data",
            str(self.directory / f"n{node}"),
        ]
        with open(self.directory / f"n{node}.log", "ab") as log:
            self._processes[node] = subprocess.Popen(command, stdout=log, stderr=log)

    def await_ready(self, node: int, version: Version) -> None:
        """Wait until a node takes requests: while most others are down, it does not."""
        until(lambda: self.is_ready(node), f"N{node} of the {version.name} version", self.logs)

    def stop(self, node: int) -> None:
        """SIGTERM, and wait."""
        process = self._processes.pop(node)
        process.terminate()
        if status := process.wait(TIMEOUT):
            sys.exit(f"N{node} ended with {status}:\n{self.logs()}")

    def is_ready(self, node: int) -> bool:
        """Whether it takes requests."""
        process = self._processes[node]
        if process.poll() is not None:
            sys.exit(f"N{node} ended with {process.returncode}:\n{self.logs()}")
        try:
            with urllib.request.urlopen(f"http://{self._hosts[node]}:16111/v1/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def close(self) -> None:
        """End all nodes."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def logs(self) -> str:
        """The ends of what nodes logged."""
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in sorted(self.directory.glob("n*.log")))


class UpgradeLoad:
    """A writer and two readers of each log, of both versions."""

    def __init__(self, cluster: UpgradedCluster, versions: dict[str, Version], name: str, rate: float) -> None:
        self._directory = cluster.directory / name
        self._directory.mkdir()
        self.writers = {
            log: self._start(versions[version], f"writer{log}", "writer.py", cluster.file, log, way, rate)
            for log, (way, version) in LOGS.items()
        }
        self.readers = {
            (log, version): self._start(
                versions[version], f"reader{log}{version}", "reader.py", cluster.file, log, "follow"
            )
            for log in (1, 4)
            for version in versions
        }

    def _start(self, version: Version, name: str, *script: object) -> subprocess.Popen[bytes]:
        out, errors = self._directory / f"{name}.out", self._directory / f"{name}.err"
        with open(out, "wb") as output, open(errors, "wb") as problems:
            return subprocess.Popen(version.script(*map(str, script)), stdout=output, stderr=problems)

    def written(self, log: int) -> WriterJournal:
        """What the writer of a log was told so far."""
        return WriterJournal.of(self.lines(f"writer{log}"))

    def lines(self, name: str) -> list[list[Any]]:
        """What a program printed: whole lines."""
        return [
            json.loads(line)
            for line in (self._directory / f"{name}.out").read_text().splitlines(True)
            if line[-1] == "\n"
        ]

    def wait_for(self, more: int) -> None:
        """Until every writer was acknowledged so many further records."""
        goals = {log: len(self.written(log).acknowledged) + more for log in LOGS}
        until(
            lambda: all(len(self.written(log).acknowledged) >= goal for log, goal in goals.items()),
            "acknowledgements",
            self._said,
        )

    def wait_until_on_time(self) -> None:
        """Until no writer has appends that are due and wait for those before them: a control with these proves nothing."""
        until(
            lambda: all(self.written(log).keeps_up(LATE_MAX) for log in LOGS),
            "writers that keep up (give a lower --rate)",
            self._said,
        )

    def _said(self) -> str:
        return "\n".join(path.read_text()[-500:] for path in sorted(self._directory.iterdir()))

    def stop(self) -> None:
        """SIGTERM to all, and wait."""
        for process in (*self.writers.values(), *self.readers.values()):
            process.send_signal(signal.SIGTERM)
        for process in (*self.writers.values(), *self.readers.values()):
            process.wait(TIMEOUT)

    def report(self, name: str, control: MeasuredSpan, upgrade: MeasuredSpan) -> list[str]:
        """Print how appends and readers fared before nodes were replaced and meanwhile; the goals that were missed."""
        waits = [self._wait(name, log, version, control, upgrade) for log, version in self.readers]
        wrong = [f"{name}: {text}" for text in stalled(waits)]
        for way in ("direct", "buffered"):
            writers = [self.written(log) for log, (each, _) in LOGS.items() if each == way]
            before, meanwhile = latencies(writers, control), latencies(writers, upgrade)
            failed = failures(writers, upgrade)
            for when, spent in (("control", before), ("meanwhile", meanwhile)):
                print(
                    f"{name}: {way} appends, {when}: {len(spent)} acknowledged; median {percentile(spent, 0.5):.1f} ms, p99 {percentile(spent, 0.99):.1f} ms, "
                    f"longest {max(spent, default=0.0):.0f} ms",
                    flush=True,
                )
            for text in [text for written in writers for text in written.failures][:3]:
                print(f"  {text}")
            wrong += [f"{name}, {way}: {text}" for text in missed(before, meanwhile, failed)]
        return wrong

    def _wait(self, name: str, log: int, version: str, control: MeasuredSpan, upgrade: MeasuredSpan) -> float:
        times = [each[4] for each in self.lines(f"reader{log}{version}") if each[0] == "record"]
        waits = longest_wait(times, control), longest_wait(times, upgrade)
        print(
            f"{name}: a reader of log {log} of the {version} version got {len(times)} records, and waited {waits[1]:.2f} s at most (control: {waits[0]:.2f} s)"
        )
        return waits[1]


def until(condition: Callable[[], bool], what: str, say: Callable[[], str]) -> None:
    """Wait for something; ends the program where it does not come."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not come:\n{say()}")
        time.sleep(0.1)


def compare(
    cluster: UpgradedCluster, versions: dict[str, Version], loads: Sequence[UpgradeLoad], names: Sequence[str]
) -> list[str]:
    """Read all logs with clients of these versions; what is wrong."""
    wrong = []
    for log, (way, _) in LOGS.items():
        # the numbers of a later writer begin at 1 again: what it was told counts from where the earlier one ended
        written = WriterJournal()
        base = 0
        for load in loads:
            part = load.written(log)
            written.acknowledged |= {base + number: place for number, place in part.acknowledged.items()}
            written.unknown |= {base + number for number in part.unknown}
            base = max(written.acknowledged.keys() | written.unknown, default=0)
        for name in names:
            command = versions[name].script("reader.py", cluster.file, log)
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
            if done.returncode:
                wrong.append(f"log {log}: the {name} reader failed: {done.stderr[-2000:]}")
                continue
            read = renumbered([json.loads(line) for line in done.stdout.splitlines()])
            found = trouble(way, written, read)
            print(
                f"log {log}, read by the {name} version: {sum(each[0] == 'record' for each in read)} records, {len(found)} wrong",
                flush=True,
            )
            wrong += [f"log {log}, read by the {name} version: {text}" for text in found[:5]]
    return wrong


def first_uses(cluster: UpgradedCluster, versions: dict[str, Version], unused: Iterator[int]) -> list[str]:
    """Use a log for the first time by a client of each version; which could not."""
    wrong = []
    for version in versions.values():
        log = next(unused)
        command = version.script("first_use.py", cluster.file, log)
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        if done.returncode:
            wrong.append(f"log {log}: the {version.name} version could not use it: {done.stderr[-500:]}")
    return wrong


def renumbered(read: Sequence[list[Any]]) -> list[list[Any]]:
    """Records of several writers, one after the other, with numbers that go on."""
    base, last, out = 0, 0, []
    for each in read:
        if each[0] != "record":
            out.append(each)
            continue
        way, _, text = each[3].partition(" ")
        if text == "1" and last:
            base = last
        last = base + int(text)
        out.append([*each[:3], f"{way} {last}", *each[4:]])
    return out


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrades", description=__doc__)
    parser.add_argument("--from", dest="commit", default=OLDEST, help="the earlier version (default: 0.1.0)")
    parser.add_argument(
        "--rate", type=float, default=25, help="appends a second to each of the four logs (default: 25)"
    )
    parser.add_argument("--records", type=int, default=150, help="of each writer between two steps")
    parser.add_argument(
        "--control", type=float, default=30, help="seconds of load before nodes are replaced (default: 30)"
    )
    parser.add_argument("--settings", default="", help="text for the end of the cluster file")
    parser.add_argument("--no-way-back", action="store_true", help="upgrade only")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="logdevice-upgrade-") as directory:
        scratch = Path(directory)
        versions = {"old": earlier_version(arguments.commit, scratch), "new": this_version()}
        place = scratch / "cluster"
        place.mkdir()
        cluster = UpgradedCluster(place, arguments.settings.replace("\\n", "\n"))
        try:
            return run(cluster, versions, arguments)
        finally:
            cluster.close()


def run(cluster: UpgradedCluster, versions: dict[str, Version], options: argparse.Namespace) -> int:
    """Upgrade under load, compare, go back under load, compare."""
    for node in range(NODES):
        cluster.launch(node, versions["old"])
    for node in range(NODES):
        cluster.await_ready(node, versions["old"])
    loads: list[UpgradeLoad] = []
    wrong: list[str] = []
    unused = itertools.count(101)
    goals: list[str] = []
    for name, way in (("upgrade", "new"), ("way back", "old"))[: 1 if options.no_way_back else 2]:
        loads.append(UpgradeLoad(cluster, versions, way, options.rate))
        try:
            loads[-1].wait_for(options.records)
            loads[-1].wait_until_on_time()
            began = time.monotonic()
            time.sleep(options.control)
            replaced = time.monotonic()
            for node in range(NODES):
                cluster.stop(node)
                cluster.launch(node, versions[way])
                cluster.await_ready(node, versions[way])
                loads[-1].wait_for(options.records)
                wrong += first_uses(cluster, versions, unused)
                print(f"{name}: N{node} is of the {way} version", flush=True)
            ended = time.monotonic()
        finally:
            loads[-1].stop()
        goals += loads[-1].report(name, MeasuredSpan(began, replaced), MeasuredSpan(replaced, ended))
        wrong += compare(cluster, versions, loads, ("old", "new"))
    for text in (*wrong, *goals):
        print(text, file=sys.stderr)
    print(f"{len(wrong)} records wrong, {len(goals)} goals missed")
    return 1 if wrong or goals else 0


if __name__ == "__main__":
    sys.exit(main())
