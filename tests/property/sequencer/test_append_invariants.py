"""A sequencer among shards that refuse, stay silent, restart and get sealed at random: what must hold whatever happens."""

from __future__ import annotations

import random
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from logdevice_py.core.ids import NodeId, PeerId, ShardId
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Append, Appended, AppendedFlags, Release, Store
from tests.unit.sequencer.fakes import CLIENT, LOG, World, make_config

REFUSALS = [Status.NOSPC, Status.DISABLED, Status.OVERLOADED, Status.FAILED, Status.SHUTDOWN, Status.REBUILDING]


class Chaos:
    """Drives a world at random and keeps a record of what shards were told and said."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        batching = self.rng.choice([0, 0, 3_000])
        config = make_config(6, batching_time_us=batching, sticky_block_bytes=2_000, max_writes_in_flight=50)
        self.world = World(config, seed=seed)
        self.world.answer = self.answer
        self.stored: dict[tuple[Lsn, int], set[ShardId]] = defaultdict(set)
        self.copysets: dict[tuple[Lsn, int], set[ShardId]] = defaultdict(set)
        self.payloads: dict[int, bytes] = {}
        self.streams: dict[int, tuple[int, int]] = {}
        """By request of a write stream's frame: its epoch and its number."""
        self.sequences: dict[int, int] = {}
        self.sealed = 0
        self.trouble = 0.3
        self.count = 0

    def answer(self, store: Store) -> Status | None:
        self.copysets[store.lsn, store.wave].add(store.shard)
        if store.lsn >> 32 <= self.sealed:
            return Status.PREEMPTED
        if self.rng.random() < self.trouble:
            if self.rng.random() < 0.4:
                return None
            return self.rng.choice(REFUSALS)
        self.stored[store.lsn, store.wave].add(store.shard)
        return Status.OK

    def late_answer(self) -> None:
        world = self.world
        if not world.held_stores:
            return
        store = world.held_stores.pop(self.rng.randrange(len(world.held_stores)))
        status = self.rng.choice([Status.OK, Status.OK, Status.NOSPC])
        if store.lsn >> 32 <= self.sealed:
            status = Status.PREEMPTED
        if status is Status.OK:
            self.stored[store.lsn, store.wave].add(store.shard)
        world.reply(store, status)

    def restart_node(self) -> None:
        node = self.rng.randrange(6)
        world = self.world
        world.held_stores = [store for store in world.held_stores if store.shard >> 8 != node]
        world.node.on_peer_down(PeerId(node), world.now)
        world.run(self.rng.randrange(50_000))
        world.node.on_peer_up(PeerId(node), world.now)

    def step(self) -> None:
        world, roll = self.world, self.rng.random()
        if roll < 0.1 and LOG in world.node.sequencers:
            epoch = world.sequencer.epoch
            number = self.sequences.get(epoch, 0) + 1
            self.sequences[epoch] = number
            payload = b"stream %d" % number
            request_id = world.stream_append(number, epoch=epoch, resume=number == 1, payload=payload)
            self.payloads[request_id] = payload
            self.streams[request_id] = (epoch, number)
        elif roll < 0.6:
            for _ in range(self.rng.randrange(1, 4)):
                self.count += 1
                payload = b"%d" % self.count * self.rng.choice([1, 1, 1, 2000])
                self.payloads[world.append(payload)] = payload
            world.run()
        elif roll < 0.75:
            self.late_answer()
        elif roll < 0.85:
            self.restart_node()
        elif roll < 0.9 and LOG in world.node.sequencers:
            world.sequencer.activate(world.now)
        elif roll < 0.92 and LOG in world.store.metadata:
            epoch = world.store.take_over(LOG, NodeId(3))
            self.sealed = world.seal_epoch = epoch - 1
            world.seal_node = 3
            if self.rng.random() < 0.5:
                world.sequencer.on_sealed(Epoch(epoch - 1), NodeId(3), world.now)
            world.cluster.states.pop(NodeId(3), None)
            world.node.on_cluster_state(world.now)
        world.run(self.rng.randrange(30_000))

    def calm(self) -> None:
        """Faults stop; everything comes to its end."""
        self.trouble = 0.0
        for _ in range(30):
            while self.world.held_stores:
                self.late_answer()
            self.world.run(5_000_000)

    def check(self) -> None:
        world = self.world
        answers = {message.request_id: message for message in world.answered}
        assert len(answers) == len(world.answered), "an append was answered twice"
        assert answers.keys() == self.payloads.keys(), "an append was never answered"
        entries = world.entries()
        positions = set()
        full = {key[0] for key, copyset in self.copysets.items() if copyset <= self.stored[key]}
        for request_id, answer in answers.items():
            if answer.status is Status.OK:
                assert (answer.lsn, answer.batch_offset) not in positions, "a position was given twice"
                positions.add((answer.lsn, answer.batch_offset))
                assert answer.lsn in full, "acknowledged without a full wave"
                assert entries[answer.lsn][1][answer.batch_offset].payload == self.payloads[request_id]
            elif answer.flags & AppendedFlags.NOT_REPLICATED and answer.lsn & 0xFFFFFFFF:
                assert not any(shards for (lsn, _), shards in self.stored.items() if lsn == answer.lsn)
        self.check_streams(answers, full)
        for release in world.messages(Release):
            for _, lsn in release.logs:
                for esn in range(1, (lsn & 0xFFFFFFFF) + 1):
                    assert (lsn >> 32 << 32 | esn) in full, "released beyond what is fully replicated"

    def check_streams(self, answers: dict[int, Appended], full: set[Lsn]) -> None:
        last: dict[int, tuple[Lsn, int]] = {}
        for request_id, (epoch, _) in self.streams.items():
            answer = answers[request_id]
            if answer.status is not Status.OK:
                continue
            assert answer.lsn >> 32 == epoch
            for esn in range(1, (answer.lsn & 0xFFFFFFFF) + 1):
                assert Lsn(epoch << 32 | esn) in full, "a stream was acknowledged behind a hole"
            assert last.get(epoch, (0, 0)) < (answer.lsn, answer.batch_offset), "a stream was reordered"
            last[epoch] = (answer.lsn, answer.batch_offset)


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_positions_acknowledgements_and_releases_are_true_under_faults(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(40):
        chaos.step()
    chaos.calm()
    chaos.check()


def test_nothing_but_documented_messages_goes_to_clients() -> None:
    chaos = Chaos(7)
    for _ in range(60):
        chaos.step()
    chaos.calm()
    to_clients = {type(send.message) for send in chaos.world.sent if send.to == CLIENT}
    assert to_clients == {Appended}
    assert Append not in {type(send.message) for send in chaos.world.sent}
