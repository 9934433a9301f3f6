"""What people and agents ask for, as operations that survive a crash at any step."""
