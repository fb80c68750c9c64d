"""Families of operation kinds; see `ir/dialect.py` for the list."""
