"""A deliberate fault of the registry of requests: answers go to somebody who did not ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdevice_py.protocol.requests import Requests
from tests.simulation.deliberate_fault import deliberate

Change = Callable[..., Any]


@deliberate(
    "an answer goes to the latest request of its kind to the shard or node, whatever its id", (Requests, "on_answer")
)
def answers_to_earlier_requests_taken(original: Change) -> Change:
    def on_answer(self: Requests, peer: Any, answer: Any, now: Any) -> None:
        asked = (peer, type(answer), getattr(answer, "shard", None))
        latest = [key for key, each in self._open.items() if (each.peer, each.kind, each.shard) == asked]
        if latest:
            answer.request_id = latest[-1]
        original(self, peer, answer, now)

    return on_answer
