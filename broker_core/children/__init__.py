"""Child processes in which Python runs this package: the broker of a program, and the broker's own.

interpreter   the environment in which they find the package
frames        what a broker and a child of its own say to each other
"""

from .interpreter import environment

__all__ = ["environment"]
