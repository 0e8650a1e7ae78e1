from __future__ import annotations

from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, shard_id
from logdevice_py.placement.failure_domains import Authority, FailureDomains, FMajority

S = [shard_id(NodeId(node)) for node in range(9)]


def domains(replicate: str, places: list[str]) -> FailureDomains:
    location = {S[index]: Location.parse(place) for index, place in enumerate(places)}
    return FailureDomains.by_file(S[: len(places)], ReplicationProperty.parse(replicate), location.get)


class TestFMajority:
    def test_all_but_copies_less_one_of_the_nodes_suffice(self) -> None:
        five = domains("node:3", [""] * 5)
        assert five.f_majority(S[:2]) is FMajority.NONE
        assert five.f_majority(S[:3]) is FMajority.INCOMPLETE
        assert five.f_majority(S[:5]) is FMajority.COMPLETE

    def test_all_racks_but_one_suffice_although_more_nodes_are_silent_than_copies_allow(self) -> None:
        racks = domains("rack:2,node:3", ["a", "a", "a", "a", "b", "b", "b", "b"])
        assert racks.f_majority(S[:4]) is FMajority.INCOMPLETE

    def test_all_nodes_but_two_suffice_although_no_rack_is_complete(self) -> None:
        racks = domains("rack:2,node:3", ["a", "a", "b", "b"])
        assert racks.f_majority([S[0], S[2]]) is FMajority.INCOMPLETE

    def test_a_scope_with_fewer_domains_than_its_factor_proves_nothing(self) -> None:
        two = domains("node:3", [""] * 2)
        assert [two.f_majority(S[:count]) for count in range(3)] == [FMajority.NONE, FMajority.NONE, FMajority.COMPLETE]
        one_region = domains("region:2,node:3", [""] * 5)
        assert one_region.f_majority(S[:2]) is FMajority.NONE
        assert one_region.f_majority(S[:3]) is FMajority.INCOMPLETE  # nodes prove
        assert domains("region:2", [""] * 5).f_majority(S[:4]) is FMajority.INCOMPLETE  # two regions are two shards
        assert domains("region:2", [""] * 5).f_majority(S[:3]) is FMajority.NONE

    def test_shards_outside_the_nodeset_do_not_count(self) -> None:
        three = domains("node:3", [""] * 3)
        assert three.f_majority([S[7], S[8]]) is FMajority.NONE
        three.set_authority(S[8], Authority.UNDERREPLICATION)
        assert three.authority(S[8]) is Authority.FULLY_AUTHORITATIVE

    def test_where_shards_are_is_asked_each_time(self) -> None:
        places = {shard: Location.parse("a") for shard in S[:4]}
        replication = ReplicationProperty.parse("rack:2,node:3")

        def can_replicate() -> bool:
            return FailureDomains.by_file(S[:4], replication, places.get).can_replicate(S[:4])

        assert not can_replicate()
        places[S[3]] = Location.parse("b")
        assert can_replicate()

    def test_shards_of_one_node_are_one_domain(self) -> None:
        shards = [shard_id(NodeId(node), index) for node in range(3) for index in range(2)]
        six = FailureDomains.by_file(shards, ReplicationProperty.parse("node:2"), lambda _: Location())
        assert six.f_majority(shards[:4]) is FMajority.INCOMPLETE
        assert not six.can_replicate(shards[:2])
        assert six.can_replicate(shards[1:3])


class TestAuthority:
    def test_a_shard_that_lost_data_blocks_its_domain_even_when_it_answers(self) -> None:
        racks = domains("rack:2", ["a", "a", "b", "b"])
        racks.set_authority(S[0], Authority.UNDERREPLICATION)
        racks.set_authority(S[2], Authority.UNDERREPLICATION)
        assert racks.f_majority([S[0], S[1]]) is FMajority.NONE
        assert racks.f_majority(S[:4]) is FMajority.NON_AUTHORITATIVE

    def test_when_all_that_can_answer_did_and_few_lost_data_the_answer_is_complete(self) -> None:
        three = domains("node:3", [""] * 3)
        three.set_authority(S[0], Authority.UNDERREPLICATION)
        assert three.f_majority(S[1:3]) is FMajority.COMPLETE
        three.set_authority(S[1], Authority.UNDERREPLICATION)
        three.set_authority(S[2], Authority.UNDERREPLICATION)
        assert three.f_majority([]) is FMajority.NON_AUTHORITATIVE

    def test_unavailable_shards_are_waited_for(self) -> None:
        two = domains("node:1", [""] * 2)
        two.set_authority(S[0], Authority.UNAVAILABLE)
        assert two.f_majority([S[1]]) is FMajority.NONE

    def test_empty_shards_are_left_out_of_account(self) -> None:
        two = domains("node:1", [""] * 2)
        two.set_authority(S[0], Authority.AUTHORITATIVE_EMPTY)
        assert two.f_majority([S[1]]) is FMajority.COMPLETE

    def test_a_shard_that_comes_back_counts_again(self) -> None:
        one = domains("node:1", [""])
        for authority in Authority:
            one.set_authority(S[0], authority)
            assert one.authority(S[0]) is authority
        one.set_authority(S[0], Authority.FULLY_AUTHORITATIVE)
        assert one.f_majority(S[:1]) is FMajority.COMPLETE


def test_a_copyset_must_satisfy_every_scope() -> None:
    racks = domains("rack:2,node:3", ["a", "a", "a", "b"])
    assert not racks.can_replicate(S[:3])
    assert not racks.can_replicate([S[0], S[3]])
    assert racks.can_replicate([S[0], S[1], S[3]])


def test_nodes_that_are_not_in_the_cluster_file_share_no_domain() -> None:
    place: dict[ShardId, Location] = {S[0]: Location.parse("a")}
    racks = FailureDomains.by_file(S[:3], ReplicationProperty.parse("rack:2"), place.get)
    assert racks.f_majority([S[0]]) is FMajority.NONE
    assert racks.f_majority([S[0], S[1]]) is FMajority.INCOMPLETE
