"""Is it any good: baselines, data sets, and the studies that compare them."""
