"""What nodes and clients say to each other: messages declared once, their encoding, and frames."""
