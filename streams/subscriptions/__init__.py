"""Subscriptions: how far readers of streams are, and groups of readers that share streams; a replicated state of its own."""
