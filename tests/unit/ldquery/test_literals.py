from __future__ import annotations

import pytest

from ldquery.literals import parse_parameter, replace_lsns, tokens
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import LogDeviceError, Status

E3N17 = int(compose_lsn(3, 17))


@pytest.mark.parametrize(
    ("statement", "replaced"),
    [
        ("SELECT 'e3n17'", f"SELECT {E3N17}"),
        ("lsn BETWEEN 'e3n17' AND 'e3n18'", f"lsn BETWEEN {E3N17} AND {E3N17 + 1}"),
        ("lsn IN('e3n17','e3n17')", f"lsn IN( {E3N17} , {E3N17} )"),
        ("SELECT'e3n17'FROM t", f"SELECT {E3N17} FROM t"),
    ],
)
def test_literals_of_that_form_become_numbers(statement: str, replaced: str) -> None:
    assert replace_lsns(statement).split() == replaced.split()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT e3n17 FROM t",
        'SELECT "e3n17" FROM t',
        "SELECT `e3n17`, [e3n17] FROM t",
        "SELECT 1 -- 'e3n17'",
        "SELECT 1 /* 'e3n17' */",
        "SELECT 1 /* 'e3n17'",
        "SELECT 'it''e3n17'''",
        "SELECT '''e3n17'''",
        "SELECT 'e3n17 '",
        "SELECT x'e317'",
        "SELECT 'E3N17'",
        "SELECT '--' , \"'\" , ''",
        "SELECT 'never closed e3n17",
        "",
    ],
)
def test_everything_else_stays_as_it_is(statement: str) -> None:
    assert replace_lsns(statement) == statement


def test_a_quote_in_a_comment_or_an_identifier_opens_no_literal() -> None:
    assert str(E3N17) in replace_lsns("SELECT 1 -- it's\n, 'e3n17'")
    assert str(E3N17) in replace_lsns("SELECT \"it's\", 'e3n17'")
    assert str(E3N17) in replace_lsns("SELECT [it's], 'e3n17'")
    assert str(E3N17) in replace_lsns("SELECT /* it's */ 'e3n17'")


def test_an_lsn_out_of_range_is_refused_rather_than_compared_as_text() -> None:
    for literal in ("'e3n9999999999'", "'e2147483648n1'", "'e99999999999999999999n1'"):
        with pytest.raises(LogDeviceError) as refused:
            replace_lsns(f"SELECT {literal}")
        assert refused.value.status is Status.INVALID_PARAM


def test_tokens_are_the_statement() -> None:
    statement = "WITH a AS (SELECT \"x\"\"y\", 'it''s' /* c */ FROM [t] -- end\n) SELECT $p1, é, x'00' FROM `a`;"
    assert "".join(text for _, text in tokens(statement)) == statement


@pytest.mark.parametrize("quote", ["[", '"', "`", "'"])
def test_a_quote_that_is_never_closed_takes_the_rest_at_once(quote: str) -> None:
    """To look for its end again behind each further one takes seconds for 60 KB."""
    rest = quote + "x" * 60_000 + ("[" * 5_000 if quote == "[" else "")
    assert list(tokens("SELECT " + rest))[-1] == ("open", rest)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=7", 7),
        ("a=-7", -7),
        ("a=0.5", 0.5),
        ("a=1e3", 1000.0),
        ("a=e3n17", "e3n17"),
        ("a=", ""),
        ("a=b=c", "b=c"),
        ("a='7'", "7"),
        ("a='it''s'", "it's"),
        ("a='", "'"),
        ("a=nan", "nan"),
    ],
)
def test_values_of_parameters_are_numbers_where_they_look_like_it(text: str, value: object) -> None:
    name, found = parse_parameter(text)
    assert (name, found, type(found)) == ("a", value, type(value))


@pytest.mark.parametrize("text", ["a", "=7", "7=7", "a b=1", ":a=1"])
def test_what_has_no_name_is_no_parameter(text: str) -> None:
    with pytest.raises(ValueError, match="write NAME=VALUE"):
        parse_parameter(text)
