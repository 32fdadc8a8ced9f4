"""Decorators that register filters; Brine's templates have their own."""


def _register(name=None):
    return lambda function: function


jinja_filter = jinja_test = jinja_global = JinjaFilter = JinjaTest = JinjaGlobal = _register
