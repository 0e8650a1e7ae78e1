"""The stories, in the order of docs/protocol.md."""

from __future__ import annotations

from typing import Final

from logdevice_py.core.lsn import compose_lsn, format_lsn
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.protocol.versions import Versions
from logdevice_py.simulation.links import LinkFault
from server.simulation.machines import SimClient, SimNode
from tests.history.stage import LOG
from tests.stories.pages import Story
from tests.stories.recorder import Focus, StoryEvent
from tests.stories.stage import SEQUENCERS, StoryStage
from tests.stories.words import name_of

_RECOVERY: Final = frozenset({"SEAL", "SEALED", "DIGEST", "DIGESTED", "MUTATED", "CLEAN", "CLEANED"})


def _log_in_use(stage: StoryStage) -> tuple[SimClient, SimClient, SimNode]:
    """A client that has appended, another one that only hears of changes, and the sequencer."""
    client, other = stage.client(), stage.client()
    stage.appended(client, "apple")
    stage.connect(other, stage.node(2))
    stage.run(2 * SECOND)
    return client, other, stage.sequencer


def _first_epoch(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:3", seed=seed)
    client = stage.client()
    stage.begin()
    stage.appended(client, "apple")
    stage.run(20 * MILLISECOND)
    stage.end()
    stage.names["sequencer"] = stage.sequencer.name
    return stage


def _plain_append(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:3", seed=seed)
    one, two = stage.client(), stage.client()
    for client in (one, two):
        stage.appended(client, "before the story")
    stage.run(2 * SECOND)
    stage.begin()
    stage.appended(one, "apple")
    stage.run(5 * MILLISECOND)
    first, second = stage.append(one, "pear"), stage.append(two, "plum")
    stage.run_until("both appends", lambda: first.ended and second.ended)
    stage.run(5 * MILLISECOND)
    stage.end()
    stage.names["sequencer"] = stage.sequencer.name
    return stage


def _slow_shard(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:3", seed=seed)
    client = stage.client()
    for _ in range(20):
        stage.appended(client, "before the story")
    stage.run(2 * SECOND)
    slow = stage.node(2)
    slow.disk_settings.sync_min = slow.disk_settings.sync_max = 250 * MILLISECOND
    stage.begin()
    stage.say(slow, "its disk takes 250 ms for a sync from here on")
    for text in ("apple", "pear", "plum"):
        stage.appended(client, text)
    stage.run(300 * MILLISECOND)
    stage.end()
    stage.names |= {"sequencer": stage.sequencer.name, "slow": slow.name}
    return stage


def _paused_sequencer(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    client, other, old = _log_in_use(stage)
    stage.begin()
    old.pause()
    late = stage.append(client, "pear")
    stage.run(1500 * MILLISECOND)
    stage.appended(other, "plum")
    stage.run(50 * MILLISECOND)
    stage.names |= {"old": old.name, "new": stage.sequencer.name}
    old.resume()
    stage.run_until("the late append", lambda: late.ended)
    stage.end()
    return stage


def _sequencer_dies(stage: StoryStage) -> None:
    """With an entry that is nowhere, and a later one that is on one shard."""
    client, other, old = _log_in_use(stage)
    stage.begin()
    nowhere = stage.append_in_part(client, "pear", copies=0)
    stage.run(2 * MILLISECOND)
    once = stage.append_in_part(client, "plum", copies=1)
    stage.run(2 * MILLISECOND)
    old.crash(machine=False)
    stage.run_until("both to fail", lambda: nowhere.ended and once.ended)
    stage.appended(other, "fig")
    stage.run(50 * MILLISECOND)
    stage.names |= {"old": old.name, "new": stage.sequencer.name}


def _sequencer_death(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    _sequencer_dies(stage)
    stage.end()
    return stage


def _purge(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    client, other, old = _log_in_use(stage)
    stage.begin()
    once = stage.append_in_part(client, "pear", copies=1)
    stage.run(3 * MILLISECOND)
    absent = _only_holder(stage, compose_lsn(1, 2))
    absent.crash(machine=False)
    old.crash(machine=False)
    stage.run_until("it to fail", lambda: once.ended)
    stage.let_go()
    stage.appended(other, "plum")
    stage.run(3 * SECOND)
    absent.start()
    stage.run(400 * MILLISECOND)
    stage.end()
    stage.names |= {"old": old.name, "new": stage.sequencer.name, "absent": absent.name}
    return stage


def _only_holder(stage: StoryStage, lsn: int) -> SimNode:
    [holder] = [
        node for node in stage.cluster.nodes.values() if any(disk.holds(LOG, lsn) for disk in node.disks.values())
    ]
    return holder


def _gaps(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    _sequencer_dies(stage)
    stage.let_go()
    stage.run(SECOND)
    client = stage.client()
    stage.begin()
    reader = stage.read(client, until=compose_lsn(2, 1))
    stage.run_until("the reader", lambda: reader.finished)
    stage.end()
    return stage


def _trim(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    client, reader = stage.client(), stage.client()
    for text in ("apple", "pear", "plum"):
        stage.appended(client, text)
    stage.run(2 * SECOND)
    stage.begin()
    for lsn in (compose_lsn(1, 4), compose_lsn(1, 2)):
        call = stage.trim(client, lsn, 300 * MILLISECOND)
        stage.run_until("the trim", lambda call=call: call.ended)  # type: ignore[misc]
        stage.run(5 * MILLISECOND)
    reading = stage.read(reader, until=compose_lsn(1, 3))
    stage.run_until("the reader", lambda: reading.finished)
    stage.end()
    return stage


def _fail_over(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    client, reader = stage.client(), stage.client()
    for text in ("apple", "pear", "plum", "fig"):
        stage.appended(client, text)
    for node in (2, 3, 4, 5):
        stage.connect(reader, stage.node(node))
    stage.run(2 * SECOND)
    stage.begin()
    reading = stage.read(reader, until=compose_lsn(1, 4))
    stage.run(500)
    stage.node(3).pause()
    stage.run_until("the reader", lambda: reading.finished)
    stage.end()
    stage.names["down"] = "N3"
    return stage


def _write_stream(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    client = stage.client()
    streams = stage.writer(client)
    first = stage.append_to(client, streams, "apple")
    stage.run_until("the first", lambda: first.ended)
    stage.run(2 * SECOND)
    old = stage.sequencer
    stage.begin()
    stage.hold_back("plum", copies=0)
    waiting = []
    for text in ("pear", "plum", "fig"):
        waiting.append(stage.append_to(client, streams, text))
        stage.run(300)
    stage.run(600)
    old.crash(machine=False)
    stage.run_until("all", lambda: all(each.ended for each in waiting))
    stage.end()
    stage.names |= {"old": old.name, "new": stage.sequencer.name}
    return stage


def _membership(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    client = stage.client()
    stage.appended(client, "apple")
    stage.connect(client, stage.node(2))
    stage.run(2 * SECOND)
    old = stage.sequencer
    stage.begin()
    old.crash(machine=True)
    stage.run(1500 * MILLISECOND)
    stage.appended(client, "pear")
    stage.run(30 * SECOND)
    stage.names |= {"old": old.name, "new": stage.sequencer.name}
    old.start()
    stage.run(5 * SECOND)
    stage.appended(client, "plum")
    stage.end()
    return stage


def _asked_again(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    client, other, old = _log_in_use(stage)
    stage.begin()
    append = stage.append_in_part(client, "pear", copies=1)
    stage.run(3 * MILLISECOND)
    stage.say(old, "is cut off from all nodes; clients still reach it")
    for node in stage.others(old):
        stage.block(old, node)
        stage.block(node, old)
    stage.run(1500 * MILLISECOND)
    stage.appended(other, "plum")
    stage.run(50 * MILLISECOND)
    [new] = [node for node in stage.others(old) if node.id < SEQUENCERS]
    stage.names |= {"old": old.name, "new": new.name}
    stage.let_go()
    stage.say(old, f"reaches shards again, {new.name} not yet")
    for node in stage.others(old, new):
        stage.unblock(old, node)
        stage.unblock(node, old)
    stage.run_until("the append", lambda: append.ended)
    stage.end()
    return stage


def _tail(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    client, other, old = _log_in_use(stage)
    stage.begin()
    append = stage.append(client, "pear")
    stage.run(300)
    call = stage.tail(client)
    stage.run_until("the append and the tail", lambda: call.ended and append.ended)
    call = stage.tail(client)
    stage.run_until("the tail", lambda: call.ended)
    old.pause()
    stage.run(1500 * MILLISECOND)
    stage.appended(other, "plum")
    stage.run(50 * MILLISECOND)
    stage.names |= {"old": old.name, "new": stage.sequencer.name}
    old.resume()
    stage.run(5 * MILLISECOND)
    call = stage.tail(client)
    stage.run_until("the tail", lambda: call.ended)
    stage.end()
    return stage


def _guarded_appends(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:3", seed=seed)
    one, two = stage.client(), stage.client()
    for client in (one, two):
        stage.appended(client, "before the story", fence=1)
    stage.run(2 * SECOND)
    last = stage.appended(one, "apple").lsn
    stage.run(SECOND)
    stage.begin()
    first, second = stage.append(one, "pear", expect=last), stage.append(two, "plum", expect=last)
    stage.run_until("both appends", lambda: first.ended and second.ended)
    stage.run(5 * MILLISECOND)
    raised = stage.raise_fence(two, 5)
    stage.run_until("the fence", lambda: raised.ended)
    stage.run(5 * MILLISECOND)
    stage.appended(one, "fig", fence=4)
    stage.appended(two, "plum", fence=5)
    stage.run(5 * MILLISECOND)
    marked = stage.mark_end(two, 5)
    stage.run_until("the end", lambda: marked.ended)
    stage.run(5 * MILLISECOND)
    stage.appended(two, "fig", fence=5)
    stage.end()
    stage.names |= {"sequencer": stage.sequencer.name, "last": format_lsn(last)}
    return stage


def _segments(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:3", seed=seed, settings='roll_bytes = "12B"')
    client = stage.client()
    stage.appended(client, "apple")
    stage.run(2 * SECOND)
    stage.begin()
    for text in ("pear", "plum", "fig"):
        stage.appended(client, text)
    stage.run(50 * MILLISECOND)
    call = stage.segments(client)
    stage.run_until("the segments", lambda: call.ended)
    stage.end()
    stage.names["sequencer"] = stage.sequencer.name
    return stage


def _rebuild(seed: int) -> StoryStage:
    settings = '[settings.rebuilding]\nenabled = true\nself_initiated_grace_period_us = "3s"'
    stage = StoryStage(6, "node:3", seed=seed, settings=settings)
    client = stage.client()
    stored = [stage.appended(client, text) for text in ("apple", "pear", "plum", "fig")]
    stage.run(3 * SECOND)
    lost = stage.node(3)
    stage.begin()
    for append in stored:
        stage.say(f"log {LOG}", f"has {append.where}")
    lost.crash(machine=True)
    lost.wipe()
    stage.run(10 * SECOND)
    stage.end()
    stage.names |= {"lost": lost.name}
    return stage


def _bad_frame(seed: int) -> StoryStage:
    stage = StoryStage(4, "node:2", seed=seed)
    client = stage.client()
    stage.appended(client, "apple")
    stage.run(2 * SECOND)
    fault = LinkFault(kind="corrupt_frames", flip=1.0)
    stage.begin()
    sequencer = stage.sequencer
    stage.cluster.network.add_link_fault(client.address, sequencer.id, fault)
    one = stage.append(client, "pear")
    stage.run_until("it", lambda: one.ended)
    stage.cluster.network.remove_link_fault(client.address, sequencer.id, fault)
    stage.appended(client, "plum")
    stage.end()
    stage.names["sequencer"] = sequencer.name
    return stage


def _introductions(seed: int) -> StoryStage:
    stage = StoryStage(2, "node:2", seed=seed)
    node = stage.node(2)
    usual, later, latest, stranger = (stage.client() for _ in range(4))
    later.process.identity.versions = Versions(2, 4)
    latest.process.identity.versions = Versions(4, 5)
    stranger.process.identity.cluster_name = "fables"
    stage.begin()
    for client, what in (
        (usual, "connects to N0"),
        (later, "speaks versions 2 to 4 of the protocol, and connects to N0"),
        (latest, "speaks versions 4 and 5, and connects to N0"),
        (stranger, "takes N0 for a node of the cluster fables, and connects to it"),
    ):
        stage.say(client, what)
        stage.connect(client, stage.node(0))
    node.crash(machine=False)
    stage.run(5 * MILLISECOND)
    node.start()
    stage.run(SECOND)
    stage.end()
    return stage


def _of_introductions(event: StoryEvent) -> bool:
    """Introductions, of nodes those of N2 and N0 only; why a connection is closed stands in the ACK."""
    if event.message is None:
        return not event.text.startswith("turns away")
    return name_of(event.message) in ("HELLO", "ACK") and not {"N1", "N3"} & {*event.sources, *event.targets}


def _no_nodesets(event: StoryEvent) -> bool:
    """Without the questions about nodesets, which each reader and each shard that wakes asks."""
    return not (event.text.startswith("DIGEST") and "metadata of" in event.text)


def _of_rebuilding(event: StoryEvent) -> bool:
    """Without the recoveries, and how the event log is stored; what all nodes say is heard from one, and of disks only that copies change."""
    text = event.text
    if event.disk:
        return "another copyset" in text
    if text.startswith("event log:") and event.sources != ["N0"]:
        return False
    if "event log" in text and text.startswith(("STORE", "APPENDED")):
        return False
    return not any(words in text for words in ("BRIDGE", "last clean"))


STORIES: Final = (
    Story(
        "first-epoch",
        "The first epoch of a log",
        "1. Epochs",
        "Nobody has used log 1 before. {sequencer} asks the shards that keep metadata logs whether they know it, takes epoch 1 in the epoch store, "
        "and stores two entries at once: the nodeset in the metadata log, and the record. Watch how the record is acknowledged as soon as it has three copies, "
        "but released to readers only when the nodeset is certain to be in the metadata log.",
        _first_epoch,
        ("epoch 1 is {sequencer}'s", "the nodeset is in the metadata log", "RELEASE"),
    ),
    Story(
        "plain-append",
        "A plain append",
        "2. Appending",
        "A record becomes an entry with three copies, each synced before its shard answers. The acknowledgement follows the last STORED, and the release goes to those "
        "who have a copy; other shards learn it from the next STORE. On disk, SOFT_SEAL fences older epochs with the first STORE of "
        "this one, and MUTABLE is the LNG that the STORE tells. Then two clients append in the same turn of {sequencer}: their records share "
        "one entry, one LSN and one sync, and differ in their batch offset.",
        _plain_append,
        ('"pear" "plum"', "batch offset 1", "synced"),
        Focus(disks=True),
    ),
    Story(
        "slow-shard",
        "A slow shard and its second wave",
        "2. Appending",
        "{slow} has become slow. {sequencer} waits for it for a while, then stores the entry on another copyset as wave 2: whoever has the record already gets only the "
        "new copyset (AMEND). The next copysets leave {slow} out, and what it answers to wave 1 in the end changes nothing.",
        _slow_shard,
        ("STORE.*wave 2", "AMEND", "{slow}:S0 -> {sequencer} +STORED.*wave 1"),
    ),
    Story(
        "paused-sequencer",
        "A paused sequencer wakes up",
        "3. Storing",
        "{old} stops for a second and a half, with an append under way to it. The others take it for dead, and {new} begins epoch 2 and recovers epoch 1, by sealing it. When {old} "
        "goes on it knows nothing of that: it stores in epoch 1, and every shard refuses (PREEMPTED). Nothing of epoch 1 can be "
        "stored any more, so C1 may append again without a duplicate: placement sends it back to {old}, which takes the log back in epoch 3.",
        _paused_sequencer,
        ("STORED.*PREEMPTED", "APPENDED.*PREEMPTED, NOT_REPLICATED", 'is told that "pear" is at e3n1'),
        Focus(leaves_out=frozenset({"GET_SEQ_STATE", "SEQ_STATE"})),
    ),
    Story(
        "sequencer-death",
        "A sequencer dies, and its epoch is recovered",
        "4. Recovery",
        '{old} is killed with two appends under way: "pear" (e1n2) has reached no shard, "plum" (e1n3) only one. {new} begins epoch 2 with the next append and takes records at '
        'once, while it recovers epoch 1: seal, digest, mutate, clean. "plum" is stored again on a whole copyset, e1n2 becomes a HOLE, and a BRIDGE ends '
        "the epoch. Only then is anything of epoch 2 released.",
        _sequencer_death,
        ("DIGESTED.*e1n3", "STORE.*e1n2 HOLE", "STORE.*e1n3", "STORE.*e1n4 BRIDGE", "last clean epoch is 1"),
    ),
    Story(
        "purge",
        "A shard that missed a recovery purges",
        "4. Recovery",
        '{absent} has the only copy of "pear" (e1n2) when it goes down together with the sequencer. The recovery of epoch 1 does without it: three of four shards are an '
        "f-majority, and none of them has e1n2, so the epoch ends there. When {absent} is back, a RELEASE of epoch 2 tells it that it missed something. It asks its peers how epoch 1 "
        'ended and deletes "pear", which nobody was ever told is stored, before it lets anybody read epoch 2.',
        _purge,
        ("GET_EPOCH_RECOVERY_METADATA", "{absent}:S0 .*deletes log 1 e1n2"),
        Focus(disks=True, where=lambda it: _no_nodesets(it) and (not it.disk or "N2" in it.sources[0])),
    ),
    Story(
        "gaps",
        "A hole and a bridge, as a reader meets them",
        "5. Reading",
        "The log is as [the death of a sequencer](sequencer-death.md) left it. A reader learns the nodeset from the metadata log, opens a stream to every shard of it, and gets each entry from "
        "the first shard of its copyset; the others say how far they looked. Holes and bridges are entries too, and come from all who have them. Watch the reader account for every LSN: records, "
        "a HOLE, and a BRIDGE to the next epoch.",
        _gaps,
        ("gets a gap HOLE e1n2", "gets a gap BRIDGE e1n4 to e2n0", 'gets e2n1 "fig"'),
    ),
    Story(
        "trim",
        "A trim",
        "5. Reading",
        "C1 first trims further than anything was released, which no shard does; then what it may. Each shard makes the trim point durable before it answers. A "
        "reader that begins below it is told TRIM, which is no loss.",
        _trim,
        ("TRIMMED", "gets a gap TRIM e1n1 to e1n2"),
        Focus(disks=True, where=_no_nodesets),
    ),
    Story(
        "fail-over",
        "Single-copy delivery fails over",
        "5. Reading",
        "Of each copyset the first shard sends. {down} stops before it sends what is its own, and nobody else sends that either: each of the others says truthfully that it "
        "has nothing to send. After a while without a word the reader takes {down} for down and rewinds all its streams; whatever still belongs to the old ones is ignored. The others now leave "
        "{down} out of account, and the next shard of the copyset sends.",
        _fail_over,
        ("START.*known down {down}", 'gets e1n4 "fig"'),
        Focus(where=_no_nodesets),
    ),
    Story(
        "write-stream",
        "A write stream through a kill",
        "6. Write streams (BufferedWriter)",
        'C1 has three numbered frames under way when {old} is killed: "pear" is stored and its acknowledgement lost, "plum" has reached no shard, "fig" is stored. The client '
        "makes the log move past epoch 1, waits until epoch 2 is released, and reads its own frames back. The recovery of epoch 1 keeps no frame behind a missing one: the epoch ends in a bridge at "
        'e1n3, and "fig" is overwritten by another. So C1 finds "pear" where it was stored, and sends the other two again, in order: nothing is lost or doubled.',
        _write_stream,
        (
            "STORE.*e1n4 BRIDGE",
            'APPEND.*"plum".*stream epoch 2',
            'is told that "pear" is at e1n2',
            'is told that "fig" is at e2n1',
        ),
        Focus(where=_no_nodesets),
    ),
    Story(
        "membership",
        "A node dies, is back, and takes its log back",
        "7. Membership and routing",
        "The machine of {old} loses power, so nobody is told that its connections are gone. A second without gossip makes it DEAD; N2, to which C1 has a connection, tells it so, and C1 "
        "goes where consistent hashing over the living nodes says that the log is. Half a minute later {old} is back: STARTING at first, then ALIVE, and by the same rule the log is {old}'s again, in "
        "epoch 3. {new} has lost the log without being asked, as it would find out from any shard. The recoveries are left out; "
        "[another story](sequencer-death.md) tells of one.",
        _membership,
        ("N1 DEAD", "epoch 2 is {new}'s", "epoch 3 is {old}'s"),
        Focus(
            shows=frozenset({"CLUSTER_STATE"}),
            leaves_out=_RECOVERY | {"RELEASE", "GET_SEQ_STATE", "SEQ_STATE"},
            where=lambda it: (
                not any(words in it.text for words in ("BRIDGE", "last clean", "the latest epoch"))
                and (not it.text.startswith("CLUSTER_STATE") or it.sources == ["N2"])
            ),
        ),
    ),
    Story(
        "asked-again",
        "An append is asked again elsewhere",
        "7. Membership and routing",
        '{old} is cut off from all nodes with "pear" (e1n2) on one shard, and tries one copyset after the other in vain. {new} takes over; its recovery finds the one copy, and stores '
        '"pear" again on a whole copyset. Shards that hear from {old} again refuse it. It tells C1 that it was preempted, which LSN the append may have got, and whom to ask. C1 asks {new} with that previous LSN: '
        'and as {new} knows what epoch 1 holds, it answers where "pear" is rather than store it twice. The rest of the recovery is left out.',
        _asked_again,
        (
            "STORE.*e1n2.*RECOVERY",
            "APPENDED log 1 e1n2, PREEMPTED",
            "APPEND .*previous LSN e1n2",
            'is told that "pear" is at e1n2',
        ),
        Focus(
            leaves_out=_RECOVERY | {"GET_SEQ_STATE", "SEQ_STATE", "RELEASE"},
            where=lambda it: "last clean" not in it.text,
        ),
    ),
    Story(
        "tail",
        "The tail, and a sequencer that is not the latest",
        "8. The tail",
        'Asked while "pear" is under way, {old} answers e1n1, the last that was acknowledged and released: but only after the epoch store has told it that epoch 1 is still the latest. Then it '
        "stops, {new} takes over and acknowledges a record in epoch 2, and {old}, which believes that it is the sequencer, is asked again. The same question to the epoch store keeps it from "
        "answering e1n2. Placement still says that the log is its own, so it takes epoch 3; its tail lies beyond everything that epoch 2 acknowledged. The recoveries are left out.",
        _tail,
        ("is told: tail: e1n1", "is told: tail: e1n2", "the latest epoch is 2"),
        Focus(
            shows=frozenset({"CHECK_SEAL", "SEAL_CHECKED"}),
            leaves_out=_RECOVERY | {"RELEASE"},
            where=lambda it: "BRIDGE" not in it.text and "last clean" not in it.text,
        ),
    ),
    Story(
        "guarded-appends",
        "A condition, a fence and an end",
        "Guarded appends",
        "Two clients append in the same turn of {sequencer}, and both only if {last} is still the last record. The first of them gets an LSN, so the other finds another last record: CONFLICT, and where that is. "
        "Nothing is stored for a refusal. Then C2 raises the fence to 5, which is an entry without records: C1, who still has token 4, is refused from there on (FENCED), and told the fence. "
        "C2 ends the log by another such entry; nothing follows that, whatever its token (ENDED).",
        _guarded_appends,
        ("APPENDED.*CONFLICT", "CONTROL .fence 5.", "APPENDED.*FENCED", "fence 5, ended", "APPENDED.*ENDED"),
    ),
    Story(
        "segments",
        "A log that rolls, and what its segments say",
        "Segments",
        'Log 1 rolls at 12 bytes of payloads, and has "apple" (e1n1). "plum" makes it 13, so {sequencer} takes epoch 2 while "plum" is still on its way to disks. "fig" goes to epoch 2 '
        "at once, and is released when epoch 1 is recovered, as after a take-over. What the epoch holds in all is in its bridge and goes to every shard with CLEAN; so the shards can say it when "
        "somebody asks for segments, and {sequencer} adds the epoch in progress. Bytes of segments are those of bodies as they are stored.",
        _segments,
        (
            "epoch 2 is {sequencer}'s",
            "BRIDGE .3 records",
            "CLEAN .*3 records",
            "EPOCHS_LISTED.*3 records",
            "is told: e1n1 to e1n3: 3 records.*completed",
            "is told: e2n1 to e2n1: 1 record,.*in progress",
        ),
        Focus(where=_no_nodesets),
    ),
    Story(
        "rebuild",
        "A lost shard is rebuilt",
        "9. Lost and drained shards",
        "{lost} and its disk are gone. After a grace period (3 s here) a node appends to the event log that {lost} is lost, and all nodes read it. The logs get epochs without {lost}: once "
        "the epochs before are recovered, what they hold is final. Then each record that {lost} had a copy of is stored again by the first shard of its copyset that is left, the donor: a whole copy to a new "
        "shard, the new copyset to the other one, and last its own copy. When all donors have said that they are done, nobody waits for {lost} any more. The recoveries, and how the event log is stored and read, are left out.",
        _rebuild,
        ("ShardNeedsRebuild {lost}:S0", "REBUILD_STORE", "AMEND", "another copyset", "{lost}:S0 is rebuilt"),
        Focus(
            leaves_out=_RECOVERY
            | {"GET_SEQ_STATE", "SEQ_STATE", "RELEASE", "START", "STARTED", "RECORDS", "GAP", "STOP"},
            disks=True,
            where=_of_rebuilding,
        ),
    ),
    Story(
        "bad-frame",
        "A damaged frame",
        "10. Hostile input",
        "A bit of C1's frame flips on the way. {sequencer} cannot trust anything that comes over that connection any more and closes it, without looking at what the frame says. "
        'To C1 this is a connection that broke: it does not know whether "pear" is stored, and says so. It connects again for the next append.',
        _bad_frame,
        ("closes: the frame", "it may be stored all the same"),
    ),
    Story(
        "introductions",
        "Who is let in, and who is refused",
        "11. Versions",
        "Whoever dials says HELLO, and nothing more before the ACK. C1 is of this release. C2 is of a later one that still speaks version 2, so N0 names that: the greatest that both speak. "
        "C3 speaks none that N0 knows, and C4 looks for another cluster: N0 says why not, closes the connection, and tells neither of them which node it is. Then N2 is started again. A node says which "
        "node it is, and each of two nodes dials the other: what it sends goes over its own connection.",
        _introductions,
        (
            "N0 -> C2 .*ACK .*OK, version 2",
            "N0 -> C3 .*ACK .*PROTO.* 4 to 5 offered",
            "N0 -> C4 .*ACK .*INVALID_CLUSTER",
            "N2 -> N0 .*HELLO .*node N2",
            "N0 -> N2 .*HELLO .*node N0",
        ),
        Focus(shows=frozenset({"HELLO", "ACK"}), where=_of_introductions),
    ),
)
