"""Measures logdevice_py side by side with other log systems: ``ldbench``."""
