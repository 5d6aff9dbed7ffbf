"""Suspects: what of a ledger fits each family of causes, what speaks against it, and the check that tells next."""

from .known import NEAR, BatchRow, Boundary, Found, Known, ProbeRow, SameBatch
from .one_element import Copies, OneElement
from .one_element import find as one_element
from .ranking import FAMILIES, Suspect, Suspects, rules, suspects
from .rules import EVIDENCE, WORDS, Line, Next

__all__ = [
    "EVIDENCE",
    "FAMILIES",
    "NEAR",
    "WORDS",
    "BatchRow",
    "Boundary",
    "Copies",
    "Found",
    "Known",
    "Line",
    "Next",
    "OneElement",
    "ProbeRow",
    "SameBatch",
    "Suspect",
    "Suspects",
    "one_element",
    "rules",
    "suspects",
]
