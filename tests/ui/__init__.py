"""The dashboard in a real browser. A package, so that its browser ends when the last of its tests does."""
