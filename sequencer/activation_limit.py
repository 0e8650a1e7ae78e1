"""How often a log may take another epoch."""

from __future__ import annotations

from logdevice_py.core.units import Micros
from sequencer.settings import SequencerSettings


class ActivationLimit:
    """The activations of one log within an interval: those beyond the limit begin when it is over."""

    __slots__ = ("_activations", "_began")

    def __init__(self) -> None:
        self._began = 0
        self._activations = 0

    def next(self, settings: SequencerSettings, now: Micros) -> int:
        """When an activation that is wanted now may begin. It counts."""
        interval = settings.reactivation_limit_interval_us
        if now - self._began >= interval:
            self._began = now
            self._activations = 0
        self._activations += 1
        return now if self._activations <= settings.reactivation_limit else self._began + interval
