"""ADAMAB: few-shot classifiers on frozen embeddings."""
