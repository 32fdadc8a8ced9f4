"""Executors of Salt."""
