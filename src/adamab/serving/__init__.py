"""For other people: a server with a page, a report, exports."""
