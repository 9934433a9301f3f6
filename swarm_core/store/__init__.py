"""Everything that is remembered, in one SQLite file; every SQL statement of the project is in here."""
