"""``ldctl``: a verb for each thing that an operator asks a log or does to it."""
