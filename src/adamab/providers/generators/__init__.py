"""Generators: a class in, new samples out."""
