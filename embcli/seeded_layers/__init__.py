"""Seeded layers: drawn by torch, kept in files, opened from either."""
