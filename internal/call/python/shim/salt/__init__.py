"""What Brine gives the user's Python modules in the place of Salt's package."""
