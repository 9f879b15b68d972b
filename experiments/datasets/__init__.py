"""The data sets of the experiments, and draws of tasks from them."""
