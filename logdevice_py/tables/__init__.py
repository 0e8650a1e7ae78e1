"""The debug tables: rows, columns and their meaning, declared once. Services fill rows, servers serve them, ldquery reads them."""
