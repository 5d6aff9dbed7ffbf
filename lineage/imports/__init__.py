"""Reading what a run without the layer left behind: logbooks, launch-script histories and configs.

`read` turns a file into reported entries, run by run; `into_ledger` writes them, judged, into a ledger.
"""

from .configs import read_configs
from .entries import Book, ImportTrouble
from .into_ledger import Judged, into_ledger, judge
from .read import FORMATS, read

__all__ = ["FORMATS", "Book", "ImportTrouble", "Judged", "into_ledger", "judge", "read", "read_configs"]
