"""One meaning a word, one word a meaning: words that are gone from names, docstrings, messages, tests and hand-written pages stay away."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "logdevice_py",
    "epoch_store",
    "client",
    "sequencer",
    "storage_node",
    "streams",
    "server",
    "ldquery",
    "indexlog",
    "benchmarks",
    "examples",
)
RENDERED = {"actions.md", "messages.md", "metrics.md", "mutants.md", "settings.md", "status_codes.md", "tables.md"}

GONE = {
    r"giv(e|es|en|ing)[ _]([a-z]+[ _]){0,3}up(?![a-z])|gave[ _]([a-z]+[ _]){0,3}up(?![a-z])": "abort, time out, trim, delete or declare unrecoverable",
    r"patien(t|ce)": "deferrable, or the name of the timeout",
    r"complain": "diagnostic, report",
    r"vouch": "be authoritative",
    r"(?<![a-z])heal(s|ed|ing)?(?![a-z])": "repair",
    r"(?<![a-z])mend(s|ed|ing)?(?![a-z])": "repair, fix",
    r"regain": "metadata resync",
    r"settle[sd][ _](until|through|up[ _]to)": "immutable; an entry with extra copies is settled, see docs/terminology.md",
    r"ma(d|k)es?[ _]good": "re-replicate",
    r"afresh": "start a new generation",
    r"(?<![a-z])(for|in)[ _](its|their)[ _]turn(?![a-z])": "be queued",
    r"timer_?wheel": "TimerQueue",
    r"(moved?|set)[ _]aside": "quarantined",
    r"foreign": "of another cluster",
    r"outdated": "stale",
    r"(standing|stands?|stood)[ _]still|standstill": "stall",
    r"in[ _]doubt(?![a-z])|(?<![a-z])doubts(?![a-z])": "of unknown outcome",
    r"(?<![a-z])(trail|ground)(?![a-z])": "request history, context",
    r"who[ _]leads|node[ _]that[ _]leads": "leader",
}
"""What is gone, and what to say."""

EXCEPTIONS = {
    ("benchmarks/ldbench/figures.py", "standstill"): "a figure's name in reports that are kept",
    ("benchmarks/ldbench/goals.py", "standstill"): "the same",
    ("benchmarks/ldbench/workloads/failover.py", "standstill"): "the same",
    ("client/cli/line_writer.py", "in_doubt"): "a key of what `ldwrite --json` prints",
    ("client/cli/write.py", "in_doubt"): "the same",
    ("streams/cli.py", "in_doubt"): "the same",
    ("logdevice_py/tables/storage.py", "foreign"): "part of the names of directories of quarantined stores",
    ("storage_node/log_store/opening.py", "foreign"): "the same",
    ("storage_node/service.py", "foreign"): "the same",
    ("docs/storage.md", "foreign"): "the same",
    ("docs/decisions/0004-a-shard-that-lost-its-data.md", "foreign"): "the same",
    ("server/simulation/faults/disks.py", "foreign"): "the name of a kind of fault, which applications choose by it",
    ("docs/simulation.md", "foreign"): "the same",
    ("server/simulation/cluster.py", "heal"): "ends a partition of the network, as in other simulators",
    ("docs/simulate-your-application.md", "heal"): "the same",
    ("tests/simulation/region_losses.py", "heal"): "the same",
    ("tests/simulation/test_applications.py", "heal"): "the same",
    ("tests/simulation/test_reading_near.py", "heal"): "the same",
    ("tests/hostile/attacks.py", "heal"): "the beginning of `/v1/health`, in requests that never end",
    ("tests/integration/test_cli.py", "in_doubt"): "a key of what `ldwrite --json` prints",
    ("tests/integration/test_programs_in_trouble.py", "in_doubt"): "the same",
    ("tests/unit/client/cli/test_line_writer.py", "in_doubt"): "the same",
    ("tests/integration/test_rocksdb_store.py", "foreign"): "part of the names of directories of quarantined stores",
    ("tests/unit/storage_node/log_store/test_opening.py", "foreign"): "the same",
    ("tests/unit/storage_node/log_store/test_quarantine.py", "foreign"): "the same",
    ("tests/unit/benchmarks/test_failover.py", "standstill"): "a figure's name in reports that are kept",
}
"""(file, word): why it stays."""


def tracked(*places: str) -> list[Path]:
    found = subprocess.run(["git", "ls-files", "--", *places], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in found.stdout.splitlines() if (ROOT / name).exists()]


def pages() -> list[Path]:
    """Those that people write: not the rendered ones, not transcripts, not the changelog, which is a history."""
    found = tracked("README.md", "CONTRIBUTING.md", "docs/*.md")
    return [page for page in found if page.name not in RENDERED and page.parent.name != "stories"]


def words_in(text: str) -> set[str]:
    """The words of the list that a text has, as it writes them."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    return {match[0].lower() for gone in GONE for match in re.finditer(gone, plain, re.IGNORECASE)}


def found_in(path: Path) -> set[tuple[str, str]]:
    name = str(path.relative_to(ROOT))
    return {(name, word) for word in words_in(name) | words_in(path.read_text())}


@pytest.fixture(scope="module")
def found() -> set[tuple[str, str]]:
    tests = [path for path in tracked("tests") if path != Path(__file__)]  # this file has the list itself
    assert len(tests) > 300
    sources = tracked(*SOURCES)
    assert len(sources) > 300
    paths = [path for path in sources + tests if path.suffix == ".py"] + pages()
    return set().union(*map(found_in, paths))


def test_words_that_are_gone_stay_away(found: set[tuple[str, str]]) -> None:
    assert sorted(found - EXCEPTIONS.keys()) == [], "docs/terminology.md has the words; GONE says which to use"


def test_exceptions_are_needed(found: set[tuple[str, str]]) -> None:
    assert sorted(EXCEPTIONS.keys() - found) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("class TimerWheel:", "timer_wheel"),
        ("timer_wheel", "timer_wheel"),
        ("self._patience = 3", "patience"),
        ("def _give_up(self)", "give_up"),
        ("it gave the log up", "gave the log up"),
        ("onGivenUp", "given_up"),
        ("what is mended", "mended"),
        ("frames in doubt", "in doubt"),
        ("StreamGround", "ground"),
        ("it stood still", "stood still"),
    ],
)
def test_words_are_seen(text: str, word: str) -> None:
    assert words_in(text) == {word}


@pytest.mark.parametrize(
    "text", ["amended", "recommended", "background", "healthy", "givenness", "a group", "trailing", "no doubt"]
)
def test_other_words_are_left_alone(text: str) -> None:
    assert words_in(text) == set()


EMPHASIS = {
    "lazily",
    "at that number",
    "where the token is still this one",
    "secondary",
    # names of rules, which tests cite
    "prefix",
    "evidence",
    "same boot",
    "unsynced bodies",
}
"""What is emphasized and no term of ours."""


def terms_in(text: str) -> list[str]:
    """What a text emphasizes, as it does where it brings a term."""
    plain = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return re.findall(r"(?<![*\w])\*([a-z][a-z -]*[a-z])\*(?![*\w])", plain)


def docstrings(path: Path) -> list[str]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def test_terms_that_pages_and_docstrings_bring_are_in_the_list_of_words() -> None:
    of_pages = {term for page in pages() for term in terms_in(page.read_text())}
    of_code = {
        term
        for path in tracked(*SOURCES)
        if path.suffix == ".py"
        for text in docstrings(path)
        for term in terms_in(text)
    }
    assert len(of_pages) > 50
    assert of_code
    known = (ROOT / "docs" / "terminology.md").read_text().lower()
    assert sorted(term for term in of_pages | of_code if term.rstrip("s") not in known) == sorted(EMPHASIS)


def test_a_word_has_one_meaning_or_says_of_what() -> None:
    rows = re.findall(r"^\| ([^|]+) \| .+ \|$", (ROOT / "docs" / "terminology.md").read_text(), flags=re.MULTILINE)
    words = [word for row in rows if row not in ("word", "---") for word in row.split(", ")]
    assert len(words) > 150
    assert sorted({word for word in words if words.count(word) > 1}) == []
    whole = {word.partition(" (")[0] for word in words if " (" in word}
    assert sorted(whole.intersection(words)) == [], "one of them does not say of what"
