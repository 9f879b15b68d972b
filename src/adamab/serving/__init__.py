"""For other people: a server with a page, and a report."""
