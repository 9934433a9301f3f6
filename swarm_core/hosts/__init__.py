"""Machines that hold worktrees, sessions and agent files; `ops` reach them only through the Host protocol."""
