"""What modules use of the master's code."""
