"""Every message that nodes and clients exchange, declared once. `docs/messages.md` is rendered from here.

Names are LogDevice's: verb and participle for request and answer. Conventions:
  - `request_id` is chosen by the asker, unique per asker and kind, and echoed.
  - A node index of -1 means "none".
  - A message for a shard names it; it goes to the shard's node. Answers name the shard that answers.
  - `generation` in a request is the one that the epoch's metadata lists for the shard (0: any). A shard of another generation answers
    REBUILDING: it does not have what the epoch stored and must not be counted.
  - `needs` tells what a peer has to be permitted to send the message, of each log that it names.
  - Messages that may carry many logs hold lists; a sender splits them so that fields stay below 64 KiB (`LOGS_PER_FRAME`).
"""

from __future__ import annotations

import enum
from dataclasses import field
from typing import Annotated, Final, NamedTuple

from logdevice_py.config.attributes import Durability as Durability
from logdevice_py.core.ids import Generation, ShardId
from logdevice_py.core.lsn import LSN_INVALID, Epoch
from logdevice_py.protocol.declare import (
    EPOCH,
    LEFT_OUT,
    LOG,
    LSN,
    SHARD,
    U8,
    U8K,
    U16,
    U32,
    U32K,
    U64,
    Blob16,
    Bool,
    EpochField,
    EsnField,
    Extension,
    GenerationField,
    Instance,
    Log,
    LsnField,
    Needs,
    Node,
    Payload,
    Shard,
    Stamp,
    StatusField,
    Text,
    list_of,
    message,
    pair_of,
    row_of,
)

PROTOCOL_VERSION_MIN: Final = 1
PROTOCOL_VERSION_MAX: Final = 2
EPOCHS_PER_ANSWER: Final = 8192
"""Epochs that an EPOCHS_LISTED tells of at most."""
LOGS_PER_FRAME: Final = 500
"""How many logs a sender puts into one message at most."""
ANSWERS_PER_FRAME: Final = 2500
"""How many logs one CLEANED or SEAL_CHECKED answers for: what a peer asks for in one frame may take two to answer."""
FIELDS_BUDGET: Final = 65_000
"""Bytes that the lists of one message may take; what is left of 64 KiB is for its other fields."""
EPOCHS_PER_SEALED: Final = 1300
"""How many epochs of a log one SEALED describes at most: a list of so many may have left out later ones."""


class MessageType(enum.IntEnum):
    """Wire numbers. A removed number is never used again."""

    HELLO = 1
    ACK = 2
    APPEND = 3
    APPENDED = 4
    STORE = 5
    STORED = 6
    RELEASE = 7
    SEAL = 8
    SEALED = 9
    DIGEST = 10
    DIGESTED = 11
    MUTATED = 12
    CLEAN = 13
    CLEANED = 14
    GET_EPOCH_RECOVERY_METADATA = 15
    EPOCH_RECOVERY_METADATA = 16
    GET_SEQ_STATE = 17
    SEQ_STATE = 18
    START = 19
    STARTED = 20
    RECORDS = 21
    GAP = 22
    WINDOW = 23
    STOP = 24
    GOSSIP = 25
    CLUSTER_STATE = 26
    TRIM = 27
    TRIMMED = 28
    CHECK_SEAL = 29
    SEAL_CHECKED = 30
    SHUTDOWN = 31
    GUARDED_APPEND = 32
    LIST_EPOCHS = 33
    EPOCHS_LISTED = 34
    GET_CONFIGURATION = 35
    CONFIGURATION_TEXT = 36
    FIND_KEY = 160
    KEY_FOUND = 161
    DATA_SIZE = 162
    DATA_SIZED = 163
    TRIM_POINTS = 164
    COMPARE = 170
    COMPARED = 171
    FETCH = 172
    FETCHED = 173
    FETCH_METADATA = 174
    METADATA_FETCHED = 175
    REBUILD_STORE = 190
    REBUILD_STORED = 191
    SHARD_STATUS = 192


@message(MessageType.HELLO, needs=Needs.NOTHING)
class Hello:
    """First frame of a connection, from the side that dialled, which sends nothing more before the answer. Answer: ACK."""

    protocol_min: U16
    protocol_max: U16
    cluster_name: Text
    cluster_uuid: Blob16  # 16 bytes; empty from a client that does not know it
    node: Node  # who dials; -1: a client
    instance: Instance  # run of the dialling process
    destination: Node  # whom it means to reach; -1: any
    config_version: U64  # version of the dialler's cluster file
    name: Text  # of a client, for logs
    token: Text = field(
        default="", repr=False
    )  # of a client: a signed token that says which principal it is; over TLS only


@message(MessageType.ACK, needs=Needs.NODE)
class Ack:
    """Answer to HELLO. Anything but OK closes the connection: PROTO (no common version), INVALID_CLUSTER, NOTINCONFIG (not that node), ACCESS (it
    does not prove what it says, or speaks clear text where that is not taken)."""

    status: StatusField
    protocol: U16  # OK: the version that both speak from here on
    cluster_uuid: Blob16
    node: Node
    instance: Instance
    config_version: U64
    detail: Text
    principal: Text = ""  # to a client: whom it is taken for


class AppendFlags(enum.IntFlag):
    """Flags of APPEND."""

    NONE = 0
    BATCH = 1  # the payload is a batch of `records` records
    NO_REDIRECT = 2  # sequence it here even if another node should
    REACTIVATE_IF_PREEMPTED = 4  # with NO_REDIRECT: take the log back if another node preempted this one
    WRITE_STREAM = 8  # writer, sequence and stream_epoch are set
    RESUME = 16  # first frame of the write stream in this epoch: any sequence number is taken
    KEYS = 32  # the payload begins with the keys of its records
    EXCLUSIVE = (
        64  # with RESUME: refused when a frame of the write stream was taken in this epoch before, or may have been
    )
    SYNC = 128  # acknowledge it once all copies are synced, whatever the log's durability; APPENDED says if they were
    ATOMIC = 256  # with BATCH: one entry holds all records, also where each should have an LSN of its own


@message(MessageType.APPEND, needs=Needs.APPEND)
class Append:
    """Give the payload a position and replicate it. Answer: APPENDED."""

    request_id: U64
    log: Log
    flags: U32  # AppendFlags
    records: U32  # how many records the payload holds, 1 to 65,536
    crc: U32  # crc32c of the payload, made by the client
    seen_epoch: EpochField  # highest epoch of the log that the client knows of; a sequencer below it is stale
    previous_lsn: LsnField  # position that an earlier try may have got; 0: none
    writer: Blob16  # write stream: 16 bytes; else empty
    sequence: U64  # write stream: number of this frame, from 1
    stream_epoch: EpochField  # write stream: the only epoch in which the frame may be stored
    payload: Payload


class GuardFlags(enum.IntFlag):
    """What GUARDED_APPEND asks of the end of the log."""

    NONE = 0
    TRANSACTION = (
        1  # no transaction id of the log is above the first one of the frame; the last one becomes the greatest
    )
    EXPECT = 2  # the expected record is the last of the log
    FENCE = 4  # the token is not below the fence
    RAISE = 8  # with FENCE: it is above the fence, and becomes it
    END = 16  # nothing follows
    ACCEPT_LOSS = 32  # with RAISE: also when the last entries of the log are lost


EXTENSIONS_TOLD: Final = 1024
"""Bytes of the extensions of an entry that SEALED tells at most."""
OFFSET_UNKNOWN: Final = 0xFFFFFFFF
"""Batch offset of a record of which only the LSN is known."""


@message(MessageType.GUARDED_APPEND, needs=Needs.APPEND, since=2)
class GuardedAppend:
    """APPEND if the end of the log is as the guards say. Answer: APPENDED; CONFLICT, FENCED, ENDED, TRANSACTION_ID_TOO_LOW when it is not, DATALOSS
    when that cannot be known any more. A frame without records makes an entry that only the guards are about (RAISE, END)."""

    request_id: U64
    log: Log
    flags: U32  # AppendFlags
    records: U32  # how many records the payload holds, up to 65,536
    crc: U32  # crc32c of the payload, made by the client
    seen_epoch: EpochField
    previous_lsn: LsnField
    writer: Blob16
    sequence: U64
    stream_epoch: EpochField  # these as in APPEND
    guards: U32  # GuardFlags
    first_transaction: U64  # TRANSACTION: the least id in the frame, from 1
    last_transaction: U64  # the greatest
    expected_lsn: LsnField  # EXPECT: 0, the log has no record yet
    expected_offset: U32  # batch offset of the expected record
    token: U64  # FENCE: from 1
    append_id: U64  # EXPECT, RAISE, END: random, the same in each try
    payload: Payload


class AppendedFlags(enum.IntFlag):
    """Flags of APPENDED."""

    NONE = 0
    NOT_REPLICATED = 1  # no copy was stored anywhere: an append that failed is certainly not applied
    NUMBER_TAKEN = (
        2  # WRITE_STREAM_BROKEN: other content was taken in this epoch with this number, or with one before it
    )


class SplitRun(NamedTuple):
    """Records that follow each other, each with an LSN of its own, stored alike. A timestamp of 0 and no copyset: not told."""

    records: U32
    timestamp: Stamp
    durability: U8  # Durability
    copyset: Annotated[list[ShardId], list_of(SHARD, 127)]


SPLIT_RUNS_MAX: Final = 4096


@message(MessageType.APPENDED, needs=Needs.NODE)
class Appended:
    """Answer to APPEND. lsn is the position when OK; with other statuses the position that the append may have got, 0 if none;
    with STALE and WRITE_STREAM_UNKNOWN ``epoch:0`` of the sequencer; with CONFLICT and ENDED the last record; with NUMBER_TAKEN where the other content is, ``epoch:0`` if that is not known. The frame's records share the LSN, with batch offsets that follow each
    other, unless `split` says that each has an LSN of its own: only the sequencer knows how it stored them."""

    request_id: U64
    log: Log
    status: StatusField
    flags: U32  # AppendedFlags
    lsn: LsnField
    batch_offset: U32  # of the frame's first record within the LSN
    timestamp: Stamp
    redirect: Node  # REDIRECTED, PREEMPTED: whom to ask
    durability: U8  # Durability
    copyset: Annotated[list[ShardId], list_of(SHARD, 127)]
    split: Annotated[list[SplitRun], list_of(row_of(SplitRun), SPLIT_RUNS_MAX)] = field(
        default_factory=list
    )  # each record has an LSN, from lsn on
    there: U64 = 0  # FENCED: the fence token; TRANSACTION_ID_TOO_LOW: the greatest transaction id of the log; THROTTLED: microseconds to wait


class StoreFlags(enum.IntFlag):
    """Flags of STORE."""

    NONE = 0
    RECOVERY = 1  # from epoch recovery: seals are compared with seal_epoch; the answer is MUTATED
    DRAINING = 2  # from a sequencer that drains its epoch: soft seals are ignored
    SYNC = 4  # answer after a sync whatever the log's durability


@message(MessageType.STORE, needs=Needs.NODE)
class Store:
    """Keep a copy of an entry. Answer: STORED, or MUTATED for recovery."""

    log: Log
    lsn: LsnField
    shard: Shard  # for which copy
    generation: GenerationField
    wave: U32
    flags: U32  # StoreFlags
    seal_epoch: EpochField  # of the recovery; 0 from a sequencer
    recovery_id: U64  # of the recovery; 0 from a sequencer
    released: LsnField = (
        LSN_INVALID  # from a sequencer: as in RELEASE, everything up to here may be read; 0: nothing is said
    )
    image: Payload  # logdevice_py.core.entry


class StoredFlags(enum.IntFlag):
    """Flags of STORED."""

    NONE = 0
    SOFT_PREEMPTED = 1  # refused by a soft seal only
    OVERLOADED = 2  # pick this shard less for a while
    LOW_WATERMARK = 4  # taken, but disk space runs low
    AWAITED = 8  # a reader at this shard waits for the entry: its RELEASE is urgent


@message(MessageType.STORED, needs=Needs.NODE)
class Stored:
    """Answer to STORE. OK (durable as the log or the STORE asks), PREEMPTED (sealed; by whom), DISABLED, NOSPC, OVERLOADED, REBUILDING (other
    generation), NOTSTORAGE, BADPAYLOAD (checksum), SHUTDOWN, FAILED (disk)."""

    log: Log
    lsn: LsnField
    shard: Shard
    wave: U32
    status: StatusField
    flags: U32  # StoredFlags
    seal_epoch: EpochField  # PREEMPTED: of the seal
    seal_node: Node  # PREEMPTED: who sealed


@message(MessageType.MUTATED, needs=Needs.NODE)
class Mutated:
    """Answer to a STORE of recovery. Statuses as STORED."""

    recovery_id: U64
    log: Log
    lsn: LsnField
    shard: Shard
    wave: U32
    status: StatusField
    seal_epoch: EpochField
    seal_node: Node


@message(MessageType.RELEASE, needs=Needs.NODE)
class Release:
    """Everything up to lsn may be read, all earlier epochs included. No answer; repeated until the connection took it."""

    shard: Shard
    logs: Annotated[list[tuple[int, int]], list_of(pair_of(log=LOG, lsn=LSN), 4096)]


class SealLog(NamedTuple):
    """A log that SEAL seals."""

    log: Log
    seal_epoch: EpochField
    clean_epoch: EpochField  # the last clean one: the answer tells of later ones
    generations: Annotated[
        list[tuple[Epoch, Generation]], list_of(pair_of(since=EPOCH, generation=U32K), 256)
    ]  # as the metadata lists for this shard: from which epoch on which generation


@message(MessageType.SEAL, needs=Needs.NODE)
class Seal:
    """Refuse STOREs of every epoch <= seal epoch from then on. Answer: SEALED."""

    request_id: U64
    shard: Shard
    node: Node  # who seals
    logs: Annotated[list[SealLog], list_of(row_of(SealLog), 4096)]


class EpochState(NamedTuple):
    """What a sealed shard holds of an epoch."""

    epoch: EpochField
    status: StatusField  # OK, or REBUILDING: the shard is not authoritative for it
    lng: EsnField
    last_esn: EsnField  # the greatest stored
    last_timestamp: Stamp  # of that
    tail_lsn: LsnField  # of the tail record at or below the LNG
    tail_timestamp: Stamp  # of that
    tail_records: U32 = 0  # of that
    tail_extensions: Extension = b""  # of the header of that, or of one that is trimmed


class SealedLog(NamedTuple):
    """What SEALED says of a log."""

    log: Log
    status: StatusField  # PREEMPTED: a higher seal holds
    seal_epoch: EpochField  # of the seal that holds
    seal_node: Node  # who set it
    trim_point: LsnField
    epochs: Annotated[list[EpochState], list_of(row_of(EpochState), 4096)]
    # those in (last clean epoch, seal epoch]; one that is left out holds nothing here, unless the list is full and ends before it


@message(MessageType.SEALED, needs=Needs.NODE)
class Sealed:
    """Answer to SEAL."""

    request_id: U64
    shard: Shard
    logs: Annotated[list[SealedLog], list_of(row_of(SealedLog), 4096)]
    generation: GenerationField = Generation(0)  # of the shard that answers; 0: not told


class DigestRange(NamedTuple):
    """A range of LSNs of which DIGEST asks."""

    log: Log
    first: LsnField
    last: LsnField  # inclusive
    generation: GenerationField


@message(MessageType.DIGEST, needs=Needs.READ)
class Digest:
    """What is stored in ranges of LSNs, released or not? Answer: DIGESTED, which may cover a part; the asker asks on from there.

    At most about `bytes_max` of images are returned, one at least.
    """

    request_id: U64
    shard: Shard
    bytes_max: U32
    ranges: Annotated[list[DigestRange], list_of(row_of(DigestRange), 4096)]


class DigestedRange(NamedTuple):
    """How far DIGESTED covers a range."""

    log: Log
    status: StatusField
    through: LsnField  # the last LSN that the answer covers


class LogEntry(NamedTuple):
    """An entry of which the image is in the payload."""

    log: Log
    lsn: LsnField
    length: U32  # of its image


@message(MessageType.DIGESTED, needs=Needs.NODE)
class Digested:
    """Answer to DIGEST. The images follow each other in the payload. Each is the copy of highest rank, an AMEND merged with its body; an empty one stands for an entry that
    the shard holds and cannot read."""

    request_id: U64
    shard: Shard
    ranges: Annotated[list[DigestedRange], list_of(row_of(DigestedRange), 4096)]
    entries: Annotated[list[LogEntry], list_of(row_of(LogEntry), 4096)]
    images: Payload


class CleanLog(NamedTuple):
    """How an epoch of a log ended."""

    log: Log
    epoch: EpochField
    lng: EsnField  # agreed
    last_esn: EsnField  # of the last digest entry or bridge
    tail_lsn: LsnField
    tail_timestamp: Stamp
    authoritative: U8  # 1 if it is
    summary: Extension = b""  # an encoded `EpochSummary`; empty: its entries are not counted


@message(MessageType.CLEAN, needs=Needs.NODE)
class Clean:
    """The epoch is recovered: what the shard holds of it is final. Answer: CLEANED."""

    request_id: U64
    shard: Shard
    seal_epoch: EpochField  # of the recovery
    node: Node
    logs: Annotated[list[CleanLog], list_of(row_of(CleanLog), 4096)]


class CleanedLog(NamedTuple):
    """Whether an epoch of a log is clean at a shard."""

    log: Log
    epoch: EpochField
    status: StatusField  # OK, PREEMPTED, FAILED or AGAIN
    seal_epoch: EpochField  # of the seal that holds
    seal_node: Node  # who set it


@message(MessageType.CLEANED, needs=Needs.NODE)
class Cleaned:
    """Answer to CLEAN."""

    request_id: U64
    shard: Shard
    logs: Annotated[list[CleanedLog], list_of(row_of(CleanedLog), 4096)]


@message(MessageType.GET_EPOCH_RECOVERY_METADATA, needs=Needs.NODE)
class GetEpochRecoveryMetadata:
    """A shard that missed recoveries asks a peer how epochs ended. Answer: EPOCH_RECOVERY_METADATA."""

    request_id: U64
    shard: Shard  # who is asked
    log: Log
    first: EpochField
    last: EpochField


class EpochEnd(NamedTuple):
    """How an epoch ended, as far as a shard knows."""

    epoch: EpochField
    status: StatusField  # OK, EMPTY (clean and trimmed to its end here) or NOTREADY (not known here)
    seal_epoch: EpochField  # of the recovery
    lng: EsnField
    last_esn: EsnField  # of the last digest entry or bridge
    tail_lsn: LsnField
    tail_timestamp: Stamp
    authoritative: U8  # 1 if it is
    summary: Extension = b""  # as in CLEAN


@message(MessageType.EPOCH_RECOVERY_METADATA, needs=Needs.NODE)
class EpochRecoveryMetadata:
    """Answer to GET_EPOCH_RECOVERY_METADATA."""

    request_id: U64
    shard: Shard
    log: Log
    epochs: Annotated[list[EpochEnd], list_of(row_of(EpochEnd), 1024)]


class SeqStateFlags(enum.IntFlag):
    """Flags of GET_SEQ_STATE."""

    NONE = 0
    NO_REDIRECT = 1
    REACTIVATE_IF_PREEMPTED = 2
    WAIT_FOR_RECOVERY = (
        4  # answer when the current epoch is released (all earlier ones recovered), AGAIN at the deadline
    )
    TAIL = 8  # answer when everything acknowledged before the request came is released, and nobody else took over
    STORE_METADATA = 16  # the metadata log cannot be read for certain: store the record of the current epoch again
    EXPLAIN = 32  # answer AGAIN at once, with what is waited for here; nothing is activated
    # set by the node that is asked: whoever asks may not append. No epoch begins for that but the first one of a log that nobody has
    ONLY_READS = 64
    WIDEN = 128  # of nodes: rebuilding finds no place in nodesets of earlier epochs; an epoch that makes them wider comes first


@message(MessageType.GET_SEQ_STATE, needs=Needs.ANY)
class GetSeqState:
    """Ask a log's sequencer how far it is; activates it when it is not. Answer: SEQ_STATE."""

    request_id: U64
    log: Log
    flags: U32  # SeqStateFlags
    min_epoch: EpochField  # the sequencer must be in this epoch or a later one: it reactivates if it is below


class SeqStateWait(NamedTuple):
    """What a sequencer waits for, as table waits tells it."""

    kind: Text
    cause: Text
    shards: Text
    waiting: U32  # how many things wait
    waited_us: U64  # 0: not known
    detail: Text  # for people


SEQ_STATE_WAITS_MAX: Final = 8


@message(MessageType.SEQ_STATE, needs=Needs.NODE)
class SeqState:
    """Answer to GET_SEQ_STATE: OK, AGAIN, REDIRECTED, PREEMPTED, NOSEQUENCER, NOTREADY, NOTFOUND, ISOLATED, SHUTDOWN."""

    request_id: U64
    log: Log
    status: StatusField
    redirect: Node
    epoch: EpochField
    last_released: LsnField
    next_lsn: LsnField
    tail_lsn: LsnField  # last data entry released, 0 if none
    tail_timestamp: Stamp
    waits: Annotated[list[SeqStateWait], list_of(row_of(SeqStateWait), SEQ_STATE_WAITS_MAX)] = field(
        default_factory=list
    )  # with EXPLAIN
    counts: Extension = (
        b""  # encoded `EpochCounts` of the epoch, of what is fully replicated; empty: its entries are not counted
    )


class StartFlags(enum.IntFlag):
    """Flags of START."""

    NONE = 0
    SINGLE_COPY = 1  # deliver only what this shard is first to deliver among the shards not known down
    NO_PAYLOAD = 2  # headers only
    HEDGE = 4  # a shard is slow, and others are asked for what it should have sent; a hint for tables and counters


@message(MessageType.START, needs=Needs.READ)
class Start:
    """Open a read stream, or rewind it when filter_version is higher than that of an open one. Answer: STARTED, then RECORDS and GAP."""

    log: Log
    stream: U64  # chosen by the reader
    shard: Shard
    generation: GenerationField
    first: LsnField
    until: LsnField  # inclusive
    window_high: LsnField  # nothing beyond is sent until WINDOW moves it
    bytes_credit: U64  # total bytes of images that may be sent since START
    flags: U32  # StartFlags
    filter_version: U32
    replication: U8  # copies of the epoch, for copysets that are larger
    known_down: Annotated[list[int], list_of(SHARD, 127)]
    order: Annotated[list[tuple[int, int]], list_of(pair_of(shard=SHARD, tier=U8K), 127)] = field(
        default_factory=list, metadata=LEFT_OUT
    )  # with SINGLE_COPY: members of a copyset count by their tiers, then by their places in it; others come last; empty: by their places


@message(MessageType.STARTED, needs=Needs.NODE)
class Started:
    """Answer to START: OK, NOTSTORAGE, REBUILDING (other generation), AGAIN, FAILED, NOTFOUND, SHUTDOWN."""

    log: Log
    stream: U64
    shard: Shard
    status: StatusField
    filter_version: U32
    last_released: LsnField
    ordered: Bool = field(
        default=False, metadata=LEFT_OUT
    )  # the order of START holds; versions that do not know it never say so


@message(MessageType.RECORDS, needs=Needs.NODE)
class Records:
    """Entries of a read stream in LSN order; the images follow each other in the payload."""

    log: Log
    stream: U64
    shard: Shard
    filter_version: U32
    entries: Annotated[list[tuple[int, int]], list_of(pair_of(lsn=LSN, length=U32K), 4096)]  # length: of the image
    images: Payload


class GapReason(enum.IntEnum):
    """Why a shard has nothing to send in a range."""

    TRIM = 0  # trimmed; the range reaches to the trim point
    NO_RECORDS = 1  # nothing stored here, or it is another shard's to send
    CHECKSUM_FAIL = 2  # stored, but damaged
    UNDER_REPLICATED = 3  # the shard may have lost entries in this range


@message(MessageType.GAP, needs=Needs.NODE)
class ShardGap:
    """How far a shard has looked: it sends nothing in [first, last]."""

    log: Log
    stream: U64
    shard: Shard
    filter_version: U32
    first: LsnField
    last: LsnField
    reason: U8  # GapReason
    last_released: LsnField = LSN_INVALID  # at the shard: how far there is something to read, whatever the window is


@message(MessageType.WINDOW, needs=Needs.READ)
class Window:
    """Send on: entries up to high, and bytes_credit bytes of images since START. Neither ever shrinks within a filter version."""

    log: Log
    stream: U64
    shard: Shard
    filter_version: U32
    high: LsnField
    bytes_credit: U64


@message(MessageType.STOP, needs=Needs.NOTHING)
class Stop:
    """Close a read stream."""

    log: Log
    stream: U64
    shard: Shard


_NONE_FAILED: Final[list[int]] = []
"""Nobody changes it: what is decoded gets a list of its own."""


class GossipNode(NamedTuple):
    """What a node knows of another."""

    node: Node
    instance: Instance
    intervals: U32  # gossip intervals since anyone heard of it
    flags: U8  # 1: leaving, 2: starting, 4: keeps an event log
    generations: Annotated[list[Generation], list_of(U32K, 128)]  # of its shards
    failed: Annotated[list[int], list_of(U8K, 128)] = _NONE_FAILED  # shards whose disks failed, by index


@message(MessageType.GOSSIP, needs=Needs.NODE)
class Gossip:
    """What a node knows of all nodes. Sent every gossip interval; no answer."""

    node: Node
    instance: Instance
    sequence: U64  # counts this instance's gossips
    config_version: U64
    nodes: Annotated[list[GossipNode], list_of(row_of(GossipNode), 4096)]


class NodeState(enum.IntEnum):
    """What a node is to the others."""

    DEAD = 0  # not heard of for the gossip threshold, or its connection was refused
    ALIVE = 1
    STARTING = 2  # heard of, not yet stable; sequences nothing
    LEAVING = 3  # shutting down in order; sequences nothing new


class ClusterNode(NamedTuple):
    """A node's state."""

    node: Node
    state: U8  # NodeState
    instance: Instance


@message(MessageType.CLUSTER_STATE, needs=Needs.NODE)
class ClusterState:
    """Pushed to every client after ACK and on each change."""

    version: U64  # grows with each change at the sending node
    config_version: U64
    nodes: Annotated[list[ClusterNode], list_of(row_of(ClusterNode), 4096)]


@message(MessageType.GET_CONFIGURATION, needs=Needs.NOTHING, since=2)
class GetConfiguration:
    """Send the configuration that you use: whoever asks heard of a later version than theirs. Answer: CONFIGURATION_TEXT."""

    request_id: U64


@message(MessageType.CONFIGURATION_TEXT, needs=Needs.NODE, since=2)
class ConfigurationText:
    """Answer to GET_CONFIGURATION."""

    request_id: U64
    version: U64
    text: Payload  # as of a cluster file, compressed by zlib


@message(MessageType.TRIM, needs=Needs.TRIM)
class Trim:
    """Trim everything up to lsn. Answer: TRIMMED after it is durable."""

    request_id: U64
    log: Log
    shard: Shard
    lsn: LsnField


@message(MessageType.TRIMMED, needs=Needs.NODE)
class Trimmed:
    """Answer to TRIM."""

    request_id: U64
    log: Log
    shard: Shard
    status: StatusField


@message(MessageType.CHECK_SEAL, needs=Needs.NODE)
class CheckSeal:
    """Has anyone sealed these logs at this shard? Answer: SEAL_CHECKED."""

    request_id: U64
    shard: Shard
    logs: Annotated[list[int], list_of(LOG, 4096)]


class CheckedLog(NamedTuple):
    """The seal of a log at a shard."""

    log: Log
    seal_epoch: EpochField  # the greater of its normal and its soft seal
    seal_node: Node  # who set it


@message(MessageType.SEAL_CHECKED, needs=Needs.NODE)
class SealChecked:
    """Answer to CHECK_SEAL."""

    request_id: U64
    shard: Shard
    logs: Annotated[list[CheckedLog], list_of(row_of(CheckedLog), 4096)]


class FindFlags(enum.IntFlag):
    """Flags of FIND_KEY."""

    NONE = 0
    BY_KEY = 1  # look for a record's key; without it: for a timestamp
    APPROXIMATE = 2  # what the bounds of partitions tell is enough; of timestamps only


@message(MessageType.FIND_KEY, needs=Needs.READ)
class FindKey:
    """Where in [first, last] do the shard's records of a log reach a timestamp or a key? Answer: KEY_FOUND."""

    request_id: U64
    shard: Shard
    log: Log
    first: LsnField
    last: LsnField
    flags: U32  # FindFlags
    timestamp: Stamp
    key: Blob16


@message(MessageType.KEY_FOUND, needs=Needs.NODE)
class KeyFound:
    """Answer to FIND_KEY: OK, AGAIN, OVERLOADED, FAILED (something there is damaged), NOTSTORAGE, SHUTDOWN. What it says of LSNs above `through`,
    and of those that another generation or a lossy epoch covers, is not all that was stored."""

    request_id: U64
    shard: Shard
    log: Log
    status: StatusField
    before: LsnField  # no record stored here from the beginning of the range up to this one reaches it
    reached: (
        LsnField  # the first record stored here that does, or one behind the range; approximate: none before it does
    )
    timestamp: Stamp  # of the record at `reached`; -1: none
    through: LsnField  # how far the shard knows everything that may be read
    trim_point: LsnField  # what is not above is not looked at
    generation: GenerationField  # of the shard
    lossy_first: EpochField  # epochs (inclusive) of which the shard may have lost something; 0 to 0: none
    lossy_last: EpochField


@message(MessageType.DATA_SIZE, needs=Needs.READ)
class DataSize:
    """How much does the shard hold of a log, in records of [first, last] (timestamps)? Answer: DATA_SIZED."""

    request_id: U64
    shard: Shard
    log: Log
    first: Stamp
    last: Stamp


@message(MessageType.DATA_SIZED, needs=Needs.NODE)
class DataSized:
    """Answer to DATA_SIZE: OK, OVERLOADED, FAILED, NOTSTORAGE, SHUTDOWN. An estimate: of a partition that lies in the range in part, such a part of the bytes."""

    request_id: U64
    shard: Shard
    log: Log
    status: StatusField
    size: U64  # bytes of entries, as they were written


@message(MessageType.LIST_EPOCHS, needs=Needs.READ, since=2)
class ListEpochs:
    """What do the recovered epochs of a log hold, as far as the shard knows? Answer: EPOCHS_LISTED."""

    request_id: U64
    shard: Shard
    log: Log
    first: EpochField
    last: EpochField  # inclusive
    rows: U32  # at most so many are answered


@message(MessageType.EPOCHS_LISTED, needs=Needs.NODE, since=2)
class EpochsListed:
    """Answer to LIST_EPOCHS: OK, AGAIN, OVERLOADED, FAILED, NOTSTORAGE, SHUTDOWN. An epoch from `first` to `covered` of which nothing is said is not known here."""

    request_id: U64
    shard: Shard
    log: Log
    status: StatusField
    covered: EpochField  # the last epoch that the rows tell of, or would if it were known
    through: LsnField  # how far the shard knows everything that may be read
    trim_point: LsnField
    generation: GenerationField  # of the shard
    lossy_first: EpochField = Epoch(0)  # as in KEY_FOUND; what is told here was synced, so it is 0
    lossy_last: EpochField = Epoch(0)
    crc: U32 = 0  # crc32c of the rows; 0: the shard is of an earlier version, or there are none
    rows: Payload  # for each epoch, ascending: u32 epoch, and an encoded `EpochSummary`


@message(MessageType.TRIM_POINTS, needs=Needs.NODE)
class TrimPoints:
    """From one shard to another: trim points that hold for the logs, perhaps of none. No answer, unless the receiver knows greater ones: then those."""

    shard: Shard  # whom it is for
    sender: Shard
    wall: Stamp  # the sender's wall clock
    logs: Annotated[list[tuple[int, int]], list_of(pair_of(log=LOG, lsn=LSN), 4096)]


@message(MessageType.SHUTDOWN, needs=Needs.NODE)
class Shutdown:
    """The sender is about to stop in order."""

    reason: Bool  # true: for good, false: to restart


@message(MessageType.COMPARE, needs=Needs.NODE)
class Compare:
    """Do two shards hold the same of [first, last], as far as copysets name them both? Answer: COMPARED.

    The digest is of `storage_node.repair.copies`: over LSN and checksum of each entry, in order.
    """

    request_id: U64
    shard: Shard  # who is asked
    generation: GenerationField
    holder: Shard  # who asks
    log: Log
    first: LsnField
    last: LsnField
    count: U32  # how many entries the asker holds whose copyset names `shard`
    digest: U64  # of those


@message(MessageType.COMPARED, needs=Needs.NODE)
class Compared:
    """Answer to COMPARE: OK; AGAIN (only a part is released here), REBUILDING (it may lack some, or cannot read some), TOOBIG, OVERLOADED,
    FAILED, SHUTDOWN. Where the digests differ, the LSNs of entries held whose copyset names the asker, from `first` on, as many as fit."""

    request_id: U64
    shard: Shard
    log: Log
    status: StatusField
    equal: Bool
    lsns: Annotated[list[int], list_of(LSN, 4096)]


@message(MessageType.FETCH, needs=Needs.NODE)
class Fetch:
    """Send the copies in [first, last] whose copyset names the asker, which lost its own. Answer: FETCHED, which may cover a part."""

    request_id: U64
    shard: Shard  # who is asked
    generation: GenerationField
    holder: Shard  # who asks
    log: Log
    first: LsnField
    last: LsnField
    bytes_max: U32  # about how many bytes of images are wanted; one entry at least is sent


@message(MessageType.FETCHED, needs=Needs.NODE)
class Fetched:
    """Answer to FETCH: OK, or as COMPARED; with REBUILDING entries are sent as well, and there may be more. The images follow each other.

    lossy: REBUILDING because a crash may have taken copies from here; what is left of them is sent, nothing else will come to light.
    """

    request_id: U64
    shard: Shard
    log: Log
    status: StatusField
    through: LsnField  # how far the answer reaches
    entries: Annotated[list[tuple[int, int]], list_of(pair_of(lsn=LSN, length=U32K), 4096)]  # length: of the image
    images: Payload
    lossy: Bool = False


@message(MessageType.FETCH_METADATA, needs=Needs.NODE)
class FetchMetadata:
    """Send the last record of each metadata log of which something is here, to a shard that lost what it had of them. Answer: METADATA_FETCHED,
    which may cover a part."""

    request_id: U64
    shard: Shard  # who is asked
    after: Log  # logs with greater ids are asked for; 0: all
    bytes_max: U32  # about how many bytes of images are wanted; those of one log at least are sent


@message(MessageType.METADATA_FETCHED, needs=Needs.NODE)
class MetadataFetched:
    """Answer to FETCH_METADATA: OK; REBUILDING: the shard lost data itself, or cannot read some, so there may have been more; FAILED, SHUTDOWN,
    OVERLOADED. The images follow each other."""

    request_id: U64
    shard: Shard
    status: StatusField
    through: Log  # all metadata logs up to this one were looked at
    ended: Bool  # there are no more
    config_version: U64  # of the cluster file by which the shard is authoritative
    entries: Annotated[list[LogEntry], list_of(row_of(LogEntry), 512)]
    images: Payload


@message(MessageType.REBUILD_STORE, needs=Needs.NODE)
class RebuildStore:
    """From a donor: keep copies of entries of clean epochs, whatever seals say. Answer: REBUILD_STORED, after a sync.

    The LSNs of entries ascend; the images follow each other in the payload. An AMEND gives the copy that is here
    another copyset.
    """

    request_id: U64
    shard: Shard  # for which copies
    generation: GenerationField
    log: Log
    entries: Annotated[list[tuple[int, int]], list_of(pair_of(lsn=LSN, length=U32K), 4096)]
    images: Payload


@message(MessageType.REBUILD_STORED, needs=Needs.NODE)
class RebuildStored:
    """Answer to REBUILD_STORE: OK, AGAIN (an epoch is not clean here yet, or a damaged range is being repaired), REBUILDING (other
    generation), DISABLED, OVERLOADED, NOSPC, BADPAYLOAD, NOTSTORAGE, SHUTDOWN, FAILED. lacking: AMENDs of which the body is not here; they were not stored. append_percent: how long
    appends take on the shard, in percent of what they take while nothing is rebuilt; 0: there are none."""

    request_id: U64
    log: Log
    shard: Shard
    status: StatusField
    lacking: Annotated[list[int], list_of(LSN, 4096)] = field(default_factory=list)
    append_percent: U32 = 0


class ShardStatusRow(NamedTuple):
    """Why a shard's silence does not prove what it seems to."""

    shard: Shard
    generation: GenerationField  # up to which it holds
    status: U8  # 1: it lost data, 2: what it held is elsewhere


SHARD_STATUS_ROWS_MAX: Final = 4096
"""Rows of a part: as many fit a frame whatever they are."""


@message(MessageType.SHARD_STATUS, needs=Needs.NODE)
class ShardStatus:
    """Pushed to every client when it connects and on each change: shards of which the silence does not prove what it seems to. Those that are
    left out are as they say themselves. What does not fit one frame comes in several, one after the other: only all parts of a version together say
    which shards are left out."""

    version: LsnField  # of the event log
    shards: Annotated[list[ShardStatusRow], list_of(row_of(ShardStatusRow), 16_384)]
    part: U8 = 0  # ascending from 0
    parts: U8 = 1


def says(message: object, deferrable: object) -> bool:
    """Whether a message tells its receiver all that a deferrable one for the same peer does, which can then be left out."""
    return (
        type(message) is Store
        and type(deferrable) is Release
        and message.shard == deferrable.shard
        and len(deferrable.logs) == 1
        and deferrable.logs[0][0] == message.log
        and deferrable.logs[0][1] <= message.released
    )
