"""Deterministic simulation: whole clusters in one process, under virtual time, from one seed."""
