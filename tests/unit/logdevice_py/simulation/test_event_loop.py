import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from logdevice_py.simulation.event_loop import SimEventLoop, VirtualTimeExceeded
from logdevice_py.simulation.scheduler import Scheduler


def run(coroutine: Coroutine[Any, Any, Any], scheduler: Scheduler | None = None, limit: int = 10**12) -> Any:
    with asyncio.Runner(loop_factory=lambda: SimEventLoop(scheduler or Scheduler(), limit=limit)) as runner:
        return runner.run(coroutine)


class TestTime:
    def test_sleeping_an_hour_takes_no_time(self) -> None:
        async def application() -> float:
            await asyncio.sleep(3600)
            return asyncio.get_running_loop().time()

        began = time.monotonic()
        assert run(application()) == pytest.approx(3600, abs=0.001)
        assert time.monotonic() - began < 10

    def test_sleepers_wake_in_the_order_of_their_deadlines(self) -> None:
        woken: list[int] = []

        async def sleeper(milliseconds: int) -> None:
            await asyncio.sleep(milliseconds / 1000)
            woken.append(milliseconds)

        async def application() -> None:
            await asyncio.gather(*(sleeper(each) for each in (30, 10, 20)))

        run(application())
        assert woken == [10, 20, 30]

    def test_a_loop_that_never_rests_does_not_stop_the_clock(self) -> None:
        async def application() -> int:
            loop = asyncio.get_running_loop()
            until, rounds = loop.time() + 0.001, 0
            while loop.time() < until:
                await asyncio.sleep(0)
                rounds += 1
            return rounds

        assert 0 < run(application()) <= 1001

    def test_an_application_that_spins_comes_to_the_limit(self) -> None:
        async def application() -> None:
            while True:  # noqa: ASYNC110 - it is the spinning that matters
                await asyncio.sleep(0)

        with pytest.raises(VirtualTimeExceeded, match="60 s"):
            run(application(), limit=60_000_000)

    def test_timeouts_fire(self) -> None:
        async def application() -> None:
            async with asyncio.timeout(5):
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            run(application())

    def test_an_application_that_waits_for_ever_ends_at_the_limit(self) -> None:
        async def application() -> None:
            await asyncio.Event().wait()

        with pytest.raises(VirtualTimeExceeded, match="100 s"):
            run(application(), limit=100_000_000)


class TestMachines:
    def test_what_a_machine_completes_wakes_the_application_at_that_time(self) -> None:
        scheduler = Scheduler()

        async def application() -> tuple[str, int]:
            future = asyncio.get_running_loop().create_future()
            scheduler.after(7_000_000, lambda: future.set_result("done"))
            scheduler.after(9_000_000, lambda: pytest.fail("the clock ran on although the application had work"))
            return await future, scheduler.now

        assert run(application(), scheduler) == ("done", 7_000_001)  # the iteration that it was woken in


class TestOutside:
    def test_a_thread_is_a_call(self) -> None:
        async def application() -> list[int]:
            assert await asyncio.to_thread(lambda: 5) == 5
            with pytest.raises(ZeroDivisionError):
                await asyncio.to_thread(lambda: 1 // 0)
            return [1]

        assert run(application()) == [1]

    def test_there_are_no_connections(self) -> None:
        async def application() -> None:
            await asyncio.open_connection("localhost", 1)

        with pytest.raises(RuntimeError, match="not simulated"):
            run(application())
