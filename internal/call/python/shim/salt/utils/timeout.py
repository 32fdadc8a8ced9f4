"""Waiting."""

import time


def wait_for(func, timeout=10, step=1, default=None, func_args=(), func_kwargs=None):
    """Call a function until its result is true, and return that."""
    end = time.time() + timeout
    while True:
        result = func(*func_args, **(func_kwargs or {}))
        left = end - time.time()
        if result or left <= 0:
            return result if result else default
        time.sleep(min(step, left))
