"""Measures the memory of nodes under full write load, and what holds it."""
