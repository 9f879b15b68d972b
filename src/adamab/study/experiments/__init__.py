"""Experiments as data, one YAML file each, and the one runner that does what they say."""
