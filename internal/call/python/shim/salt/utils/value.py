"""Values."""


def xor(*variables):
    """Report whether an odd number of values is true."""
    return sum(1 for v in variables if v) % 2 == 1


class Void:
    """Stands for no value, where None is one."""
