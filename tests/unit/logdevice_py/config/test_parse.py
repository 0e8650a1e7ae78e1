from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from logdevice_py.config.attributes import Durability
from logdevice_py.config.cluster import Roles, ShardState
from logdevice_py.config.location import Areas, Location
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.core.compression import Compression
from logdevice_py.core.ids import LogId, NodeId, ShardId, shard_id
from logdevice_py.core.status import LogDeviceError, Status

EXAMPLE: Final = Path(__file__).parents[4] / "conf" / "cluster.toml"
TOP: Final = """
version = 3
name = "test"
uuid = "00112233-4455-6677-8899-aabbccddeeff"
epoch_store = "memory:"
"""
NODES: Final = """
[nodes.N0]
host = "h0"
port = 1000
[nodes.N1]
host = "h1"
port = 1000
location = "rack2"
"""
METADATA: Final = """
[metadata_log]
replicate = "node:2"
"""
GOOD: Final = TOP + NODES + METADATA


def error(text: str) -> str:
    with pytest.raises(LogDeviceError) as caught:
        load_cluster(text)
    assert caught.value.status is Status.INVALID_CONFIG
    return caught.value.detail


class TestExample:
    def test_the_example_file_is_valid_and_survives_rendering(self) -> None:
        config = load_cluster(EXAMPLE.read_text())
        assert load_cluster(render_cluster(config)) == config

    def test_it_says_what_its_comments_say(self) -> None:
        config = load_cluster(EXAMPLE.read_text())
        assert config.sequencer_nodes() == (0, 1, 2, 4)
        assert config.sequencer_weights == (1.0, 1.0, 1.0, 0.0, 0.5)
        assert config.storage_capacity(shard_id(NodeId(3))) == 2.0
        assert len(config.metadata_log.nodeset) == 5
        clicks, audit = config.log(LogId(3)), config.log(LogId(100))
        assert clicks is not None
        assert audit is not None
        assert (clicks.path, clicks.backlog_us) == ("/team/clicks", 7 * 86_400_000_000)
        assert (audit.backlog_us, audit.batching_compression) == (0, Compression.ZSTD)
        assert config.log(LogId(101)) is None


class TestNodes:
    def test_what_is_not_written_has_its_default(self) -> None:
        node = load_cluster(GOOD).nodes[NodeId(0)]
        assert node.roles == Roles.SEQUENCER | Roles.STORAGE
        assert (node.shards, node.shard_state, node.data_dir, node.admin_port) == (1, ShardState.READ_WRITE, None, None)

    def test_shards_are_storage_and_writable_by_role_and_state(self) -> None:
        more = (
            GOOD
            + '[nodes.N7]\nhost="h7"\nport=1\nshards=2\nstate="read-only"\n[nodes.N9]\nhost="h9"\nport=1\nroles=["sequencer"]'
        )
        config = load_cluster(more)
        assert config.storage_shards() == (0x000, 0x100, 0x700, 0x701)
        assert config.writable_shards() == (0x000, 0x100)
        assert config.is_writable(ShardId(0x100))
        assert not config.is_writable(ShardId(0x700))
        assert config.location(ShardId(0x100)) == Location.parse("rack2")
        assert config.location(ShardId(0x800)) is None

    @pytest.mark.parametrize(
        "host",
        [
            "h0",
            "db-2.rack_1.example",
            "db2.example.",
            f"{'a' * 63}.example",
            "bücher.example",
            "10.0.0.7",
            "::1",
            "fe80::1%eth0",
            "::ffff:10.0.0.7",
        ],
    )
    def test_hosts_are_names_and_addresses(self, host: str) -> None:
        assert load_cluster(GOOD.replace('"h0"', f'"{host}"')).nodes[NodeId(0)].host == host

    @pytest.mark.parametrize(
        "host",
        [
            "db2..example",
            ".example",
            f"{'a' * 64}.example",
            f"{'ü' * 60}.example",
            "-oProxyCommand",
            "h0-",
            "h0;reboot",
            "$(reboot)",
            "h0'",
            "h0:4440",
            "[::1]",
            "::1%$(reboot)",
            "h 0",
            "http://h0",
        ],
    )
    def test_what_nobody_can_look_up_is_no_host(self, host: str) -> None:
        assert "nodes.N0.host: found" in error(GOOD.replace('"h0"', f'"{host}"'))

    def test_nodes_are_in_order_of_their_indices(self) -> None:
        config = load_cluster(TOP + NODES.replace("N0", "N10").replace("h0", "h10") + METADATA)
        assert list(config.nodes) == [1, 10]

    @pytest.mark.parametrize(
        ("old", "new", "text"),
        [
            ('host = "h0"', 'hots = "h0"', "nodes.N0.hots: no such key; did you mean host?"),
            ('host = "h0"\n', "", 'nodes.N0.host: missing; write it like host = "10.0.0.7"'),
            ('host = "h0"', "host = 7", 'nodes.N0.host: found 7, write a string like "10.0.0.7"'),
            ('host = "h0"', 'host = "http://h0"', "nodes.N0.host: found 'http://h0', write a host name"),
            ("port = 1000", "port = 99999", "nodes.N0.port: found 99999, allowed are 1 to 65535"),
            ("port = 1000", 'port = "1000"', "nodes.N0.port: found '1000', write an integer"),
            ("port = 1000", "port = true", "nodes.N0.port: found true, write an integer"),
            (
                "port = 1000",
                'port = 1\nstate = "readonly"',
                "nodes.N0.state: found 'readonly'; did you mean read-only?",
            ),
            ("port = 1000", 'port = 1\nroles = ["storge"]', "nodes.N0.roles: found 'storge'; did you mean storage?"),
            ("port = 1000", "port = 1\nroles = []", "nodes.N0.roles: is empty"),
            ("port = 1000", "port = 1\nshards = 129", "nodes.N0.shards: found 129, allowed are 1 to 128"),
            ("port = 1000", "port = 1\nstorage_capacity = 0", "nodes.N0.storage_capacity: found 0, allowed are"),
            ("port = 1000", "port = 1\nsequencer_weight = nan", "nodes.N0.sequencer_weight: found nan"),
            ("port = 1000", "port = 1\nsequencer_weight = true", "nodes.N0.sequencer_weight: found true"),
            ("port = 1000", 'port = 1\nlocation = "a b"', "nodes.N0.location: 'a b': the label 'a b' may hold"),
            ("[nodes.N0]", "[nodes.zero]", "nodes.zero: a node is called N and its index"),
            ("[nodes.N0]", "[nodes.N32768]", "nodes.N32768: a node is called N and its index, N0 to N32767"),
            ("[nodes.N0]", "[nodes.N01]", "nodes.N01: a node is called N and its index"),
            ('host = "h1"', 'host = "h0"', "nodes.N1.port: h0:1000 is also the address of nodes.N0.port"),
            ('host = "h1"', 'host = "h1"\nadmin_port = 1000', "nodes.N1.admin_port: h1:1000 is also the address of"),
        ],
    )
    def test_errors_name_the_key_what_was_found_and_what_is_allowed(self, old: str, new: str, text: str) -> None:
        assert old in GOOD
        assert error(GOOD.replace(old, new, 1)).startswith(text)


class TestTop:
    def test_a_file_that_is_no_toml_says_where(self) -> None:
        assert "line 2" in error("version = 1\nname = \nuuid = 3")

    @pytest.mark.parametrize("text", ["a = " + "[" * 5000, "version = " + "9" * 5000])
    def test_a_file_made_to_break_the_parser_is_refused(self, text: str) -> None:
        assert error(text).startswith("not valid TOML")

    @pytest.mark.parametrize(
        ("old", "new", "text"),
        [
            ("version = 3", "verison = 3", "verison: no such key; did you mean version?"),
            ("version = 3", "version = 0", "version: found 0, allowed are 1 to 18446744073709551615"),
            ("version = 3", f"version = {2**64}", f"version: found {2**64}, allowed are 1 to"),
            ('name = "test"', 'name = "my cluster"', "name: found 'my cluster'"),
            ("-aabbccddeeff", "", "uuid: found '00112233-4455-6677-8899', write it like"),
            ('epoch_store = "memory:"', "", "epoch_store: missing; write it like"),
            (
                '"memory:"',
                '"postgres://x"',
                "epoch_store: found 'postgres://x', write sqlite:///absolute/path or zookeeper://",
            ),
            ('"memory:"', '"sqlite:relative"', "epoch_store: found 'sqlite:relative'"),
            ('"memory:"', '"zookeeper://zk1"', "epoch_store: found 'zookeeper://zk1'"),
            ('"memory:"', '"sqlite:///x"', "epoch_store: found 'sqlite:///x', a file that 2 hosts do not share"),
            (NODES, "", "nodes: there are none"),
            (NODES, "[[nodes]]", "nodes: found [{}], this is a table: write [nodes]"),
        ],
    )
    def test_errors_name_the_key_what_was_found_and_what_is_allowed(self, old: str, new: str, text: str) -> None:
        assert old in GOOD
        assert error(GOOD.replace(old, new)).startswith(text)

    @pytest.mark.parametrize(
        "url", ["zookeeper://zk1:2181/root", "zookeeper://zk1:2181", "zookeeper://zk1:2181,zk2:2181/a/b", "memory:x"]
    )
    def test_epoch_stores_across_hosts(self, url: str) -> None:
        assert load_cluster(GOOD.replace("memory:", url)).epoch_store == url

    def test_one_machine_may_keep_epochs_in_a_file(self) -> None:
        text = GOOD.replace("memory:", "sqlite:///x").replace("h0", "127.0.0.1").replace("h1", "127.0.0.2")
        assert load_cluster(text).epoch_store == "sqlite:///x"

    def test_somebody_must_sequence_and_somebody_must_store(self) -> None:
        assert "role sequencer" in error(GOOD.replace("port = 1000", 'port = 1000\nroles = ["storage"]'))
        assert "sequencer_weight is 0" in error(GOOD.replace("port = 1000", "port = 1000\nsequencer_weight = 0"))
        assert "role storage" in error(GOOD.replace("port = 1000", 'port = 1000\nroles = ["sequencer"]'))


class TestMetadataLog:
    def test_its_nodeset_is_the_first_shard_of_all_storage_nodes_unless_listed(self) -> None:
        assert load_cluster(GOOD).metadata_log.nodeset == (0x000, 0x100)
        listed = load_cluster(TOP + NODES + '[metadata_log]\nreplicate = "node:1"\nnodeset = [1]')
        assert listed.metadata_log.nodeset == (0x100,)
        assert load_cluster(render_cluster(listed)) == listed

    @pytest.mark.parametrize(
        ("table", "text"),
        [
            ("", "metadata_log.replicate: missing"),
            ('replicate = "node:x"', "metadata_log.replicate: 'node:x' is no scope with a factor"),
            ('replicate = "node:2"\nnodeset = [0, 5]', "metadata_log.nodeset: node 5 is not in this file"),
            ('replicate = "node:2"\nnodeset = [0, 0]', "metadata_log.nodeset: node 0 is there twice"),
            ('replicate = "node:2"\nnodeset = ["N0"]', "metadata_log.nodeset: found 'N0', write the indices"),
            (
                'replicate = "node:2"\nnodeset = [0]',
                'metadata_log.replicate: "node:2" needs storage in 2 different nodes, there is storage in 1; lower node:2',
            ),
        ],
    )
    def test_errors(self, table: str, text: str) -> None:
        assert error(TOP + NODES + "[metadata_log]\n" + table).startswith(text)

    def test_a_cluster_with_more_nodes_than_a_nodeset_holds_must_list_some(self) -> None:
        nodes = "".join(f'[nodes.N{node}]\nhost = "h{node}"\nport = 1\n' for node in range(200))
        assert "metadata_log.nodeset: holds 200 nodes, at most 127" in error(TOP + nodes + METADATA)
        assert load_cluster(TOP + nodes + METADATA + "nodeset = [0, 1, 2]")


class TestSettings:
    def test_sections_are_kept_as_they_are(self) -> None:
        config = load_cluster(GOOD + '[settings.storage]\nsync = true\nwindow = "10ms"\nshare = 1.5\n[settings.client]')
        assert config.settings == {"storage": {"sync": True, "window": "10ms", "share": 1.5}, "client": {}}

    @pytest.mark.parametrize(
        ("table", "text"),
        [
            ("[settings.storge]", "settings.storge: no such key; did you mean storage?"),
            ("[settings.storage.more]", "settings.storage.more: found a table; a setting is"),
            ("[settings]\nstorage = 3", "settings.storage: found 3, this is a table"),
        ],
    )
    def test_errors(self, table: str, text: str) -> None:
        assert error(GOOD + table).startswith(text)


class TestLogs:
    @pytest.mark.parametrize(
        ("ids", "expected"),
        [('"1..8"', (1, 8)), ("[1, 8]", (1, 8)), ("7", (7, 7)), ('"7"', (7, 7)), ('" 1 .. 3 "', (1, 3))],
    )
    def test_ids_are_a_range_or_one(self, ids: str, expected: tuple[int, int]) -> None:
        config = load_cluster(GOOD + f'[logs."/a"]\nids = {ids}\nreplicate = "node:2"')
        (group,) = config.logs.groups
        assert (group.lo, group.hi) == expected

    def test_every_attribute_can_be_set_and_survives_rendering(self) -> None:
        attributes = """
            replicate = "rack:2"
            nodeset_size = 4
            extra_copies = 2
            durability = "async"
            sequencer_batching = false
            batching_time_us = "5ms"
            batching_size_bytes = "2KiB"
            batching_compression = "lz4"
            batching_passthrough_bytes = "1KiB"
            max_writes_in_flight = 7
            window_bytes = "1GiB"
            sticky_copysets = false
            sticky_block_bytes = "1MiB"
            sticky_block_age_us = "1min"
            single_copy_delivery = false
            max_payload_bytes = "10MiB"
            backlog_us = "1.5h"
            sequencer_affinity = "rack2"
        """
        config = load_cluster(GOOD + '[logs."/a"]\nids = 1\n' + attributes)
        found = config.log(LogId(1))
        assert found is not None
        assert found.durability is Durability.ASYNC
        assert (found.backlog_us, found.window_bytes, found.batching_time_us) == (5_400_000_000, 1 << 30, 5_000)
        assert found.sequencer_affinity == Areas.parse("rack2")
        assert load_cluster(render_cluster(config)) == config

    @pytest.mark.parametrize(
        ("table", "text"),
        [
            ('[logs."/a"]\nids = "1-8"', 'logs."/a".ids: found \'1-8\'; write ids = "1..8"'),
            ('[logs."/a"]\nids = [1, 2, 3]', 'logs."/a".ids: found [1, 2, 3]; write ids = "1..8"'),
            ('[logs."/a"]\nids = 0', 'logs."/a".ids: found 0, log ids are 1 to'),
            ('[logs."/a"]\nids = "8..1"', "logs.\"/a\".ids: found '8..1': the first id comes first"),
            ('[logs."/a"]\nids = 1', "logs: /a: no replicate"),
            ('[logs."/a"]\nreplicat = "node:2"', 'logs."/a".replicat: no such attribute; did you mean replicate?'),
            ('[logs."/a"]\nwindow_bytes = 64', 'logs."/a".window_bytes: write it with a unit, in quotes, like "64MiB"'),
            ('[logs."/a"]\nwindow_bytes = "64MB"', "logs.\"/a\".window_bytes: '64MB' is no size"),
            ('[logs."/a"]\nmax_writes_in_flight = 1', 'logs."/a".max_writes_in_flight: 1 is below the minimum 2'),
            ('[logs."/a"]\ndurability = "maybe"', 'logs."/a".durability: \'maybe\' is none of "sync", "async"'),
            ('[logs."/a"]\nreplicate = 3', 'logs."/a".replicate: write a string'),
            (f'[logs."/a"]\nbacklog_us = "{"9" * 400}.5d"', 'logs."/a".backlog_us: '),
            ("[logs.a.b]", "logs.a.b: tables of the log tree are not nested"),
            ("[logs.a]", "logs: a: a path in the log tree begins with /"),
            ("[defaults]\nids = 3", "defaults.ids: log ids belong to a group"),
            (
                '[logs."/a"]\nids = 1\nreplicate = "rack:3"',
                'logs."/a".replicate: "rack:3" needs storage in 3 different racks, there is storage in 2; '
                "lower rack:3 or add storage nodes in another rack",
            ),
            (
                '[logs."/a"]\nids = 1\nreplicate = "node:2"\nnodeset_size = 1',
                'logs."/a".nodeset_size: found 1, the log keeps 2 copies',
            ),
            (
                '[logs."/a"]\nids = 1\nreplicate = "node:2"\nnodeset_size = 3\nextra_copies = 2',
                'logs."/a".nodeset_size: found 3, the log keeps 4 copies',
            ),
            ('[logs."/a"]\nextra_copies = 17', 'logs."/a".extra_copies: 17 is above the maximum 16'),
        ],
    )
    def test_errors(self, table: str, text: str) -> None:
        assert error(GOOD + table).startswith(text)

    def test_a_node_made_read_only_does_not_make_the_file_invalid(self) -> None:
        text = GOOD.replace("port = 1000", 'port = 1000\nstate = "read-only"', 1)
        assert load_cluster(text + '[logs."/a"]\nids = 1\nreplicate = "node:2"')


def test_ids_of_the_log_tree_are_not_for_the_file() -> None:
    text = GOOD + '[logs."/a"]\nreplicate = "node:2"\nids = "1099511627775..1099511627776"\n'
    load_cluster(text)
    assert "given by the log tree" in error(text + "[settings.log_tree]\nenabled = true\n")
    load_cluster(text.replace("..1099511627776", "") + "[settings.log_tree]\nenabled = true\n")
