"""Numba kernels: the only place that compiles code.

Every kernel is a top-level function (Numba's cache key ignores the jit options, so a factory would load the
wrong binary), releases the interpreter lock, and treats each row on its own, so that results do not depend on
the number of threads.
"""
