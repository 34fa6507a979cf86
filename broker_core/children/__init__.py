"""Child processes that run this package: a broker started by a program, and the processes of a broker.

- interpreter: the environment in which a child finds the package.
- priority: a child's share of the processors, and Ctrl-C.
- frames: messages between a broker and its child.
"""

from .interpreter import environment
from .priority import OWN_GROUP, step_back

__all__ = ["OWN_GROUP", "environment", "step_back"]
