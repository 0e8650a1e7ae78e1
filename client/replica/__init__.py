"""Replicas of the state that a log of commands amounts to."""
