"""Embedders: texts in, vectors out."""
