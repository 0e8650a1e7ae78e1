"""Whose handshake goes on next."""

from __future__ import annotations

from logdevice_py.runtime.handshakes import HandshakeQueue


def taken(queue: HandshakeQueue[str]) -> list[str]:
    found = []
    while (each := queue.next()) is not None:
        found.append(each)
    return found


def test_those_with_an_answer_go_first_then_who_came_last() -> None:
    queue: HandshakeQueue[str] = HandshakeQueue()
    for name in ("a", "b", "c"):
        queue.join(name, answered=False)
    for name in ("d", "e"):
        queue.join(name, answered=True)
    assert len(queue) == 5
    assert taken(queue) == ["d", "e", "c", "b", "a"]
    assert len(queue) == 0


def test_who_sends_more_keeps_its_place_and_who_is_gone_is_passed_over() -> None:
    queue: HandshakeQueue[str] = HandshakeQueue()
    for name in ("a", "b", "c", "a"):
        queue.join(name, answered=False)
    for name in ("d", "e"):
        queue.join(name, answered=True)
    for name in ("c", "d", "nobody"):
        queue.leave(name)
    assert taken(queue) == ["e", "b", "a"]
