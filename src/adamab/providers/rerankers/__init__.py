"""Rerankers behind an API: how well each of some documents answers a query."""
