"""The built-in task and its story: `adamab demo`."""
