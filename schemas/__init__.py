"""What is recorded: every record as a versioned pydantic model, and the reading of them.

Needs pydantic and nothing else. `read_line` reads a journal line; `lineage.open_ledger` reads a whole one.
"""

from ._base import (
    MASKED,
    NON_FINITE,
    Code,
    Digest,
    Float,
    Model,
    Scalar,
    Time,
    Uid,
    float_to_json,
    now,
)
from ._build import DISTRIBUTION, VERSION
from .catalogue import CLAIMS, Catalogue, Claim, Concept, catalogue
from .checkpoints import (
    COMPONENTS,
    Checkpoint,
    CheckpointMark,
    ComponentDigest,
    ComponentRestore,
    Evaluation,
    FileEntry,
    Incident,
    Manifest,
    Preserved,
    Restore,
)
from .codes import CODES, page
from .envelope import PAYLOAD_ADAPTER, PAYLOADS, RECORD_SCHEMA, Envelope, Payload
from .judgements import (
    STATUS_ORDER,
    Alarm,
    Cell,
    ChainLink,
    Change,
    ClaimVerdict,
    ConceptClass,
    Drift,
    FirstBad,
    Mitigation,
    MitigationEffect,
    Regime,
    Status,
    Verdict,
)
from .reading import Opaque, Record, RecordError, open_class, read_line, read_payload
from .runs import (
    Anchor,
    Coverage,
    Degraded,
    Head,
    JournalHeader,
    Place,
    Run,
    Seal,
    Segment,
    SegmentEnd,
    TrackerAlias,
    TrackerNote,
)
from .sidecar import SIDECAR_SCHEMA, Sidecar
from .snapshots import (
    CodeState,
    Config,
    Device,
    Effective,
    EffectiveValue,
    Environment,
    Moment,
    Snapshot,
    UntrackedFile,
)

__version__ = VERSION

__all__ = [name for name in dir() if not name.startswith("_")]
