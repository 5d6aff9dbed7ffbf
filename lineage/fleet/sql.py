"""The queries, in DuckDB's SQL. `lake.py` has the same ones as Ibis expressions.

Each gives, from all rows, those that the detectors must see. What they leave out, no detector flags: docs/fleet.md has
the argument, and a test compares both ways on ledgers drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable

from ..judge.cells_tensors import EACH, WHOLE
from ..judge.detectors import RULES, Rule

SLACK = 1e-9
"""Logarithms of two libraries differ in their last bit: a bound is lowered by this."""
STREAM = "segment, rank, writer, signal"
"""What one detector sees: the values of one signal, as one process wrote them."""
PROBES = ("segment", "rank", "step", "signal", "value", "at")
TENSORS = (
    "segment", "rank", "step", "kind", "tensor", "order", "elements", "sumsq", "largest",
    "n_nan", "n_posinf", "n_neginf", "scale",
)  # fmt: skip
RANK = "segment, rank"


def _in_nats(column: str = "value") -> str:
    """A signal as its rule sees it: the logarithm for norms, else as it is; null for what the rule passes over."""
    cases = " ".join(
        f"WHEN '{signal}' THEN CASE WHEN {column} > 0 THEN ln({column}) END" if rule.log
        else f"WHEN '{signal}' THEN {column}"
        for signal, rule in RULES.items()
    )  # fmt: skip
    return f"CASE WHEN isfinite({column}) THEN CASE signal {cases} END END"


def _bound(rule: Rule, centre: str) -> str:
    """The lowest value that a rule can flag beside a centre: its scale can only raise this."""
    return f"{centre} + greatest({rule.relative!r} * abs({centre}), {rule.absolute!r})"


def _bounds(centre: str) -> str:
    cases = " ".join(f"WHEN '{signal}' THEN {_bound(rule, centre)}" for signal, rule in RULES.items())
    return f"CASE signal {cases} END - {SLACK}"


def judged() -> str:
    """The signals that have a rule, as a list of SQL."""
    return ", ".join(f"'{signal}'" for signal in RULES)


def streams(query: Callable[[str], str], *, joined: bool) -> Callable[[str], str]:
    """A query over the streams that detectors see: those of a rank in the relation `joined`, if any, are one each."""
    if not joined:
        return query

    def asked(relation: str) -> str:
        return query(f"""(
            SELECT r.* REPLACE (CASE WHEN j.one THEN '' ELSE r.writer END AS writer)
            FROM {relation} AS r LEFT JOIN (SELECT {RANK}, true AS one FROM joined) AS j USING ({RANK})
        )""")

    return asked


def odd_values(relation: str) -> str:
    """Streams with a value that may be the first to be flagged, and the place of that value among those judged.

    Until a detector flags something, every judged value enters its baseline, so the centre is the median of the last
    `centre` of them. A value that is flagged lies above it by the rule's least jump.
    """
    centres = {rule.centre for rule in RULES.values()}
    warmups = {rule.warmup for rule in RULES.values()}
    assert len(centres) == len(warmups) == 1, "one window fits all rules"
    (centre,), (warmup,) = centres, warmups
    return f"""
        WITH judged AS (
            SELECT {STREAM}, step, place, {_in_nats()} AS x FROM {relation} WHERE signal IN ({judged()})
        ), placed AS (
            SELECT {STREAM}, step, x,
                row_number() OVER stream AS nth,
                median(x) OVER (stream ROWS BETWEEN {centre} PRECEDING AND 1 PRECEDING) AS centre
            FROM judged WHERE x IS NOT NULL
            WINDOW stream AS (PARTITION BY {STREAM} ORDER BY step, place)
        )
        SELECT {STREAM}, min(nth) AS nth, min(step) AS step FROM placed
        WHERE nth > {warmup} AND x > {_bounds("centre")}
        GROUP BY {STREAM}
    """


def broken_signatures(relation: str) -> str:
    """Of each step with judged values that are not finite which ones these are, as one number, and how many.

    Ranks with a loss scale are left out: a detector tells which of theirs its search explains.
    """
    return f"""
        SELECT segment, step, bit_xor(hash(rank, writer, signal)) AS which, count(*) AS n FROM {relation}
        ANTI JOIN scaled USING ({RANK})
        WHERE signal IN ({judged()}) AND NOT isfinite(value) GROUP BY segment, step
    """


def broken_values(relation: str) -> str:
    """The judged values that are not finite: all of the ranks with a loss scale, of others those of the kept steps.

    Of a step in the relation `kept` that is not kept whole, one value.
    """
    return f"""
        SELECT {STREAM}, step, place, value FROM (
            SELECT {STREAM}, step, place, value FROM {relation}
            WHERE signal IN ({judged()}) AND NOT isfinite(value)
        ) LEFT JOIN kept USING (segment, step) LEFT JOIN (SELECT {RANK}, true AS is_scaled FROM scaled) USING ({RANK})
        QUALIFY is_scaled OR whole OR (
            NOT whole AND row_number() OVER (PARTITION BY segment, step ORDER BY rank, signal, place) = 1
        )
    """


def signals(relation: str) -> str:
    """The signals that each process has."""
    return f"SELECT DISTINCT {STREAM} FROM {relation}"


def spans(relation: str) -> str:
    """Of each process the first and the last step with a value, and how many steps there are."""
    return f"""
        SELECT {RANK}, writer, min(step) AS first, max(step) AS last, count(DISTINCT step) AS steps
        FROM {relation} GROUP BY {RANK}, writer
    """


def steps(relation: str) -> str:
    """The steps of each segment."""
    return f"SELECT DISTINCT segment, step FROM {relation}"


def steps_of(relation: str) -> str:
    """The steps of the ranks in the relation `chosen`."""
    return f"SELECT DISTINCT {RANK}, step FROM {relation} SEMI JOIN chosen USING ({RANK})"


def times(relation: str) -> str:
    """When each rank wrote the steps in the relation `chosen`: microseconds since 1970."""
    return f"""
        SELECT {RANK}, step, epoch_us(min("at")) AS at
        FROM {relation} SEMI JOIN chosen USING (segment, step) WHERE "at" IS NOT NULL GROUP BY {RANK}, step
    """


def of_step(relation: str, segment: str, step: int, signal: str) -> str:
    """The values of one signal at one step, over the ranks."""
    return f"""
        SELECT rank, value FROM {relation}
        WHERE step = {int(step)} AND segment = {text(segment)} AND signal = {text(signal)} AND value IS NOT NULL
        ORDER BY writer, place
    """


def text(value: str) -> str:
    """A string as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


KEPT = 16 + max(rule.window + rule.centre + rule.warmup for rule in RULES.values())
"""Judged values of a stream before the first that may be flagged: a detector that begins with them arrives there in
the state that it would have after all values."""


def values_from(relation: str) -> str:
    """The finite values of the streams in the relation `chosen`, from `KEPT` judged ones before its `nth` on."""
    return f"""
        WITH counted AS (
            SELECT {STREAM}, step, place, value, chosen.nth AS first,
                count({_in_nats()}) OVER (PARTITION BY {STREAM} ORDER BY step, place) AS nth
            FROM {relation} JOIN (SELECT {STREAM}, nth FROM chosen) AS chosen USING ({STREAM})
        )
        SELECT {STREAM}, step, place, value FROM counted WHERE nth > first - {KEPT} AND isfinite(value)
    """


BROKEN = "(n_nan > 0 OR n_posinf > 0 OR n_neginf > 0)"
"""A tensor with an element that is not finite, by its counts: engines differ on NaN, not on these."""
TENSOR = f"{RANK}, writer, kind"


def _broken_rows(relation: str) -> str:
    """The rows that are not finite, but for gradients at the steps in the relation `searches`."""
    return f"""
        SELECT * FROM (
            SELECT * FROM {relation} WHERE n_nan > 0
            UNION ALL SELECT * FROM {relation} WHERE n_posinf > 0 AND coalesce(n_nan, 0) = 0
            UNION ALL SELECT * FROM {relation}
            WHERE n_neginf > 0 AND coalesce(n_nan, 0) = 0 AND coalesce(n_posinf, 0) = 0
        ) ANTI JOIN (SELECT {RANK}, step, 'gradient' AS kind FROM searches) AS s USING ({RANK}, step, kind)
    """  # one count each, so that a file whose statistics say that it has none is not read


def tensor_signatures(relation: str) -> str:
    """Of each step with tensors that are not finite which ones these are, as one number, and how many."""
    return f"""
        SELECT segment, step, bit_xor(hash(rank, writer, kind, tensor)) AS which, count(*) AS n
        FROM ({_broken_rows(relation)}) GROUP BY segment, step
    """


def broken_tensors(relation: str) -> str:
    """Rows of tensors that are not finite, of the kept steps.

    Of each rank as many as it is told of: `EACH` of a kind and step, and from its ninth bad step on one.
    """
    rows = _broken_rows(relation)
    return thinned_tensors(f"""(
        WITH bad AS (
            SELECT {TENSOR}, step, row_number() OVER (PARTITION BY {TENSOR} ORDER BY step) AS nth_step
            FROM (SELECT DISTINCT {TENSOR}, step FROM ({rows}))
        ), blocks AS (
            SELECT {TENSOR}, tensor, min(place) AS block FROM {relation} WHERE kind = 'activation'
            GROUP BY {TENSOR}, tensor
        ), placed AS (
            SELECT *, coalesce("order", block) AS executed FROM ({rows}) SEMI JOIN kept USING (segment, step)
            LEFT JOIN blocks USING ({TENSOR}, tensor) JOIN bad USING ({TENSOR}, step)
        )
        SELECT * EXCLUDE (nth_step) FROM placed
        QUALIFY row_number() OVER (PARTITION BY {TENSOR}, step ORDER BY executed NULLS LAST, place)
            <= CASE WHEN nth_step <= {WHOLE} THEN {EACH} ELSE 1 END
    )""")


def thinned_tensors(relation: str) -> str:
    """Of a segment's first step with a tensor that is not finite all rows.

    Of further steps that are kept whole the first row of each rank and kind, and each tensor once: what lines of later
    symptoms are made of. Of others one row.
    """
    return f"""
        SELECT * EXCLUDE (whole) FROM {relation} JOIN kept USING (segment, step) QUALIFY
            dense_rank() OVER (PARTITION BY segment ORDER BY step) = 1
            OR (whole AND (
                row_number() OVER (PARTITION BY segment, step, kind, rank ORDER BY executed NULLS LAST, place) = 1
                OR row_number() OVER (PARTITION BY segment, step, kind, tensor ORDER BY rank, writer) = 1
            ))
            OR row_number() OVER (PARTITION BY segment, step ORDER BY kind, executed NULLS LAST, rank) = 1
    """


def read_finite(relation: str) -> str:
    """The steps at which the tensors in the relation `chosen` were read and were finite."""
    return f"""
        SELECT {TENSOR}, tensor, step FROM {relation} SEMI JOIN chosen USING ({TENSOR}, tensor) WHERE NOT {BROKEN}
    """


def blocks(relation: str) -> str:
    """The place of each block's outputs among those of the ranks in the relation `chosen`."""
    return f"""
        SELECT {RANK}, writer, tensor FROM {relation} SEMI JOIN chosen USING ({RANK}, writer)
        WHERE kind = 'activation' GROUP BY {RANK}, writer, tensor ORDER BY {RANK}, writer, min(place)
    """
