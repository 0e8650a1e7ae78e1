"""Serving copies of entries: read streams, look-ups, and RELEASE, which says what readers may see."""
