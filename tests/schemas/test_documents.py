"""Documents about records say what the code does."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path

import schemas
from lineage.ledger import tables
from lineage.ledger.files import root_of as manifest_root
from lineage.ledger.seal import root_of as seal_root

from . import format_examples, make_golden

DOCS = Path(__file__).parents[2] / "docs"
FORMAT = (DOCS / "format.md").read_text()


def test_the_byte_examples_of_the_format_page_are_golden_lines() -> None:
    found = format_examples.blocks()
    assert len(found) == FORMAT.count("<!-- golden:") == 6
    for what, kind, text in found:
        assert text == format_examples.example(what, kind), f"{what} {kind}: run `make golden`"


def test_the_chain_of_the_page_is_the_chain_of_the_lines() -> None:
    texts = {(what, kind): text for what, kind, text in format_examples.blocks()}
    digest = hashlib.sha256(texts["line", "journal_header"].encode()).hexdigest()
    assert json.loads(texts["digest", "journal_header"]) == f"sha256:{digest}"
    assert json.loads(texts["line", "run"])["prev"] == f"sha256:{digest}"


def test_the_roots_are_made_as_the_page_says() -> None:
    payloads = [schemas.read_line(raw).payload for raw in make_golden.journal().splitlines()]
    seal = next(p for p in payloads if p.kind == "seal")
    lines = sorted(f"{h.file} {h.seq} {h.digest}\n" for h in seal.heads)
    by_hand = hashlib.sha256(("lineage-seal-v1\n" + "".join(lines)).encode()).hexdigest()
    assert seal.root == seal_root(seal.heads) == f"sha256:{by_hand}"
    manifest = [p for p in payloads if p.kind == "checkpoint"][-1].manifest
    lines = sorted(f"{f.path} {f.size} {f.digest}\n" for f in manifest.files)
    by_hand = hashlib.sha256(("lineage-manifest-v1\n" + "".join(lines)).encode()).hexdigest()
    assert manifest.root == manifest_root(manifest.files) == f"sha256:{by_hand}"


def test_the_page_lists_every_field_of_the_envelope_and_every_column_of_the_series() -> None:
    envelope = FORMAT.partition("### The envelope")[2].partition("###")[0]
    fields = [f.alias or name for name, f in schemas.Envelope.model_fields.items()]
    assert re.findall(r"^\| `(\w+)` \|", envelope, re.M) == fields
    for table, schema in tables.TABLES.items():
        (columns,) = re.findall(rf"^\| `{table}` \| [^|]* \| (.*) \|$", FORMAT, re.M)
        assert columns.split(", ") == schema.names


def test_every_code_has_a_page_with_all_its_parts_and_the_document_is_made_of_them() -> None:
    pages = schemas.all_explained()
    assert [p.code for p in pages] == list(schemas.CODES)
    data = tomllib.loads((DOCS.parent / "schemas" / "code_pages.toml").read_text())
    assert list(data["code"]) == list(schemas.CODES), "one entry per code, in the order of schemas/codes.py"
    words = list(schemas.severity_words())
    for p in pages:
        assert p.severity, p.code
        assert list(p.severity) == [w for w in words if w in p.severity], f"{p.code}: the gravest first"
        assert all((p.found, p.matters, p.next, p.shown_by)), p.code
        assert schemas.page(p.code).endswith(f"/codes/{p.code.lower()}.html")
    wanted = schemas.codes_page()
    assert (DOCS / "codes.md").read_text() == wanted, "run `lineage explain --write docs/codes.md`"


def test_links_within_the_documents_lead_somewhere() -> None:
    root = DOCS.parent
    for page in [*DOCS.rglob("*.md"), *root.glob("*.md")]:
        text = page.read_text()
        anchors = {
            re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
            for h in re.findall(r"^#+ (.*)", text, re.M)
        } | set(re.findall(r'<a id="([^"]+)">', text))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if target.startswith("#"):
                assert target[1:] in anchors, f"{page}: {target}"
            elif "://" not in target:
                assert (page.parent / target.partition("#")[0]).exists(), f"{page}: {target}"


def test_the_glossary_has_the_components_verdicts_and_signals_of_the_code() -> None:
    text = (DOCS / "glossary.md").read_text()
    for word in (*schemas.COMPONENTS, *schemas.STATUS_ORDER):
        assert word in text, word
    signals = schemas.Alarm.model_fields["signal"].annotation
    for word in signals.__args__:  # type: ignore[union-attr]
        assert f"`{word}`" in text, word
