"""Runs the nodes of a development cluster as child processes and obeys commands from other terminals.

Children die with the supervisor however it ends: the kernel kills them when their parent is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import json
import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from client.admin_access import AdminAccess
from client.cli.program import EXIT_FAILED, EXIT_USAGE
from ldquery.ctl.configuration_change import ConfigurationEditor, KnownConfiguration, text_with_node
from logdevice_py.config.cluster import ClusterConfig, default_metadata_nodeset
from logdevice_py.config.edit import without_node
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogTree
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.config.render import render_node
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.config.stored import with_version
from logdevice_py.core.ids import NodeId, format_shard
from logdevice_py.core.status import LogDeviceError
from logdevice_py.membership.cluster_view import sees_too_few
from logdevice_py.placement.moves import check_moves
from logdevice_py.programs import own_program
from logdevice_py.runtime.admin_token import make_token
from logdevice_py.runtime.durable_file import write_durably
from server.cluster_file import check_successor, read_cluster_file
from server.dev import layout
from server.dev.current_config import stored_config
from server.dev.identities import make_identities
from server.dev.readiness import wait_until_departures_handled, wait_until_serving
from server.dev.removal import what_would_be_lost
from server.private_files import append_to_private

STOP_TIMEOUT = 20.0
"""Seconds that a node gets to stop in order before it is killed."""
ANSWER_TIMEOUT = 60.0
"""Seconds that a command gets."""
SERVE_TIMEOUT = 30.0
"""Seconds that a node gets after its start until it serves."""
SETTLE_TIMEOUT = 30.0
"""Seconds that logs get to leave nodes that were removed before."""


REGION_COMMANDS: Final = ("kill", "stop", "start", "pause", "resume")
"""What can be done to all nodes of a region at once."""


class CommandError(Exception):
    """A command that cannot be obeyed; the text is for the person who gave it."""

    exit_status: ClassVar[int] = EXIT_FAILED
    """Of the program that was to give it."""


class NothingThereError(CommandError):
    """What the command names is not there: no such cluster, or no such node in it."""

    exit_status = EXIT_USAGE


class NodeProcess(Protocol):
    """What a supervisor needs of a process: `asyncio.subprocess.Process` has it."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def returncode(self) -> int | None:
        """Its exit status, or minus the number of the signal that ended it; None: it runs."""

    async def wait(self) -> int:
        """Until it has ended."""

    def send_signal(self, number: int, /) -> None:
        """Any signal; ProcessLookupError: it has ended."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""


@dataclass(slots=True)
class Child:
    """One node's process."""

    process: NodeProcess
    paused: bool = False
    asked_to_stop: bool = False


def write_cluster_file(directory: Path, config: ClusterConfig) -> None:
    """Replace the cluster file in one step, so that no node ever reads half of it."""
    write_durably(layout.cluster_file(directory), render_cluster(config))


class Supervisor:
    """The `up` process: owns the children, answers commands."""

    def __init__(self, directory: Path, config: ClusterConfig) -> None:
        self.directory = directory
        self.config = config
        self.is_stored = False
        """The epoch store keeps the configuration, and the cluster file is not used any more."""
        self.children: dict[NodeId, Child] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._token = ""
        self.admin_token: str | None = None
        """Of the nodes' admin API."""

    @property
    def admin_access(self) -> AdminAccess:
        """With what the nodes' admin API is asked."""
        return AdminAccess(self.admin_token, layout.cluster_file(self.directory))

    async def listen(self) -> None:
        """Take commands. OSError when another supervisor serves this directory."""
        self._token = secrets.token_hex(16)
        self._server = await asyncio.start_server(self._serve, layout.control_host(self.directory), layout.CONTROL_PORT)
        path = layout.control_token(self.directory)
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(self._token)
        self.admin_token = make_token(layout.cluster_file(self.directory))

    async def follow(self) -> None:
        """Use what nodes use, which somebody else may have changed."""
        stored = await asyncio.to_thread(stored_config, self.directory, self.config)
        if stored is not None and (not self.is_stored or stored.version > self.config.version):
            self.config, self.is_stored = stored, True
        if self.is_stored:
            return
        with contextlib.suppress(LogDeviceError):  # nodes go on with what they read before, too
            file = await asyncio.to_thread(self._cluster_file)
            if file.version > self.config.version:
                self.config = file

    def _cluster_file(self) -> ClusterConfig:
        """What the cluster file says.

        Raises:
            LogDeviceError: it cannot be read, or is a later version that nodes refuse.
        """
        path = layout.cluster_file(self.directory)
        file = read_cluster_file(path)
        if file.version > self.config.version:
            check_successor(path, self.config, file)
        return file

    async def start_all(self) -> None:
        """Start every node of the cluster."""
        await self.follow()
        for node in sorted(self.config.nodes):
            await self.start(node)

    async def stop_all(self) -> None:
        """Stop every node in order, kill those that do not."""
        if self._server is not None:
            self._server.close()
        layout.control_token(self.directory).unlink(missing_ok=True)
        await asyncio.gather(*(self._stop_child(child) for child in self.children.values()))
        for task in list(self._watchers):
            task.cancel()

    async def _stop_child(self, child: Child) -> None:
        child.asked_to_stop = True
        if child.process.returncode is not None:
            return
        if child.paused:
            child.process.send_signal(signal.SIGCONT)
        child.process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await child.process.wait()
        except TimeoutError:
            child.process.kill()
            await child.process.wait()

    # Commands

    def running(self) -> list[NodeId]:
        """Nodes whose process has not ended."""
        return [node for node, child in self.children.items() if child.process.returncode is None]

    def _answering(self) -> list[NodeId]:
        """Nodes that run and are not stopped."""
        return [node for node in self.running() if not self.children[node].paused and node in self.config.nodes]

    def _known(self, node: int) -> NodeId:
        if node not in self.config.nodes:
            there = ", ".join(str(n) for n in sorted(self.config.nodes))
            raise NothingThereError(f"there is no node {node}; there are {there}")
        return NodeId(node)

    def _running(self, node: int) -> Child:
        child = self.children.get(self._known(node))
        if child is None or child.process.returncode is not None:
            raise CommandError(f"node {node} is not running")
        return child

    async def start(self, node: int) -> str:
        """Start a node's process."""
        known = self._known(node)
        child = self.children.get(known)
        if child is not None and child.process.returncode is None:
            raise CommandError(f"node {node} is running already (process {child.process.pid})")
        lost = self._lost_shards(known)
        if lost:
            print(f"N{node}: {_begins_empty(lost)}", file=sys.stderr, flush=True)
        with append_to_private(layout.node_log(self.directory, known)) as output:
            process = await self.spawn(self.command(known), output.fileno())
        child = self.children[known] = Child(process)
        task = asyncio.create_task(self._watch(known, child))
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)
        begins = f"; {_begins_empty(lost)}" if lost else ""
        return f"N{node} started (process {process.pid}){begins}"

    async def start_and_wait(self, node: int) -> str:
        """Start a node, and wait until it serves."""
        said = await self.start(node)
        await self._until_serving(NodeId(node))
        return said

    async def _until_serving(self, node: NodeId) -> None:
        """CommandError when it does not come to that."""
        child, answering = self.children[node], set(self._answering())
        members = self.config.nodes.items()
        alone = sees_too_few((member.location.region, each in answering) for each, member in members)
        serving = asyncio.create_task(
            wait_until_serving(self.config, node, alone=alone, timeout=SERVE_TIMEOUT, access=self.admin_access)
        )
        ended = asyncio.create_task(child.process.wait())
        try:
            await asyncio.wait([serving, ended], return_when=asyncio.FIRST_COMPLETED)
            path = layout.node_log(self.directory, node)
            if ended.done():
                last = await asyncio.to_thread(_last_line, path)
                raise CommandError(f"N{node} ended again; {path} ends with: {last}")
            try:
                serving.result()
            except LogDeviceError as error:
                raise CommandError(f"{error.detail}; its process {child.process.pid} runs, see {path}") from None
        finally:
            for task in (serving, ended):
                task.cancel()
            await asyncio.gather(serving, ended, return_exceptions=True)

    async def restart(self, node: int) -> str:
        """Stop a node in order, if it runs, start it again, and wait until it serves."""
        known = self._known(node)
        if known in self.running():
            await self.stop(node)
        return await self.start_and_wait(node)

    async def wipe(self, node: int) -> str:
        """Kill a node, delete its data, start it again, and wait until it serves."""
        known = self._known(node)
        if known in self.running():
            await self.kill(node)
        directory = layout.node_directory(self.directory, known)
        if directory.exists():
            await asyncio.to_thread(shutil.rmtree, directory)
        return await self.start_and_wait(node)

    def _lost_shards(self, node: NodeId) -> list[str]:
        """The shards of a node that ran before whose stores are not there any more."""
        if not layout.node_log(self.directory, node).exists():
            return []
        stores = {shard: layout.store_directory(self.directory, shard) for shard in self.config.nodes[node].shard_ids()}
        return [
            format_shard(shard)
            for shard, store in stores.items()
            if not any(path.is_file() for path in store.rglob("*"))
        ]

    async def spawn(self, command: list[str], output: int) -> NodeProcess:
        """A process that writes to a file, given by its number."""
        return await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )

    def host_of(self, node: NodeId) -> str:
        """Where a further node will be."""
        return layout.node_host(self.directory, node)

    def command(self, node: NodeId) -> list[str]:
        """What starts a node's process."""
        return own_program(
            "server.logdeviced",
            "--config",
            layout.cluster_file(self.directory),
            "--node",
            node,
            "--data",
            layout.node_directory(self.directory, node),
            "--die-with",
            os.getpid(),
            "--accept-data-loss",
            "all",  # who deletes a directory of a cluster for trying things means it
        )

    async def _watch(self, node: NodeId, child: Child) -> None:
        status = await child.process.wait()
        if not child.asked_to_stop:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            path = layout.node_log(self.directory, node)
            last = await asyncio.to_thread(_last_line, path)
            print(f"N{node} {how}; {path} ends with: {last}", file=sys.stderr, flush=True)

    async def wait_until_none_runs(self) -> None:
        """Until every child has ended, by itself or not, and it was told how."""
        while any(child.process.returncode is None for child in self.children.values()):
            await asyncio.gather(*(child.process.wait() for child in self.children.values()))
        await asyncio.gather(*self._watchers)

    async def kill(self, node: int) -> str:
        """SIGKILL."""
        child = self._running(node)
        child.asked_to_stop = True
        child.process.kill()
        await child.process.wait()
        return f"N{node} killed"

    async def stop(self, node: int) -> str:
        """Stop in order."""
        await self._stop_child(self._running(node))
        return f"N{node} stopped"

    async def pause(self, node: int) -> str:
        """SIGSTOP."""
        child = self._running(node)
        child.process.send_signal(signal.SIGSTOP)
        child.paused = True
        return f"N{node} paused"

    async def resume(self, node: int) -> str:
        """SIGCONT."""
        child = self._running(node)
        child.process.send_signal(signal.SIGCONT)
        child.paused = False
        return f"N{node} resumed"

    async def in_region(self, command: str, region: str) -> str:
        """Kill, stop, start, pause or resume all nodes of a region that it is not true of already."""
        members = [node for node, member in sorted(self.config.nodes.items()) if member.location.region == region]
        if not members:
            there = ", ".join(sorted({member.location.region for member in self.config.nodes.values()}))
            raise NothingThereError(f"there is no region {region}; there are {there}. A node is written like N0, or 0")
        running = self.running()
        chosen = [node for node in members if (node in running) is (command != "start")]
        said: list[str] = await asyncio.gather(*(getattr(self, command)(node) for node in chosen))
        if command == "start":
            await asyncio.gather(*map(self._until_serving, chosen))
        return "; ".join(said) or f"{'all nodes' if command == 'start' else 'no nodes'} of {region} run"

    async def cut_off(self, region: str, target: str | None = None) -> str:
        """Cut the routes of a region, where regions are played."""
        raise CommandError(f"{region} is not cut off: regions are played where ld-dev-cluster up was told --regions")

    async def reconnect(self, region: str) -> str:
        """End what `cut_off` does, where regions are played."""
        raise CommandError(f"{region} is not cut off: regions are played where ld-dev-cluster up was told --regions")

    async def add(self, location: str | None) -> str:
        """A further node, in the given location or in the one that has fewest."""
        node = NodeId(max(self.config.nodes, default=-1) + 1)
        if node >= layout.NODES_MAX:
            raise CommandError(f"a development cluster has at most {layout.NODES_MAX} nodes")
        template = self.config.nodes[min(self.config.nodes)]
        count: dict[Location, int] = {}
        for other in self.config.nodes.values():
            count[other.location] = count.get(other.location, 0) + 1
        try:
            where = Location.parse(location) if location else min(count, key=lambda place: (count[place], str(place)))
        except ValueError as error:
            raise CommandError(str(error)) from None
        made = dataclasses.replace(template, node=node, host=self.host_of(node), location=where, data_dir=None)
        if self.is_stored:
            values = render_node(made)
            await self._change_stored(
                lambda known: text_with_node(known, node, values, new=True), f"ld-dev-cluster add N{node}"
            )
        else:
            self._publish(nodes={**self.config.nodes, node: made})
        make_identities(self.directory, self.config)
        await self.start(node)
        return f"N{node} added in {where}"

    async def remove(self, node: int, *, without_drain: bool = False) -> str:
        """Take a node out of the configuration, then stop it. Its data stays where it is, but nobody asks for it.

        It waits until no log relies on nodes that were removed before: of an epoch that is still open too many could be gone to say that it is
        empty. A node that could be drained first, or may hold the last copies of records, stays.

        Args:
            without_drain: it goes all the same.
        """
        known = self._known(node)
        try:
            await wait_until_departures_handled(
                self.config, self._answering, timeout=SETTLE_TIMEOUT, access=self.admin_access
            )
        except LogDeviceError as error:
            raise CommandError(
                f"N{node} is not removed: {error.detail}. Records could be lost with one more node gone; try again later"
            ) from None
        if not without_drain:
            await self._check_copies(known)
        if self.is_stored:
            await self._change_stored(
                lambda configuration: without_node(configuration.text, known),
                f"ld-dev-cluster remove N{node}",
                # without rebuilding no node knows a shard to be empty: that nothing is lost was judged by nodesets
                accept=[known] if without_drain or not self.config.rebuilding_enabled else [],
            )
        else:
            self._publish(nodes={key: value for key, value in self.config.nodes.items() if key != known})
        child = self.children.pop(known, None)
        if child is not None:
            await self._stop_child(child)
        return (
            f"N{node} removed; what it held that is not stored elsewhere has one copy less. "
            f"Its data stays in {layout.node_directory(self.directory, known)}"
        )

    async def _check_copies(self, node: NodeId) -> None:
        try:
            problem = await what_would_be_lost(
                self.config, node, self._answering(), access=self.admin_access, timeout=SETTLE_TIMEOUT / 2
            )
        except (LogDeviceError, TimeoutError) as error:
            told = error.detail if isinstance(error, LogDeviceError) else "the epoch store does not answer"
            problem = f"{told}, so it is not known whether other nodes have what it holds"
        if problem is not None:
            raise CommandError(f"N{node} is not removed: {problem}")

    async def set_replication(self, replicate: str) -> str:
        """Another replication property for all logs."""
        replication = ReplicationProperty.parse(replicate)
        tree = self.config.logs
        logs = LogTree.build(
            defaults={**tree.defaults, "replication": replication},
            directories=tree.directories,
            groups=[(group.path, group.lo, group.hi, group.overrides) for group in tree.groups],
        )
        self._publish(logs=logs)
        return f"logs are replicated as {replication}"

    async def _change_stored(
        self, edited: Callable[[KnownConfiguration], str], why: str, *, accept: Sequence[NodeId] = ()
    ) -> None:
        """A further version of the stored configuration, as ``ldctl nodes`` makes it."""
        from client.client import Client  # takes a while that other commands need not spend

        try:
            async with (
                Client(layout.cluster_file(self.directory), name="ld-dev-cluster") as client,
                ConfigurationEditor(client, self.admin_access) as editor,
            ):
                known = await editor.read()
                text = edited(known)
                answer = await editor.change(known, text, why, accept=accept)
        except LogDeviceError as error:
            raise CommandError(f"the stored configuration is not changed: {error.detail or error}") from None
        self.config = load_cluster(with_version(text, answer["version"]))

    def _publish(self, **changes: Any) -> None:
        """A further version of the cluster file; what nodes would refuse to read is refused here. A file that nodes do not use is not replaced."""
        if self.is_stored:
            raise CommandError(
                "the configuration is stored, and the cluster file not used: ldctl config apply changes it"
            )
        try:
            file = self._cluster_file()
        except LogDeviceError as error:
            raise CommandError(f"{error.detail}; correct it first") from None
        # as it is written down: settings may be put in other words in the file
        if render_cluster(file) != render_cluster(self.config):
            used = self.config.version
            raise CommandError(
                f"{layout.cluster_file(self.directory)} is not what nodes use, version {used}: give it a higher version if you edited it"
            )
        if "nodes" in changes:
            nodeset = default_metadata_nodeset(changes["nodes"])
            changes["metadata_log"] = dataclasses.replace(self.config.metadata_log, nodeset=nodeset)
        candidate = dataclasses.replace(self.config, version=self.config.version + 1, **changes)
        try:
            config = load_cluster(render_cluster(candidate))
            check_moves(self.config, config)
        except LogDeviceError as error:
            raise CommandError(error.detail) from None
        self.config = config
        write_cluster_file(self.directory, self.config)

    def status(self) -> list[dict[str, Any]]:
        """One row a node."""
        rows = []
        for node, config in sorted(self.config.nodes.items()):
            child = self.children.get(node)
            if child is None:
                state = "not started"
            elif child.process.returncode is not None:
                code = child.process.returncode
                state = f"ended by signal {-code}" if code < 0 else f"ended with status {code}"
            else:
                state = "paused" if child.paused else "running"
            rows.append(
                {
                    "node": node,
                    "state": state,
                    "process": child.process.pid if child is not None and child.process.returncode is None else None,
                    "address": f"{config.host}:{config.port}",
                    "location": str(config.location),
                    "data": str(layout.node_directory(self.directory, node)),
                }
            )
        return rows

    # The control connection: one JSON line in, one out

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer: dict[str, Any]
        try:
            async with asyncio.timeout(5):
                request = json.loads(await reader.readline())
            if not hmac.compare_digest(str(request.get("token")), self._token):
                raise CommandError("wrong token")
            answer = {"ok": True, "result": await self._obey(request)}
        except (CommandError, OSError) as error:
            answer = {"ok": False, "error": str(error), "not_there": isinstance(error, NothingThereError)}
        except (ValueError, TypeError, KeyError, AttributeError, TimeoutError):
            answer = {"ok": False, "error": "no command"}
        except Exception as error:  # noqa: BLE001 - a bad command must not end the cluster
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(OSError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            writer.close()

    async def _obey(self, request: dict[str, Any]) -> Any:
        command = request["command"]
        await self.follow()
        if command == "status":
            return self.status()
        if command == "add":
            said = await self.add(request.get("location"))
            await self._until_serving(max(self.config.nodes))
            return said
        if command == "remove":
            return await self.remove(int(request["node"]), without_drain=bool(request.get("without_drain")))
        if command == "cut-off":
            return await self.cut_off(str(request["region"]), request.get("to"))
        if command == "reconnect":
            return await self.reconnect(str(request["region"]))
        if "region" in request and command in REGION_COMMANDS:
            return await self.in_region(command, str(request["region"]))
        if command == "start":
            return await self.start_and_wait(int(request["node"]))
        if command in ("kill", "stop", "restart", "pause", "resume", "wipe"):
            return await getattr(self, command)(int(request["node"]))
        raise CommandError(f"there is no command {command}")


def _begins_empty(shards: list[str]) -> str:
    return (
        f"the data of {', '.join(shards)} is gone: it begins empty, as a new generation; ld-dev-cluster status says what is "
        "short of copies"
    )


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").rstrip().splitlines()
    except OSError as error:
        return error.strerror or str(error)
    return lines[-1] if lines else "nothing"


def ask(directory: Path, command: str, **arguments: Any) -> Any:
    """Send a command to the supervisor of a directory; its result.

    Raises:
        CommandError: there is no supervisor, or it cannot obey.
    """
    if not layout.cluster_file(directory).exists():
        raise NothingThereError(f"there is no cluster in {directory}; ld-dev-cluster up --dir {directory} makes one")
    address = (layout.control_host(directory), layout.CONTROL_PORT)
    try:
        token = layout.control_token(directory).read_text()
        with socket.create_connection(address, timeout=ANSWER_TIMEOUT) as connection:
            request = {"command": command, "token": token, **arguments}
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
    except PermissionError:
        raise CommandError(f"the cluster in {directory} belongs to another user") from None
    except TimeoutError:
        raise CommandError(f"the cluster in {directory} does not answer") from None
    except OSError:
        raise CommandError(
            f"the cluster in {directory} does not run; ld-dev-cluster up --dir {directory} starts it again"
        ) from None
    if not line:
        raise CommandError("the cluster ended before it answered")
    answer = json.loads(line)
    if not answer["ok"]:
        raise (NothingThereError if answer.get("not_there") else CommandError)(answer["error"])
    return answer["result"]
