"""The scripted agent's program: the standard library alone, and of that only what starts fast."""
