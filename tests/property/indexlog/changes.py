"""Arbitrary modifications, few enough documents and names that they meet."""

from __future__ import annotations

from hypothesis import strategies as st

from indexlog.records import LogRecord, Modification

NAMES = st.sampled_from(["a", "b", "name"])
TEXTS = st.dictionaries(NAMES, st.sampled_from(["", "1", "two"]), max_size=3)


def modifications() -> st.SearchStrategy[Modification]:
    """Any step that is allowed."""
    return st.builds(
        Modification,
        deleted=st.booleans(),
        fields=st.none() | TEXTS,
        variables=st.dictionaries(st.integers(0, 2), st.sampled_from([0.0, 1.5]), max_size=2),
        categories=TEXTS,
        timestamp=st.integers(0, 5),
    ).filter(lambda step: step.deleted or not step.is_empty)


def records(indexes: int = 2, documents: int = 5) -> st.SearchStrategy[LogRecord]:
    """A step of one of a few documents."""
    return st.builds(
        LogRecord,
        st.sampled_from([f"index-{number}" for number in range(indexes)]),
        st.sampled_from([f"doc-{number}" for number in range(documents)]),
        modifications(),
    )
