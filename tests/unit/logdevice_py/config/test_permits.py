"""The attribute `permit`: how it is written, what it gives, and how it is inherited."""

from __future__ import annotations

import itertools

import pytest

from logdevice_py.config.attributes import parse_attribute, render_attribute
from logdevice_py.config.logs import LogTree
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.config.permits import NO_PERMITS, Permits, parse_permits
from logdevice_py.config.security import parse_security
from logdevice_py.core.ids import LogId
from logdevice_py.core.principal import ANONYMOUS, Permission, Principal
from logdevice_py.core.status import LogDeviceError
from tests.unit.logdevice_py.config.test_parse import GOOD

WRITTEN = ["append:svc-clicks", "read:group/bi", "trim:ops@example.org"]


def test_a_list_and_a_string_say_the_same_and_what_is_rendered_is_read_back() -> None:
    permits = parse_permits(WRITTEN)
    assert parse_permits(", ".join(WRITTEN)) == permits
    assert parse_attribute(*render_attribute("permit", permits)) == ("permit", permits)
    assert parse_permits([]) == parse_permits("") == NO_PERMITS


@pytest.mark.parametrize(
    "wrong",
    [
        "append",
        ["append"],
        ["write:x"],
        ["append:"],
        ["append:a b"],
        ["append:group/"],
        ["append:a/b"],
        [1],
        1,
        True,
        None,
        {"a": 1},
    ],
)
def test_anything_else_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="permit: "):
        parse_attribute("permit", wrong)


def test_who_may_do_what() -> None:
    """Against a plain reading of the grants."""
    grantees = ["a", "b", "group/g", "group/h", "anonymous"]
    principals = [
        ANONYMOUS,
        Principal("a"),
        Principal("b", frozenset({"g"})),
        Principal("g"),
        Principal("c", frozenset({"g", "h"})),
    ]
    every = [(permission, who) for permission in Permission for who in grantees]
    seen = 0
    for grants in itertools.chain.from_iterable(itertools.combinations(every, count) for count in range(3)):
        permits = Permits(frozenset(grants))
        for principal, permission in itertools.product(principals, Permission):
            names = [principal.name, *(f"group/{each}" for each in principal.groups), "anonymous"]
            expected = any((permission, name) in grants or (Permission.ADMIN, name) in grants for name in names)
            assert permits.allow(principal, permission) == expected
            assert permits.allow_anything(principal) == any(who in names for _, who in grants)
            seen += expected
    assert seen > 1000


def test_the_nearest_one_that_is_set_holds() -> None:
    def permits(text: str) -> dict[str, Permits]:
        return {"permit": parse_permits(text)}

    tree = LogTree.build(
        defaults={"replication": load_cluster(GOOD).metadata_log.replication, **permits("read:all")},
        directories={"/team": permits("read:team")},
        groups=[("/other", 1, 1, {}), ("/team/inherits", 2, 2, {}), ("/team/own", 3, 3, permits("append:own"))],
    )
    found = [str(tree.get(LogId(log)).permit) for log in (1, 2, 3)]  # type: ignore[union-attr]
    assert found == ["read:all", "read:team", "append:own"]


def test_a_cluster_file_has_it() -> None:
    text = (
        GOOD + '\n[logs."/secured"]\nids = 77\nreplicate = "node:1"\npermit = ["append:svc-clicks", "read:group/bi"]\n'
    )
    config = load_cluster(text)
    attributes = config.log(LogId(77))
    assert attributes is not None
    assert attributes.permit.allow(Principal("svc-clicks"), Permission.APPEND)
    assert load_cluster(render_cluster(config)) == config


@pytest.mark.parametrize(
    ("section", "error"),
    [
        ({"permissions": True}, "permissions: nodes prove"),
        ({"tls": "on"}, "tls: found 'on'"),
        ({"tls": "require", "permission": True}, "no such setting"),
    ],
)
def test_settings_that_protect_nobody_are_refused(section: dict[str, object], error: str) -> None:
    with pytest.raises(LogDeviceError, match=error):
        parse_security({"security": section})
