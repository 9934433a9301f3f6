"""Operations on instances: worktrees, sessions, forges and the record of them all."""

__version__ = "0.1.0"
