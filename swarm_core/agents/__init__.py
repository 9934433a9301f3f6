"""The agent programs, one module each: how to start and resume them and what their state means."""
