"""A pytest session that tries mutants: it collects the tests once and forks a process for each mutant, which runs the tests that reach it."""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest

from tests.mutation.operators import Mutant

ROOT: Final = Path(__file__).parents[2]
_CPU_FACTOR: Final = 5
_CPU_LEAST_S: Final = 3
"""Processor time that tests of a mutant get: as many times what they took before, and so much more."""
_WALL_S: Final = 300
"""A mutant that waits for ever uses no processor time."""
_MEMORY_BYTES: Final = 2 << 30

Line = tuple[str, int]


@dataclass
class Outcome:
    """What became of a mutant."""

    name: str
    path: str
    line: int
    result: str
    """killed, timed out, survived, not reached or impossible (it does not compile, or changes what a closure holds)."""
    test: str = ""
    """The one that failed."""
    seconds: float = 0.0

    @property
    def noticed(self) -> bool:
        return self.result in ("killed", "timed out")


@dataclass
class _Reach:
    """Which lines a test reaches, and the processor time it takes."""

    lines: set[Line] = field(default_factory=set)
    seconds: float = 0.0


@dataclass
class MutationSession:
    """A pytest plugin."""

    mutants: list[Mutant]
    workers: int
    note: Callable[[Outcome], None]
    one_of: tuple[str, ...]
    """Files of whose parametrized tests only the first one is run."""
    trouble: str = ""
    _failed: bool = False
    _killers: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By function: the tests that killed mutants of it are tried first."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """A failing example is as good as the smallest one."""
        import hypothesis  # pytest wants to import it first

        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        quick = hypothesis.settings(hypothesis.settings.get_profile("repeatable"), phases=phases)
        hypothesis.settings.register_profile("mutation", quick)
        hypothesis.settings.load_profile("mutation")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the tests."""
        files = {str(ROOT / mutant.path) for mutant in self.mutants}
        tests = {item.nodeid: item for item in self._wanted(session.items)}
        reached = self._in_child(lambda: self._measure(list(tests.values()), files))
        if reached is None:
            self.trouble = "a test fails without a mutant"
            return True
        functions = _live_functions(files)
        waiting = list(reversed(self.mutants))
        running: dict[int, tuple[Mutant, int, float]] = {}
        while waiting or running:
            while waiting and len(running) < self.workers:
                mutant = waiting.pop()
                chosen = self._choose(mutant, reached)
                if not chosen:
                    self._end(mutant, "not reached")
                    continue
                end, start = os.pipe()
                pid = os.fork()
                if pid == 0:
                    os.close(end)
                    _as_child(partial(self._try, mutant, functions, tests, chosen, reached, start))
                os.close(start)
                running[pid] = (mutant, end, time.monotonic())
            if running:
                pid, status = os.wait()
                mutant, end, began = running.pop(pid)
                self._collect(mutant, end, status, time.monotonic() - began)
        return True

    def _wanted(self, items: list[pytest.Item]) -> list[pytest.Item]:
        first: dict[str, pytest.Item] = {}
        for item in items:
            is_one_of = item.nodeid.startswith(self.one_of)
            first.setdefault(item.nodeid.partition("[")[0] if is_one_of else item.nodeid, item)
        return list(first.values())

    def _choose(self, mutant: Mutant, reached: dict[str, _Reach]) -> list[str]:
        wanted = {(str(ROOT / mutant.path), line) for line in mutant.lines}
        if mutant.constant:
            file = str(ROOT / mutant.path)
            names = [name for name, reach in reached.items() if any(path == file for path, _ in reach.lines)]
        else:
            names = [name for name, reach in reached.items() if not wanted.isdisjoint(reach.lines)]
        killers = self._killers[mutant.function]
        return sorted(names, key=lambda name: (-min(killers[name], 3), reached[name].seconds))

    def _collect(self, mutant: Mutant, end: int, status: int, seconds: float) -> None:
        with os.fdopen(end) as pipe:
            said = pipe.read()
        if os.WIFSIGNALED(status):
            slow = os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGVTALRM)
            self._end(mutant, "timed out" if slow else "killed", f"signal {os.WTERMSIG(status)}", seconds)
        elif not said:
            self._end(mutant, "killed", "the process ended", seconds)
        else:
            result, test = json.loads(said)
            if result == "killed":
                self._killers[mutant.function][test] += 1
            self._end(mutant, result, test, seconds)

    def _end(self, mutant: Mutant, result: str, test: str = "", seconds: float = 0.0) -> None:
        line = mutant.lines.start
        self.note(Outcome(mutant.name, mutant.path, line, result, test, round(seconds, 2)))

    def _in_child(self, measure: Callable[[], dict[str, _Reach] | None]) -> dict[str, _Reach] | None:
        """So that what tests leave behind in memory is not there for mutants."""
        with tempfile.TemporaryFile() as file:
            pid = os.fork()
            if pid == 0:
                _as_child(lambda: _write(file, measure()))
            os.waitpid(pid, 0)
            file.seek(0)
            content = file.read()
        return pickle.loads(content) if content else None

    def _measure(self, items: list[pytest.Item], files: set[str]) -> dict[str, _Reach] | None:
        reached: dict[str, _Reach] = {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            reach = reached[item.nodeid] = _Reach()
            began = time.process_time()
            sys.settrace(_tracer(files, reach.lines))
            try:
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            finally:
                sys.settrace(None)
            reach.seconds = time.process_time() - began
            if self._failed:
                return None
        return reached

    def _try(
        self,
        mutant: Mutant,
        functions: dict[tuple[str, str], list[FunctionType]],
        tests: dict[str, pytest.Item],
        chosen: list[str],
        reached: dict[str, _Reach],
        pipe: int,
    ) -> None:
        try:
            _install(mutant, functions)
        except (SyntaxError, ValueError, LookupError) as error:
            os.write(pipe, json.dumps(["impossible", str(error)]).encode())
            return
        resource.setrlimit(resource.RLIMIT_AS, (_memory_in_use() + _MEMORY_BYTES, resource.RLIM_INFINITY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, _WALL_S)
        for name, following in zip(chosen, [*chosen[1:], None], strict=True):
            signal.setitimer(signal.ITIMER_VIRTUAL, reached[name].seconds * _CPU_FACTOR + _CPU_LEAST_S)
            item = tests[name]
            item.ihook.pytest_runtest_protocol(item=item, nextitem=tests[following] if following else None)
            if self._failed:
                os.write(pipe, json.dumps(["killed", name]).encode())
                return
        os.write(pipe, json.dumps(["survived", ""]).encode())


def _write(file: Any, reached: dict[str, _Reach] | None) -> None:
    if reached is not None:
        pickle.dump(reached, file)
        file.flush()


def _as_child(work: Callable[[], None]) -> None:
    """Never returns."""
    status = 1
    try:
        with open(os.devnull, "w") as nowhere:
            for stream in (1, 2):
                os.dup2(nowhere.fileno(), stream)
        work()
        status = 0
    finally:
        os._exit(status)


def _memory_in_use() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _tracer(files: set[str], lines: set[Line]) -> Callable[[FrameType, str, Any], Any]:
    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def of_call(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code.co_filename in files else None

    return of_call


def _live_functions(files: Iterable[str]) -> dict[tuple[str, str], list[FunctionType]]:
    """By file and qualified name: methods, properties and what decorators wrap as well."""
    found: defaultdict[tuple[str, str], list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in files:
            found[each.__code__.co_filename, each.__code__.co_qualname].append(each)
    return found


def _install(mutant: Mutant, functions: dict[tuple[str, str], list[FunctionType]]) -> None:
    filename = str(ROOT / mutant.path)
    changed = mutant.compile(filename)
    if mutant.constant:
        replacement: Any = mutant.replacement
        module = next(each for each in list(sys.modules.values()) if getattr(each, "__file__", None) == filename)
        setattr(module, mutant.function, replacement.value)
        return
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(changed)}
    for function in functions[filename, mutant.function]:
        function.__code__ = codes[mutant.function, function.__code__.co_firstlineno]


def _codes(code: CodeType) -> Iterable[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
