"""How good predictions are, and whether their probabilities can be relied on."""
