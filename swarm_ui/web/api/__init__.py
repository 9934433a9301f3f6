"""What can be asked of the dashboard over HTTP; each module has a table of its endpoints."""
