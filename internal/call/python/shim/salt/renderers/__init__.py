"""Renderers that modules call."""
