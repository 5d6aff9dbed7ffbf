"""Reading what machines and monitors say of errors around the run: kernel logs, nvidia-smi, DCGM, NCCL, Slurm, tables.

`read` turns a file into drafts, and tells its format by its content; `into_ledger` writes them beside a run.
"""

from .into_ledger import Done, Told, into_ledger
from .read import FORMATS, read

__all__ = ["FORMATS", "Done", "Told", "into_ledger", "read"]
