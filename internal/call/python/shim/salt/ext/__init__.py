"""Libraries that Salt brings along."""
