"""Decorators of states."""


class OutputUnifier:
    """Leaves a state function as it is: Brine checks what states return."""

    def __init__(self, *policies):
        self.policies = policies

    def __call__(self, function):
        return function
