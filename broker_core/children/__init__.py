"""Child processes that run this package. `frames` are the messages between a broker and its child; `interpreter` and
`priority` concern the environment and the share of the processors."""

from .interpreter import environment
from .priority import OWN_GROUP, step_back

__all__ = ["OWN_GROUP", "environment", "step_back"]
