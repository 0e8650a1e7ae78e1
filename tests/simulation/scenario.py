"""What a seed stands for: a cluster, its settings, its workload and its faults."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field
from typing import Any

from client.read.settings import ReadSettings
from client.settings import ClientSettings, WriterSettings
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.membership.settings import MembershipSettings
from logdevice_py.simulation.network import NetworkSettings
from sequencer.recovery.settings import RecoverySettings
from sequencer.settings import SequencerSettings
from storage_node.settings import StorageSettings

FAULTS = (
    "crash_process",
    "crash_machine",
    "crash_all",
    "pause",
    "wipe",
    "partition_node",
    "partition_one_way",
    "partition_client",
    "break_connection",
    "slow_disk",
    "overloaded_disk",
    "epoch_store_away",
    "epoch_store_forgetful",
    "kill_client",
    "wall_clock_jump",
    "slow_network",
)


_LEFT_ALONE = {"gossip_interval_us", "gossip_threshold"}
"""Slower detection of failures would only make runs longer."""


@dataclass(slots=True, kw_only=True)
class Scenario:
    """Drawn from a seed."""

    seed: int
    config: ClusterConfig
    copies: int
    logs: list[LogId]
    network: NetworkSettings
    client_settings: ClientSettings
    read_settings: ReadSettings
    turn_max: int
    duration: int
    """Of the part with faults, in microseconds."""
    faults: list[str]
    """Kinds of faults that may happen."""
    fault_interval: int
    stream_writers: int
    appenders: int
    readers: int
    write_interval: int
    wipes_max: int
    text: str = field(repr=False)

    def writer_settings(self, rng: random.Random) -> WriterSettings:
        """Of one BufferedWriter."""
        return WriterSettings(
            time_trigger_us=rng.choice([-1, -1, 0, 10 * MILLISECOND]),
            compression=rng.choice(["none", "none", "lz4", "zstd"]),
            frames_in_flight_max=rng.choice([1, 3, 64]),
            size_trigger_bytes=rng.choice([64, 4096, 256 << 10]),
            silence_us=rng.choice([500 * MILLISECOND, 5 * SECOND]),
        )

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {len(self.config.nodes)} nodes, logs {len(self.logs)}, copies {self.copies}, "
            f"{self.stream_writers} writers, {self.appenders} appenders, {self.readers} readers, "
            f"{self.duration / 1e6:.0f} s, faults: {', '.join(self.faults) or 'none'}"
        )


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(seed)
    nodes = rng.choice([3, 3, 4, 5, 5])
    racks = rng.choice([1, 2, 3]) if nodes > 3 else rng.choice([1, 3])
    choices = ["node:2", "node:3"] if nodes > 2 else ["node:2"]
    if racks > 1:
        choices += ["rack:2", "rack:2,node:3"]
    if racks > 2:
        choices += ["rack:3"]
    replicate = rng.choice(choices)
    logs = [LogId(number) for number in range(1, 1 + rng.choice([1, 1, 2, 3]))]
    text = [
        'name = "simulation"',
        "version = 1",
        'uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"',
        'epoch_store = "memory:"',
        "[metadata_log]",
        f'replicate = "{replicate}"',
        "[defaults]",
        f'replicate = "{replicate}"',
        f"sequencer_batching = {'true' if rng.random() < 0.8 else 'false'}",
        f"sticky_copysets = {'true' if rng.random() < 0.5 else 'false'}",
        f"single_copy_delivery = {'true' if rng.random() < 0.7 else 'false'}",
        f"max_writes_in_flight = {rng.choice([2, 5, 100, 1000])}",
        f'batching_compression = "{rng.choice(["none", "none", "lz4"])}"',
        f'batching_time_us = "{rng.choice(["0us", "0us", "5ms"])}"',
        '[logs."/all"]',
        'ids = "1..100"',
    ]
    for node in range(nodes):
        roles = ["storage"] if node > 1 and rng.random() < 0.15 else ["sequencer", "storage"]
        text += [
            f"[nodes.N{node}]",
            f'host = "127.0.0.{node + 1}"',
            "port = 7000",
            f"roles = {roles}".replace("'", '"'),
            f'location = "rack{node % racks}"',
        ]
    for section, cls in (
        ("sequencer", SequencerSettings),
        ("recovery", RecoverySettings),
        ("storage", StorageSettings),
        ("membership", MembershipSettings),
    ):
        text += _settings(rng, section, cls)
    source = "\n".join(text)
    config = load_cluster(source)
    copies = config.log(logs[0]).replication.copies  # type: ignore[union-attr]
    faults = [] if rng.random() < 0.05 else [kind for kind in FAULTS if rng.random() < 0.35]
    return Scenario(
        seed=seed,
        config=config,
        copies=copies,
        logs=logs,
        network=NetworkSettings(
            delay_max=rng.choice([100, 500, 500, 20 * MILLISECOND]),
            slow_probability=rng.choice([0.0, 0.01, 0.1]),
            slow_max=rng.choice([20 * MILLISECOND, 500 * MILLISECOND]),
        ),
        client_settings=ClientSettings(),
        read_settings=_read_settings(rng),
        turn_max=rng.choice([0, 20, 1000, 5000]),
        duration=rng.choice([5, 15, 30]) * SECOND,
        faults=faults,
        fault_interval=rng.choice([300 * MILLISECOND, SECOND, 3 * SECOND]),
        stream_writers=rng.choice([1, 1, 2, 3]),
        appenders=rng.choice([0, 1, 2]),
        readers=rng.choice([1, 2, 3]),
        write_interval=rng.choice([5, 20, 20, 100, 500]) * MILLISECOND,
        wipes_max=copies - 1,
        text=source,
    )


def _settings(rng: random.Random, section: str, cls: type[Any]) -> list[str]:
    """A few settings drawn from the range that their declarations give for simulation."""
    lines: list[str] = []
    for each in dataclasses.fields(cls):
        span = each.metadata.get("sim")
        if span is None or rng.random() < 0.7 or each.name in _LEFT_ALONE:
            continue
        value = span[0] + int((span[1] - span[0]) * rng.random() ** 4)
        unit = each.metadata["unit"]
        name = each.name
        if unit == "us":
            lines.append(f'{name} = "{value}us"')
        elif unit == "bytes":
            lines.append(f'{name} = "{value}B"')
        else:
            lines.append(f"{name} = {value}")
    return [f"[settings.{section}]", *lines] if lines else []


def _read_settings(rng: random.Random) -> ReadSettings:
    if rng.random() < 0.6:
        return ReadSettings()
    return ReadSettings(
        buffer_bytes=rng.choice([64 << 10, 1 << 20]),
        shard_buffer_bytes_min=rng.choice([100, 64 << 10]),
        window_lsns=rng.choice([2, 10, 1000]),
    )
