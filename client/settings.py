"""Settings of a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logdevice_py.core.declare import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Section ``[settings.client]`` of the cluster file."""

    append_timeout_us: int = setting(
        10_000_000,
        unit="us",
        lo=1_000,
        doc="How long a direct append may take before it fails, when the call does not say.",
    )
    request_timeout_us: int = setting(
        10_000_000,
        unit="us",
        lo=1_000,
        doc="How long tail, trim and other requests may take, when the call does not say.",
    )
    unanswered_us: int = setting(
        300_000,
        unit="us",
        lo=1_000,
        doc="An append unanswered for this long makes the client ask another node where the log is.",
    )
    silence_us: int = setting(
        4_000_000,
        unit="us",
        lo=1_000,
        doc="A direct append unanswered for this long by a node that the cluster counts as dead has an unknown outcome: where packets vanish, "
        "nothing else ends the connection for long.",
    )
    attempt_us: int = setting(
        2_000_000,
        unit="us",
        lo=1_000,
        doc="A repeatable request unanswered for this long is sent again, to another node if any.",
    )
    sweep_us: int = setting(50_000, unit="us", lo=1_000, doc="How often deadlines of direct appends are looked at.")
    retry_us_min: int = setting(2_000, unit="us", lo=100, doc="First pause before a refused operation is tried again.")
    retry_us_max: int = setting(
        500_000, unit="us", lo=100, doc="Longest pause before a refused operation is tried again."
    )
    log_tree_wait_us: int = setting(
        2_000_000,
        unit="us",
        lo=0,
        doc="How long opening a client waits until the log tree is read, if there is one. After that it goes on, and does not know logs of the tree until it is.",
    )
    location: str = setting(
        "",
        unit="text",
        doc="Where clients stand that are not told otherwise, as region.datacenter.cluster.row.rack; `us....` is a region and no more. Readers "
        "then get the nearest copies. Empty: not known.",
    )
    refusal_us: int = setting(
        3_000_000, unit="us", lo=1_000, doc="How long a node that could not be dialled is left out."
    )
    coalesce_bytes: int = setting(
        4096,
        unit="bytes",
        lo=0,
        doc="Direct appends of one turn share a frame when they are smaller than this; 0: each has its own.",
    )
    coalesced_frame_bytes: int = setting(
        256 << 10, unit="bytes", lo=1, doc="Coalesced appends are cut into frames of about this size."
    )
    coalesce_in_flight: int = setting(
        2,
        unit="frames",
        lo=1,
        doc="While so many frames of a log are unanswered, further direct appends wait for one of them to be answered, and leave together.",
    )
    coalesce_wait_us: int = setting(
        5_000, unit="us", lo=0, doc="How long they wait at most; 0: all appends leave at the end of their turn."
    )
    coalesce_apart_us: int = setting(
        1_000,
        unit="us",
        lo=0,
        doc="An append that comes so long after the last frame left does not wait for answers, with one other at most, while fewer than four times "
        "coalesce_in_flight frames are unanswered, as where a copy lies in a distant region: then after coalesce_wait_us. At low rates nobody would share its frame.",
    )
    metadata_repair_us: int = setting(
        10_000_000,
        unit="us",
        lo=1_000,
        doc="A log's sequencer is asked this often at most to store the nodesets again that cannot be read.",
    )
    config_poll_us: int = setting(
        1_000_000, unit="us", lo=10_000, doc="How often the cluster file is looked at for a new version."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """Options of a BufferedWriter; ``[settings.client]`` holds their defaults, prefixed ``writer_``."""

    time_trigger_us: int = setting(
        -1,
        unit="us",
        lo=-1,
        doc="How long a record may wait for others to share its frame; 0: to the end of the turn; -1: until the log has no frame "
        "unacknowledged, 10 ms at most.",
    )
    size_trigger_bytes: int = setting(
        256 << 10, unit="bytes", lo=1, doc="A frame is cut when its records reach this size, before compression."
    )
    compression: str = setting("none", unit="text", doc="none, lz4 or zstd.")
    memory_bytes_max: int = setting(
        64 << 20,
        unit="bytes",
        lo=1,
        doc="Bytes of unacknowledged records, and 100 for each, at which further ones are refused with NOBUFS.",
    )
    frames_in_flight_max: int = setting(64, unit="frames", lo=1, doc="Frames sent and not acknowledged, per log.")
    bytes_in_flight_max: int = setting(
        16 << 20, unit="bytes", lo=1, doc="Bytes of frames sent and not acknowledged, per log; one frame always passes."
    )
    timeout_us: int = setting(
        120_000_000, unit="us", lo=0, doc="A frame not acknowledged within this time fails; 0: it is tried for ever."
    )
    silence_us: int = setting(
        5_000_000,
        unit="us",
        lo=1_000,
        doc="A frame sent and unanswered for this long has an unknown outcome: the log is moved to another epoch to find out.",
    )


def split_section(section: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The raw section ``[settings.client]`` as (client's, writer's, reader's): the latter two are prefixed ``writer_`` and ``read_``."""
    client: dict[str, Any] = {}
    writer: dict[str, Any] = {}
    reader: dict[str, Any] = {}
    for name, value in section.items():
        if name.startswith("writer_"):
            writer[name.removeprefix("writer_")] = value
        elif name.startswith("read_"):
            reader[name.removeprefix("read_")] = value
        else:
            client[name] = value
    return client, writer, reader
