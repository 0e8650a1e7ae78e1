from __future__ import annotations

from collections.abc import Sequence

import pytest

from logdevice_py.config.location import Location
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError
from logdevice_py.placement.resolvers import (
    HostNames,
    RememberedLocations,
    ScriptResolver,
    StableLocations,
    load_resolver,
    parse_network_path,
)
from logdevice_py.placement.settings import PlacementSettings

HERE = "tests.unit.logdevice_py.placement.test_resolvers"
DEFAULT = Location.parse("default-rack")


class Racks:
    """Answers from a table; what it raises or returns can be scripted."""

    def __init__(self) -> None:
        self.table: dict[str, str | None] = {"a": "/eu/r1", "b": "/eu/r2"}
        self.asked: list[list[str]] = []
        self.answers: list[object] = []
        self.reloads = 0

    def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        self.asked.append(list(names))
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[return-value]
        return [self.table.get(name) for name in names]

    def reload(self) -> None:
        self.reloads += 1


class TestRemembered:
    def test_one_location_for_each_name_in_the_same_order(self) -> None:
        known = RememberedLocations(Racks(), DEFAULT)
        assert list(map(str, known.resolve(["b", "a", "b"]))) == ["eu....r2", "eu....r1", "eu....r2"]
        assert known.resolve([]) == []

    def test_each_name_is_asked_for_once_until_a_reload(self) -> None:
        racks = Racks()
        known = RememberedLocations(racks, DEFAULT)
        known.resolve(["a", "b"])
        known.resolve(["b", "a"])
        racks.table["a"] = "/us/r1"
        assert str(known.resolve(["a"])[0]) == "eu....r1"
        known.reload()
        assert str(known.resolve(["a"])[0]) == "us....r1"
        assert (racks.asked, racks.reloads) == ([["a", "b"], ["a"]], 1)

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            ([None, "/eu/r2"], "not known"),
            (["/eu/r1/x", "/eu/r2"], "write /rack, /region/rack"),
            (["/eu/r 1", "/eu/r2"], "may hold letters"),
        ],
    )
    def test_a_name_without_a_location_stands_at_the_default_and_is_asked_for_again(
        self, answer: list[str | None], why: str
    ) -> None:
        racks = Racks()
        racks.answers = [answer]
        known = RememberedLocations(racks, DEFAULT)
        assert list(map(str, known.resolve(["a", "b"]))) == ["default-rack", "eu....r2"]
        assert why in known.failures["a"]
        assert str(known.resolve(["a", "b"])[0]) == "eu....r1"
        assert known.failures == {}

    @pytest.mark.parametrize("answer", [OSError("no DNS"), ["/eu/r1"], ["/eu/r1", "/eu/r2", "/eu/r3"], 7])
    def test_a_resolver_that_fails_or_answers_for_others_gives_all_the_default(self, answer: object) -> None:
        racks = Racks()
        racks.answers = [answer]
        known = RememberedLocations(racks, DEFAULT)
        assert known.resolve(["a", "b"]) == [DEFAULT, DEFAULT]
        assert set(known.failures) == {"a", "b"}


class TestScript:
    def test_names_are_given_in_batches_and_tokens_come_back(self) -> None:
        asked: list[list[str]] = []

        def run(names: Sequence[str]) -> str:
            asked.append(list(names))
            return "".join(f"/r/{name}\n" for name in names)

        assert ScriptResolver(run, 2).resolve(["a", "b", "c"]) == ["/r/a", "/r/b", "/r/c"]
        assert asked == [["a", "b"], ["c"]]

    def test_a_batch_with_another_number_of_tokens_is_not_known(self) -> None:
        assert ScriptResolver(lambda names: "/r/x /r/y", 1).resolve(["a"]) == [None]
        assert ScriptResolver(lambda names: "", 5).resolve(["a", "b"]) == [None, None]


def test_host_names_tell_region_and_rack() -> None:
    assert HostNames().resolve(["us-r7-db3.example.com", "localhost", "10.0.0.1"]) == ["/us/r7", None, None]


@pytest.mark.parametrize(
    ("text", "location"),
    [("/r1", "r1"), ("/eu/r1", "eu....r1"), ("eu.d.c.w.r1", "eu.d.c.w.r1"), ("", "")],
)
def test_a_network_path_is_a_location(text: str, location: str) -> None:
    assert str(parse_network_path(text)) == location


@pytest.mark.parametrize("text", ["/", "/a/b/c", "//b", "/a b"])
def test_what_is_no_network_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|may hold"):
        parse_network_path(text)


class TestStable:
    A, B = Location.parse("/a".strip("/")), Location.parse("b")

    def stable(self, period: int) -> StableLocations:
        return StableLocations(period, {NodeId(1): self.A})

    def test_without_a_period_a_change_counts_at_once(self) -> None:
        stable = self.stable(0)
        assert stable.on_found({NodeId(1): self.B}, 5) == {NodeId(1): self.B}
        assert stable.on_found({NodeId(1): self.B}, 6) == {}

    def test_a_change_counts_after_the_period_and_not_before(self) -> None:
        stable = self.stable(10)
        assert stable.on_found({NodeId(1): self.B}, 5) == {}
        assert stable.on_found({NodeId(1): self.B}, 14) == {}
        assert stable.pending == {NodeId(1): self.B}
        assert stable.on_found({NodeId(1): self.B}, 15) == {NodeId(1): self.B}
        assert stable.pending == {}

    @pytest.mark.parametrize("between", [{NodeId(1): A}, {NodeId(1): Location.parse("c")}, {}])
    def test_what_flaps_begins_again(self, between: dict[NodeId, Location]) -> None:
        stable = self.stable(10)
        stable.on_found({NodeId(1): self.B}, 0)
        assert stable.on_found(between, 5) == {}
        assert stable.on_found({NodeId(1): self.B}, 12) == {}
        assert stable.on_found({NodeId(1): self.B}, 22) == {NodeId(1): self.B}


class TestLoading:
    def test_a_class_by_its_name(self) -> None:
        settings = PlacementSettings(resolver_class=f"{HERE}:Racks", default_location="/eu/none")
        known = load_resolver(settings, lambda names: "")
        assert list(map(str, known.resolve(["a", "z"]))) == ["eu....r1", "eu....none"]

    def test_a_script(self) -> None:
        settings = PlacementSettings(resolver_script="/bin/where")
        assert list(map(str, load_resolver(settings, lambda names: "/eu/r9").resolve(["a"]))) == ["eu....r9"]

    @pytest.mark.parametrize(
        ("settings", "why"),
        [
            ({}, "set resolver_script or resolver_class"),
            ({"resolver_script": "/bin/where", "resolver_class": "a:B"}, "one of both"),
            ({"resolver_class": f"{HERE}:NoSuch"}, "cannot be made"),
            ({"resolver_class": "nothing"}, "module:Class"),
            ({"resolver_script": "/bin/where", "default_location": "a b"}, "default_location"),
        ],
    )
    def test_what_cannot_be_used_is_refused(self, settings: dict[str, str], why: str) -> None:
        with pytest.raises(LogDeviceError, match=why):
            load_resolver(PlacementSettings(**settings), lambda names: "")
