"""Chat models and rerankers, for `adamab compare`."""
