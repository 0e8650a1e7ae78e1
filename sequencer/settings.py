"""Settings of the sequencer side of a node."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import setting
from logdevice_py.metadata.epoch_metadata import HISTORY_MAX

_MS = 1_000
_S = 1_000_000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencerSettings:
    """How a node sequences logs."""

    store_timeout_factor: int = setting(
        4,
        unit="factor",
        lo=1,
        hi=100,
        doc="A wave of STOREs may take this many times the recent p99 of its slowest shard.",
    )
    store_timeout_medians: int = setting(
        20,
        unit="factor",
        lo=1,
        hi=1000,
        doc="A wave of STOREs may take this many times the recent median of its slowest shard at most, however slow one in a hundred was.",
    )
    store_timeout_min_us: int = setting(
        20 * _MS, unit="us", lo=_MS, hi=60 * _S, doc="Shortest timeout of a wave of STOREs."
    )
    store_timeout_max_us: int = setting(
        5 * _S,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="Longest timeout of a wave of STOREs; it doubles with each wave up to here.",
    )
    store_timeout_initial_us: int = setting(
        500 * _MS, unit="us", lo=_MS, hi=60 * _S, doc="Timeout of a wave while a shard's latency is not known."
    )
    immediate_waves: int = setting(
        2,
        unit="waves",
        lo=0,
        hi=10,
        doc="A recipient's failure starts the next wave at once during this many waves; later ones wait.",
    )
    settle_min_us: int = setting(
        5 * _MS,
        unit="us",
        lo=_MS,
        hi=60 * _S,
        doc="Of logs with extra copies: an entry that is acknowledged waits at least so long, and as long as the recent p99, for the copies that are still missing, before those that are there "
        "are made the whole copyset.",
    )
    silent_shard_us: int = setting(
        500 * _MS,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="A shard that lets acknowledged entries wait, as those of logs with extra copies may be, is put on the graylist when it answers nothing for so long.",
    )
    graylist_us: int = setting(
        10 * _S,
        unit="us",
        lo=_MS,
        hi=3600 * _S,
        doc="A shard that let a STORE time out is not picked for this long, then probed. First waves under way to it get a quarter of their time.",
    )
    probe_retry_us: int = setting(
        5 * _S, unit="us", lo=_MS, hi=600 * _S, doc="Time between probes of a shard on the graylist."
    )
    overloaded_us: int = setting(
        1 * _S, unit="us", lo=_MS, hi=600 * _S, doc="A shard that said OVERLOADED is not picked for this long."
    )
    no_space_us: int = setting(
        2 * _S,
        unit="us",
        lo=_MS,
        hi=3600 * _S,
        doc="A shard that said NOSPC is not picked for this long; then the next entry tries it. A log that lacks shards comes back so late.",
    )
    store_disabled_us: int = setting(
        30 * _S,
        unit="us",
        lo=_MS,
        hi=3600 * _S,
        doc="A shard that said DISABLED or FAILED is not picked for this long.",
    )
    unroutable_us: int = setting(
        1 * _S,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="A shard whose connection broke is not picked for this long, or until it is back.",
    )
    release_retry_us: int = setting(
        200 * _MS,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="How soon a release reaches the shards that did not store the entry.",
    )
    release_broadcast_us: int = setting(
        5 * _S, unit="us", lo=_MS, hi=3600 * _S, doc="Releases of this long are sent to all shards once more."
    )
    release_sweep_logs: int = setting(
        500,
        unit="logs",
        lo=1,
        hi=1_000_000,
        doc="How many logs a sweep over logs looks at in one turn; it goes on 20 ms later.",
    )
    release_idle_logs: int = setting(
        2000,
        unit="logs",
        lo=1,
        hi=1_000_000,
        doc="How many idle logs are released once more with each broadcast, in turn.",
    )
    epoch_draining_timeout_us: int = setting(
        2 * _S,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="How long recovery waits for the entries in flight of the epoch before.",
    )
    reactivation_limit: int = setting(
        5,
        unit="activations",
        lo=1,
        hi=1000,
        doc="How often a log may be activated within `reactivation_limit_interval_us`.",
    )
    reactivation_limit_interval_us: int = setting(
        1 * _S, unit="us", lo=_MS, hi=600 * _S, doc="Interval of `reactivation_limit`."
    )
    concurrent_rolls: int = setting(
        4,
        unit="logs",
        lo=1,
        hi=10_000,
        doc="Logs of a node whose epochs are ended by age or size at the same time; the others queue.",
    )
    roll_turn_us: int = setting(
        2 * _S,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="A roll that takes longer does not count for `concurrent_rolls` any more.",
    )
    activation_wait_us: int = setting(
        10 * _S,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="How long appends wait for an activation before they are answered NOSEQUENCER.",
    )
    epoch_store_timeout_us: int = setting(
        10 * _S, unit="us", lo=_MS, hi=600 * _S, doc="An answer of the epoch store that takes longer counts as unknown."
    )
    metadata_repair_us: int = setting(
        30 * _S,
        unit="us",
        lo=_MS,
        hi=3600 * _S,
        doc="The metadata of a log are stored in its metadata log again this often at most, when readers ask for it.",
    )
    acquaintance_us: int = setting(
        3 * _S,
        unit="us",
        lo=0,
        hi=600 * _S,
        doc="From its first activation on, a node waits for so long to hear of all shards before it gives a log its first nodeset.",
    )
    epoch_store_retry_min_us: int = setting(
        100 * _MS,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="First delay before a failed request to the epoch store is repeated.",
    )
    epoch_store_retry_max_us: int = setting(
        5 * _S,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="Longest delay before a failed request to the epoch store is repeated.",
    )
    append_buffer_frames: int = setting(
        4000,
        unit="frames",
        lo=1,
        hi=100_000,
        doc="How many frames of one log may wait for its activation or for a recovery.",
    )
    append_buffer_bytes: int = setting(
        64 * _MIB,
        unit="bytes",
        lo=1,
        hi=1 << 40,
        doc="How many bytes of frames of all logs may wait for activations and recoveries.",
    )
    appender_bytes: int = setting(
        512 * _MIB, unit="bytes", lo=1, hi=1 << 40, doc="How many bytes of entries of all logs may be in flight."
    )
    esn_max: int = setting(
        2**32 - 1,
        unit="entries",
        lo=1,
        hi=2**32 - 1,
        sim=(3, 1000),
        doc="Entries of an epoch; then the log gets another epoch.",
    )
    no_redirect_us: int = setting(
        5 * _S,
        unit="us",
        lo=0,
        hi=600 * _S,
        doc="After a request that forbids redirection no request is redirected for this long.",
    )
    take_back_us: int = setting(
        60 * _S,
        unit="us",
        lo=0,
        hi=3600 * _S,
        doc="A node takes a log back from a living one that stands at a later place of its `sequencer_affinity` and took it over this long ago.",
    )
    sequencer_state_timeout_us: int = setting(
        5 * _S,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="A request for the state of a sequencer that takes longer is answered AGAIN.",
    )
    sequencer_state_waiters: int = setting(
        100_000,
        unit="requests",
        lo=1,
        hi=10_000_000,
        doc="How many requests for the state of sequencers may wait; as many again for those of internal logs.",
    )
    tail_check_timeout_us: int = setting(
        1 * _S,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="When the epoch store is silent for this long, shards are asked who sealed the log.",
    )
    write_streams_per_log: int = setting(
        1000,
        unit="streams",
        lo=1,
        hi=1_000_000,
        doc="How many write streams an epoch remembers; the oldest tenth is then forgotten.",
    )
    write_stream_positions: int = setting(
        128,
        unit="frames",
        lo=1,
        hi=100_000,
        doc="How many recent positions of a write stream are kept for repeated frames.",
    )
    history_trim_from: int = setting(
        32,
        unit="nodesets",
        lo=2,
        hi=HISTORY_MAX,
        sim=(2, 4),
        doc="From how many nodesets in its history on a log's shards are asked which of them nobody needs, because all of it is trimmed.",
    )
    history_trim_interval_us: int = setting(
        600 * _S,
        unit="us",
        lo=_MS,
        hi=86_400 * _S,
        sim=(200 * _MS, 5 * _S),
        doc="How long after that they are asked again at the earliest.",
    )
    configuration_logs: int = setting(
        2000, unit="logs", lo=1, hi=1_000_000, doc="How many logs are compared with a new cluster file in one turn."
    )
    reconfiguration_tick_us: int = setting(
        50 * _MS,
        unit="us",
        lo=_MS,
        hi=600 * _S,
        doc="Time between steps of the sweep that reactivates logs after a change of nodes.",
    )
    reconfiguration_logs: int = setting(
        50, unit="logs", lo=1, hi=100_000, doc="How many logs a step of that sweep looks at."
    )
    idle_logs_delay_us: int = setting(
        1 * _S,
        unit="us",
        lo=0,
        hi=600 * _S,
        sim=(100 * _MS, 2 * _S),
        doc="How long after a change of nodes a node begins to look for logs that nobody uses and whose open epochs list shards that departed.",
    )
    idle_logs_per_step: int = setting(
        50,
        unit="logs",
        lo=1,
        hi=100_000,
        doc="How many logs a step of that pass looks at; the next one follows 20 ms later.",
    )
    idle_logs_asked: int = setting(
        100,
        unit="logs",
        lo=1,
        hi=100_000,
        doc="No step begins while that pass awaits the epoch store's answers for so many logs.",
    )
