"""What HTTP services of this project have in common: who may ask, bounded connections and requests, answers, the description, and metrics for Prometheus."""
