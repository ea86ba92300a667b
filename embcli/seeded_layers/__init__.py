"""Seeded layers: torch draws them, the store keeps them, and both give the same bits."""
