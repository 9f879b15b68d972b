"""Executes what the documentation shows: every command, every snippet, and the output beside them."""
