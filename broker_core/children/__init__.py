"""Child processes in which Python runs this package: the broker of a program, and the broker's own.

interpreter   the environment in which they find the package
priority      their share of the processors; Ctrl-C
frames        what a broker and a child of its own say to each other
"""

from .interpreter import environment
from .priority import OWN_GROUP, step_back

__all__ = ["OWN_GROUP", "environment", "step_back"]
