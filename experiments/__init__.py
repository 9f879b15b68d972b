"""The laboratory: data sets, experiments and studies whose pages are in results/. It is not installed."""
