"""Maintenances: whether they are safe, who sees to them, and rolling restarts."""
