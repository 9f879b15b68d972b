"""The mathematics, on arrays only: no text, no files, no network."""
