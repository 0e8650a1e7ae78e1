"""What becomes of the segments of streams: listed, copied, trimmed, restored."""
