"""Finished results as tables, records and arrays."""
