"""A fit as it happens: where the method meets the providers."""
