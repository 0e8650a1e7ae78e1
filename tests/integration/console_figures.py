"""What the console takes, beside its goals, by the clock: ``python -m tests.integration.console_figures [paint] [tables] [idle] [suite]``; all of them by default.

paint
    the first paint of a console of real nodes in a fresh browser: within 1 s.
tables
    1,000 logs and 60 nodes that are made up: each key of a filter and each jump through the table is painted within 100 ms.
idle
    processor time of the node that serves a console at which nobody does anything, its worker included, beside that without a console: 1 % of a core at most.
suite
    all tests of the console, in a real browser and without one: within 2 minutes.

Other work on the machine makes all of these worse: the figures count on a quiet one.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.ldbench.resources import cost_of
from benchmarks.percentiles import percentile
from benchmarks.storage_figures.processes import load, node_processes
from logdevice_py.config.admin import console_url
from logdevice_py.core.ids import NodeId
from server.dev.supervisor import Supervisor
from tests.integration.browser import chromium, page_of
from tests.integration.made_up_cluster import logs_of, made_up_console, state_of

PAINTED_MS: Final = 1000.0
ANSWERED_MS: Final = 100.0
IDLE_MAX: Final = 0.01
"""Of a core."""
SUITE_MAX: Final = 120.0
"""Seconds."""
NODES: Final = 3
_SETTINGS: Final = {"admin": {"open_reads": True}, "maintenance": {"enabled": True}}
"""As of development clusters: a browser without the token sees everything."""
_SETTLE: Final = 15.0
"""Seconds until a cluster that has started, and a console that was opened, are at rest."""
_FRAME: Final = """
  // the frame with the change is painted before the next message
  await new Promise(resolve => requestAnimationFrame(() => { const channel = new MessageChannel(); channel.port1.onmessage = resolve; channel.port2.postMessage(0); }));
"""
FILTERED: Final = f"""async text => {{
  const field = document.getElementById("filter"), taken = [];
  for (const value of text) {{
    await new Promise(resolve => requestAnimationFrame(resolve));
    const began = performance.now();
    field.value = value;
    field.dispatchEvent(new Event("input", {{ bubbles: true }}));
    document.body.getBoundingClientRect();
    {_FRAME}
    taken.push(performance.now() - began);
  }}
  return taken;
}}"""
"""Script: enters texts into the filter, one after the other; milliseconds until each is painted."""
SCROLLED: Final = f"""async () => {{
  const grid = document.querySelector(".grid.tall"), taken = [];
  for (let step = 0; step < 20; step++) {{
    await new Promise(resolve => requestAnimationFrame(resolve));
    const began = performance.now();
    grid.scrollTop += 1500;
    {_FRAME}
    taken.push(performance.now() - began);
  }}
  return taken;
}}"""
"""Script: jumps through the table; milliseconds until each jump is painted."""
TYPED: Final = (
    *(word[:end] for word in ("/team1", "service-3", "events/99", "no such log") for end in range(len(word) + 1)),
    "",
)
"""What a filter holds while somebody types four words."""
LARGE: Final[dict[str, Any]] = {"state": state_of(60, 6), "logs": logs_of(1000)}
"""Answers of a cluster of 60 nodes with 1,000 logs."""
_SHOWN_WITHIN_MS: Final = 120_000.0
"""On a machine that does much else."""
_PAINTED: Final = "() => performance.getEntriesByName('first-contentful-paint').map(each => each.startTime)"


def _told(what: str, value: float, most: float, unit: str) -> bool:
    met = value <= most
    print(f"{what}: {value:,.4g} {unit} (goal: {most:g} {unit}): {'met' if met else 'missed'}", flush=True)
    return met


async def paint() -> bool:
    """The first paint of a console that nobody has looked at before, and when its nodes are there."""
    with tempfile.TemporaryDirectory(prefix="console-paint-") as directory:
        async with _cluster(Path(directory)) as supervisor, page_of(chromium()) as page:
            began = time.monotonic()
            await _open(page, supervisor)
            print(f"all nodes are shown after {time.monotonic() - began:.2f} s: the worker started meanwhile")
            (first,) = await page.evaluate(_PAINTED)
    return _told("first paint", first, PAINTED_MS, "ms")


async def tables() -> bool:
    """Keys of a filter and jumps through a table, by the clock."""
    async with made_up_console(LARGE) as base, page_of(chromium(), viewport={"width": 1360, "height": 850}) as page:
        await page.goto(base)
        await page.wait_for_selector(".node.ok >> nth=59")
        (first,) = await page.evaluate(_PAINTED)
        await page.evaluate("location.hash = '#/logs'")
        await page.wait_for_selector("text=1,000 logs")
        met = _told("first paint with 60 nodes", first, PAINTED_MS, "ms")
        for what, script, given in (("a key in the filter", FILTERED, TYPED), ("a jump", SCROLLED, None)):
            taken = await page.evaluate(script, given)
            print(f"{what}: median {percentile(taken, 0.5):.0f} ms of {len(taken)}")
            met &= _told(f"{what}, at most", max(taken), ANSWERED_MS, "ms")
    return met


async def idle(seconds: float) -> bool:
    """Processor time of the node that serves a console at which nobody does anything, beside that of the same node without one."""
    with tempfile.TemporaryDirectory(prefix="console-idle-") as directory:
        async with _cluster(Path(directory)) as supervisor:
            await asyncio.sleep(_SETTLE)
            without = await _shares(supervisor, seconds)
            async with page_of(chromium()) as page:
                await _open(page, supervisor)
                await asyncio.sleep(_SETTLE)
                during = await _shares(supervisor, seconds)
    print("of a core, node by node, the worker with N0:", _percents(during), "; without a console:", _percents(without))
    others = max(b - a for a, b in zip(without[1:], during[1:], strict=True))
    met = _told("a console costs its node", 100 * (during[0] - without[0]), 100 * IDLE_MAX, "% of a core")
    return _told("and each other node", 100 * others, 100 * IDLE_MAX, "% of a core") and met


async def suite() -> bool:
    """All tests of the console."""
    files = sorted(str(path) for path in Path(__file__).parent.glob("test_console*.py"))
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", "not slow", *files]
    done = await asyncio.to_thread(subprocess.run, command, check=False)
    return _told("the suite", time.monotonic() - began, SUITE_MAX, "s") and done.returncode == 0


def _cluster(directory: Path) -> Any:
    return node_processes(directory, nodes=NODES, logs=20, replicate="node:2", settings=_SETTINGS)


async def _open(page: Any, supervisor: Supervisor) -> None:
    await page.goto(console_url(supervisor.config))
    await page.wait_for_selector(f".node.ok >> nth={NODES - 1}", timeout=_SHOWN_WITHIN_MS)


async def _shares(supervisor: Supervisor, seconds: float) -> list[float]:
    """Of a core, of each node with the processes that it started, for so many seconds."""
    before = [_spent(supervisor, node) for node in range(NODES)]
    await asyncio.sleep(seconds)
    return [(_spent(supervisor, node) - earlier) / seconds for node, earlier in enumerate(before)]


def _spent(supervisor: Supervisor, node: int) -> float:
    own = supervisor.children[NodeId(node)].process.pid
    costs = map(cost_of, (own, *_children(own)))
    return sum(cost.cpu_seconds for cost in costs if cost is not None)


def _children(process: int) -> list[int]:
    """Processes that another one started: by the parent that each names, which every kernel tells."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        if parent == process:
            found.append(int(path.parent.name))
    return found


def _percents(shares: Sequence[float]) -> str:
    return ", ".join(f"{share:.2%}" for share in shares)


def main() -> int:
    """The program; its exit status: 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.integration.console_figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    steps: dict[str, Callable[[], Coroutine[Any, Any, bool]]] = {
        "paint": paint,
        "tables": tables,
        "idle": lambda: idle(arguments.seconds),
        "suite": suite,
    }
    parser.add_argument("steps", nargs="*", choices=[*steps, []], default=[], metavar="STEP")
    parser.add_argument("--seconds", type=float, default=120, help="of each half of idle (default: 120)")
    arguments = parser.parse_args()
    print(load())
    met = [asyncio.run(steps[name]()) for name in arguments.steps or steps]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
