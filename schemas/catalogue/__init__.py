"""The concept catalogue and the validity policy: data, and the functions that read them.

A concept is a training condition under its canonical name, whatever a framework calls its key. The policy
says, for each concept and claim, what a change does to the claim, with a reason one can read aloud.
"""

from .document import described, markdown
from .human import Part, number_of
from .load import CatalogueError, build, catalogue, extended, install, shipped
from .lookup import Catalogue, Meaning, plain_key, plain_word
from .model import (
    UNCLASSIFIED,
    Claim,
    Concept,
    Condition,
    Effects,
    Framework,
    Key,
    Override,
    Pattern,
    Versions,
    version_of,
)

CLAIMS: tuple[str, ...] = (
    "loss_curve",
    "scaling_law",
    "ablation",
    "evaluation",
    "data_exposure",
    "bitwise",
    "throughput",
)
"""The ids of the shipped claims, in the order in which they are shown."""

__all__ = [
    "CLAIMS",
    "UNCLASSIFIED",
    "Catalogue",
    "CatalogueError",
    "Claim",
    "Concept",
    "Condition",
    "Effects",
    "Framework",
    "Key",
    "Meaning",
    "Override",
    "Part",
    "Pattern",
    "Versions",
    "build",
    "catalogue",
    "described",
    "extended",
    "install",
    "markdown",
    "number_of",
    "plain_key",
    "plain_word",
    "shipped",
    "version_of",
]
