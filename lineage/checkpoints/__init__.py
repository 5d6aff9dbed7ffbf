"""Checkpoints at rest: what is in them, and what a faithful resume would miss.

Nothing here loads a tensor, imports a framework, or runs code from a file. Read with `look(path)`.
"""

from .contents import SEVERITIES, Contents, Finding, Part, Piece, Tensor
from .errors import CheckpointError
from .reading import lack_of, look

__all__ = [
    "SEVERITIES",
    "CheckpointError",
    "Contents",
    "Finding",
    "Part",
    "Piece",
    "Tensor",
    "lack_of",
    "look",
]
