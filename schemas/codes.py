"""Stable codes of findings and errors. Each has a page: docs/codes.md#lin-..."""

from __future__ import annotations

DOCS = "https://runlineage.dev/codes#"

CODES: dict[str, str] = {
    # J: the journal and the ledger
    "LIN-J001": "torn last line",
    "LIN-J002": "line is not JSON",
    "LIN-J003": "chain broken: the line before is not the one that was written",
    "LIN-J004": "sequence number is not the next one",
    "LIN-J005": "unknown schema version",
    "LIN-J006": "line does not fit its schema",
    "LIN-J007": "a file that a later header or seal names is gone or shorter",
    "LIN-J008": "a blob or an evidence file differs from its digest",
    "LIN-J009": "the ledger does not match its anchor in the tracker",
    "LIN-J010": "series file is damaged",
    "LIN-J011": "two writers for one rank at one time",
    "LIN-J012": "the ledger folder could not be written",
    "LIN-J013": "ranks do not see the same ledger folder",
    # L: the layer itself
    "LIN-L001": "a part of the layer failed and is switched off",
    "LIN-L002": "the tracker could not be reached or refused a call",
    "LIN-L003": "attached too late",
    "LIN-L004": "a value could not be read",
    "LIN-L005": "runlineage is damaged or mixed with another distribution",
    # C: checkpoints and resumes
    "LIN-C001": "checkpoint folder without a sidecar",
    "LIN-C002": "a component was not restored",
    "LIN-C003": "a component was restored to something else",
    "LIN-C004": "a component cannot be compared: nothing was recorded at the save",
    "LIN-C005": "checkpoint is incomplete or its files changed",
    "LIN-C006": "resumed from a quarantined checkpoint",
    "LIN-C007": "no checkpoint is known for this resume",
    # K: checkpoints at rest, and what a resume from their files would miss
    "LIN-K001": "a file of the checkpoint is missing",
    "LIN-K002": "a file of the checkpoint is cut off or damaged",
    "LIN-K003": "tensors that are listed are not stored",
    "LIN-K004": "weights are missing, or there is nothing but weights",
    "LIN-K005": "the optimizer's state is missing, empty or without its counter",
    "LIN-K006": "the scheduler's state is missing",
    "LIN-K007": "the gradient scaler's state is missing",
    "LIN-K008": "random states are missing, for all or for some ranks",
    "LIN-K009": "the loader's position is missing",
    "LIN-K010": "the save was not finished",
    "LIN-K011": "the pointer to the latest checkpoint leads nowhere",
    "LIN-K012": "files of two saves are mixed",
    "LIN-K013": "a pickle names code that no checkpoint needs",
    "LIN-K014": "a path, a link or an entry was refused",
    "LIN-K015": "a file cannot be read",
    "LIN-K016": "no known format",
    "LIN-K017": "another number of ranks saved it",
    "LIN-K018": "no file says which step it is of",
    # D: drift
    "LIN-D001": "declared change",
    "LIN-D002": "undeclared change",
    "LIN-D003": "a declared mitigation is not in effect",
    "LIN-D004": "several changes at one restart: confounded",
    "LIN-D005": "requested and effective differ",
    "LIN-D006": "an unclassified key changed",
    "LIN-D007": "evidence is missing",
    "LIN-D008": "config changed on resume and the tracker cannot show it by itself",
    "LIN-D009": "two states of one step hold other weights",
    # A: alarms
    "LIN-A001": "non-finite loss",
    "LIN-A002": "non-finite gradient",
    "LIN-A003": "loss out of its range",
    "LIN-A004": "gradient norm out of its range",
    "LIN-A005": "slow rise of the loss or of a gradient norm",
    "LIN-A006": "a new level is taken as the baseline",
    "LIN-A007": "replicas disagree",
    # P: probes, and what they show of gradients and of the optimizer
    "LIN-P001": "the optimizer does not hold a trainable parameter",
    "LIN-P002": "the optimizer holds a tensor that is no part of the model",
    "LIN-P003": "the optimizer holds a parameter twice",
    "LIN-P004": "the optimizer holds a frozen parameter",
    "LIN-P005": "weight decay on norms and biases",
    "LIN-P006": "a second moment is below zero",
    "LIN-P007": "weights or moments are not finite",
    "LIN-P008": "nearly every step is clipped",
    "LIN-P009": "a trainable parameter had no gradient",
    # B: batches, and the samples in them
    "LIN-B001": "a sample stands more than once in one batch",
    "LIN-B002": "samples were read before",
    "LIN-B003": "ranks have samples in common",
    "LIN-B004": "ranks read one shard",
    "LIN-B005": "the mixture of domains is not the declared one",
    "LIN-B006": "a domain that the declared mixture does not have",
    "LIN-B007": "token ids out of range",
    # R: ranks beside each other
    "LIN-R001": "a rank holds other bits than the ranks that must hold the same",
    "LIN-R002": "ranks that must hold the same differ, without a majority",
    "LIN-R003": "a value that all ranks must have alike differs between them",
    "LIN-R004": "a rank is slower than the others",
    "LIN-R005": "ranks started from different states",
    "LIN-R006": "a rank has the random numbers of another",
    "LIN-R007": "ranks read each other's data",
    # E: events of machines, links and software beside the run
    "LIN-E001": "an event is in no segment of the run",
    "LIN-E002": "the times of a source are not known for sure",
    "LIN-E003": "all times of a source lie outside the run: its clock may be off",
    "LIN-E004": "a source of events cannot be read",
    "LIN-E005": "a pickle that asks for more than plain data was refused",
    "LIN-E006": "a source of events is partial, or of an unknown version",
    # S: series of losses and norms, as they were logged
    "LIN-S001": "a logged series is dead",
    "LIN-S002": "a logged series repeats its last value",
    "LIN-S003": "a logged series is too coarse",
    "LIN-S004": "rows are missing from a logged series",
    "LIN-S005": "a series stopped arriving",
    "LIN-S006": "a non-finite value is hidden in a logged series",
    "LIN-S007": "a logged series is of another scope than its name says",
    "LIN-S008": "a logged series has a definition of its own",
    "LIN-S009": "a switch keeps non-finite values out of the log",
    "LIN-S010": "a log's counter of skipped steps denies its own lines",
    "LIN-S011": "a rate in a log is in another unit than its name says",
    "LIN-S012": "consumed samples do not follow from steps and batch size",
    "LIN-S013": "the learning rate jumps in a log",
    # T: trackers
    "LIN-T001": "the tracker's step went backwards after a rollback",
    "LIN-T002": "a value was cut or refused by the tracker's limits",
    "LIN-T003": "a non-finite value that the tracker's page hides or alters",
    # O: the observer
    "LIN-O001": "a process was not reached by the observer",
    "LIN-O002": "tags that the training code set in the tracker",
}


def page(code: str) -> str:
    """Return the address of a code's page."""
    return DOCS + code.lower()
