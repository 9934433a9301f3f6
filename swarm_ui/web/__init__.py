"""The dashboard: a process that shows what the database says, in a browser."""
