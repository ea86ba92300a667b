"""Seeded layers: drawn by torch, kept in files, and where the two meet."""
