"""The tmux edge: one server on a socket of our own; importing this package imports nothing."""
