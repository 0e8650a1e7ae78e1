"""Maintenances: what operators want to take away, as a replicated state that all who want to take something away see."""
