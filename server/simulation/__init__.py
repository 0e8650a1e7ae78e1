"""Whole clusters on simulated machines: the production roots of nodes and clients under virtual time, and what goes wrong there."""
