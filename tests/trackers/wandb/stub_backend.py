"""A backend on loopback that a real W&B client can run online against: what it receives is kept in memory.

Not a W&B server: it merges nothing, and answers only the operations that a run with files, alerts and
artifacts needs. Within `silent()` no request is answered, `status` makes every answer an HTTP error.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

ENTITY = "team"
_OPERATION = re.compile(r"\b(?:query|mutation)\s+(\w+)")
_STREAM = re.compile(r"^/files/[^/]+/[^/]+/(?P<run>[^/]+)/file_stream")


def _id(*parts: object) -> str:
    return base64.b64encode(":".join(map(str, parts)).encode()).decode()


@dataclass
class StoredRun:
    """A run as the backend holds it."""

    name: str
    project: str
    config: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    notes: str | None = None
    lines: dict[str, list[str]] = field(default_factory=dict)
    complete: bool = False

    @property
    def values(self) -> dict[str, Any]:
        """The config without W&B's wrapping of each value."""
        return {k: v["value"] for k, v in self.config.items() if k != "_wandb"}

    @property
    def pinned(self) -> list[str]:
        return list(self.config.get("_wandb", {}).get("value", {}).get("pinned_keys", []))

    @property
    def history(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines.get("wandb-history.jsonl", [])]

    @property
    def summary(self) -> dict[str, Any]:
        lines = self.lines.get("wandb-summary.json", [])
        return dict(json.loads(lines[-1])) if lines else {}


@dataclass
class StoredArtifact:
    """An artifact as the backend holds it. `uploads` maps names to bytes."""

    id: str
    given: dict[str, Any]
    version: int
    manifest: dict[str, Any] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    committed: bool = False

    @property
    def name(self) -> str:
        names: list[str] = self.given.get("artifactCollectionNames") or [self.given["artifactCollectionName"]]
        return names[0]

    @property
    def aliases(self) -> list[str]:
        return [a["alias"] for a in self.given.get("aliases") or []]


class StubBackend:
    """The backend. `url` is its address; `runs`, `artifacts`, `alerts`, `uses`, `files` what it received."""

    def __init__(self) -> None:
        self.runs: dict[str, StoredRun] = {}
        self.artifacts: list[StoredArtifact] = []
        self.alerts: list[dict[str, Any]] = []
        self.uses: list[str] = []
        self.files: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.faults: list[str] = []
        self._answering = threading.Event()
        self._answering.set()
        self.status = 0
        self._lock = threading.RLock()
        self._port = 0
        self.open()
        self.url = f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        """Listen, after `close` on the same port again."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        self._server.daemon_threads = True
        self._server.handle_error = lambda *args: None  # type: ignore[method-assign]  # sockets reset at exit
        self._port = self._server.server_port
        self.listening = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening: from now on connections are refused."""
        self.listening = False
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Answer nothing until the end of the block; then all that has been asked."""
        self._answering.clear()
        try:
            yield
        finally:
            self._answering.set()

    def artifact(self, alias: str) -> StoredArtifact:
        """Return the newest artifact with an alias."""
        return next(a for a in reversed(self.artifacts) if alias in a.aliases)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                """Say nothing."""

            def _body(self) -> bytes:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

            def _answer(self, found: Any, status: int = 200) -> None:
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _serve(self) -> None:
                body = self._body()
                backend._answering.wait()
                if backend.status:
                    self._answer({"error": "by request of the test"}, backend.status)
                    return
                try:
                    with backend._lock:
                        found = backend._take(self.command, self.path, body)
                except Exception as e:  # a fault of the stub itself: seen by the test, not retried for ever
                    backend.faults.append(f"{self.path} {body[:200]!r}: {e!r}")
                    self._answer({"error": repr(e)}, 400)
                    return
                self._answer(found if found is not None else {}, 200 if found is not None else 404)

            do_GET = do_POST = do_PUT = _serve  # noqa: N815  # http.server dispatches on these names

        return Handler

    def _take(self, method: str, path: str, body: bytes) -> Any:
        if path.startswith("/graphql"):
            return self._graphql(json.loads(body))
        stream = _STREAM.match(path)
        if stream:
            return self._stream(stream["run"], json.loads(body))
        if method == "GET":
            return self.files.get(path.removeprefix("/got/"))
        kind, _, rest = path.removeprefix("/").partition("/")
        if kind == "artifact":
            number, _, name = rest.partition("/")
            self.artifacts[int(number)].uploads[name] = body
        elif kind == "manifest":
            self.artifacts[int(rest)].manifest = json.loads(body)
        else:
            self.files[rest] = body
        return {}

    def _stream(self, run: str, sent: dict[str, Any]) -> dict[str, Any]:
        stored = self.runs[run]
        for name, chunk in (sent.get("files") or {}).items():
            lines = stored.lines.setdefault(name, [])
            lines[chunk["offset"] :] = chunk["content"]
        stored.complete = stored.complete or bool(sent.get("complete"))
        return {"limits": {}}

    def _graphql(self, request: dict[str, Any]) -> dict[str, Any]:
        found = _OPERATION.search(request["query"])
        name = found[1] if found else "Viewer"  # wandb 0.24 asks who it is in a query without a name
        self.calls.append(name)
        answer = getattr(self, f"_on_{name}", None)
        if answer is None:
            return {
                "data": None,
                "errors": [{"message": f"the stub does not know {name}: {request['query'][:300]}"}],
            }
        return {"data": answer(request.get("variables") or {})}

    # What each operation answers; the names are those of W&B's GraphQL operations.

    def _on_Viewer(self, v: dict[str, Any]) -> Any:
        return {
            "viewer": {"id": "u", "entity": ENTITY, "username": "me", "flags": "{}", "teams": {"edges": []}}
        }

    def _on_GetDefaultEntity(self, v: dict[str, Any]) -> Any:
        return {"viewer": {"id": "u", "entity": ENTITY}}

    def _on_ServerFeaturesQuery(self, v: dict[str, Any]) -> Any:
        return {"serverInfo": {"features": []}}

    def _bucket(self, run: StoredRun) -> dict[str, Any]:
        return {
            "id": _id("run", run.name),
            "name": run.name,
            "displayName": run.name,
            "description": None,
            "config": json.dumps(run.config),
            "sweepName": None,
            "historyLineCount": len(run.history),
            "project": {"id": _id(run.project), "name": run.project, "entity": {"id": "e", "name": ENTITY}},
        }

    def _on_UpsertBucket(self, v: dict[str, Any]) -> Any:
        new = v["name"] not in self.runs
        run = self.runs.setdefault(v["name"], StoredRun(v["name"], v.get("project") or "p"))
        if v.get("config"):
            run.config = json.loads(v["config"])
        if v.get("tags") is not None:
            run.tags = v["tags"]
        if v.get("notes") is not None:
            run.notes = v["notes"]
        return {"upsertBucket": {"bucket": self._bucket(run), "inserted": new}}

    def _on_RunResumeStatus(self, v: dict[str, Any]) -> Any:
        run = self.runs.get(v["name"])
        model: dict[str, Any] = {
            "id": "m",
            "name": "p",
            "entity": {"id": "e", "name": ENTITY},
            "bucket": None,
        }
        if run is not None:
            history = run.lines.get("wandb-history.jsonl", [])
            model["bucket"] = self._bucket(run) | {
                "summaryMetrics": json.dumps(run.summary),
                "logLineCount": 0,
                "eventsLineCount": 0,
                "historyTail": json.dumps(history[-1:]),
                "eventsTail": "[]",
                "tags": run.tags,
                "notes": run.notes,
                "wandbConfig": json.dumps({"t": 1}),
            }
        return {"model": model}

    def _on_RewindRun(self, v: dict[str, Any]) -> Any:
        """The history ends at the step; what came after it is gone from the run, as with W&B itself."""
        run = self.runs[v["runName"]]
        kept = [r for r in run.history if r["_step"] <= v["metricValue"]]
        run.lines["wandb-history.jsonl"] = [json.dumps(r) for r in kept]
        return {"rewindRun": {"rewoundRun": self._bucket(run)}}

    def _on_Run(self, v: dict[str, Any]) -> Any:
        run = self.runs.get(v["name"])
        if run is None:
            return {"project": {"run": None}}
        found = self._bucket(run) | {
            "projectId": "1",
            "tags": run.tags,
            "state": "finished" if run.complete else "running",
            "summaryMetrics": json.dumps(run.summary),
            "systemMetrics": "{}",
            "commit": None,
            "notes": run.notes,
            "user": {"name": "me", "username": "me"},
            **self._keys(run),
        }
        return {"project": {"run": found}}

    def _keys(self, run: StoredRun) -> dict[str, Any]:
        steps = [row["_step"] for row in run.history if "_step" in row]
        return {"historyKeys": {"lastStep": max(steps, default=-1)}}

    def _on_RunHistoryKeys(self, v: dict[str, Any]) -> Any:
        return {"project": {"run": self._keys(self.runs[v["name"]])}}

    def _on_RunParquetHistory(self, v: dict[str, Any]) -> Any:
        history = {"parquetUrls": [], "liveData": self.runs[v["runName"]].history}
        return {"project": {"run": {"parquetHistory": history}}}

    def _on_HistoryPage(self, v: dict[str, Any]) -> Any:
        rows = [r for r in self.runs[v["run"]].history if v["minStep"] <= r["_step"] < v["maxStep"]]
        return {"project": {"run": {"history": [json.dumps(r) for r in rows]}}}

    def _on_RunFiles(self, v: dict[str, Any]) -> Any:
        before = f"{v['name']}/"
        edges = [
            {
                "node": {
                    "id": _id("file", path),
                    "name": path.removeprefix(before),
                    "url": f"{self.url}/got/{path}",
                    "directUrl": f"{self.url}/got/{path}",
                    "sizeBytes": len(body),
                    "mimetype": "application/octet-stream",
                    "updatedAt": None,
                    "md5": None,
                },
                "cursor": "c",
            }
            for path, body in sorted(self.files.items())
            if path.startswith(before)
        ]
        files = {"edges": edges, "pageInfo": {"endCursor": "c", "hasNextPage": False}}
        return {"project": {"internalId": "1", "run": {"fileCount": len(edges), "files": files}}}

    def _on_NotifyScriptableRunAlert(self, v: dict[str, Any]) -> Any:
        self.alerts.append(v)
        return {"notifyScriptableRunAlert": {"success": True}}

    def _on_RunStoppedStatus(self, v: dict[str, Any]) -> Any:
        return {"project": {"run": {"stopped": False}}}

    def _on_CreateRunFiles(self, v: dict[str, Any]) -> Any:
        files = [{"name": f, "uploadUrl": f"{self.url}/file/{v['run']}/{f}"} for f in v["files"]]
        return {"createRunFiles": {"runID": _id("run", v["run"]), "uploadHeaders": [], "files": files}}

    def _on_CreateArtifact(self, v: dict[str, Any]) -> Any:
        given = v["input"]
        artifact = StoredArtifact(f"A{len(self.artifacts)}", given, 0)
        same = [a for a in self.artifacts if a.name == artifact.name]
        artifact.version = len(same)
        for a in same:  # as W&B does: equal content is no new version
            if a.given["digest"] == given["digest"]:
                node = {
                    "id": a.id,
                    "state": "COMMITTED",
                    "artifactSequence": {"id": "s", "latestArtifact": None},
                }
                return {"createArtifact": {"artifact": node}}
        self.artifacts.append(artifact)
        node = {
            "id": artifact.id,
            "state": "PENDING",
            "artifactSequence": {"id": "s", "latestArtifact": None},
        }
        return {"createArtifact": {"artifact": node}}

    def _manifest(self, key: str, number: str) -> Any:
        file = {"id": "f", "uploadUrl": f"{self.url}/manifest/{number}", "uploadHeaders": []}
        return {key: {"artifactManifest": {"id": f"M{number}", "file": file}}}

    def _on_CreateArtifactManifest(self, v: dict[str, Any]) -> Any:
        return self._manifest("createArtifactManifest", v["artifactID"][1:])

    def _on_UpdateArtifactManifest(self, v: dict[str, Any]) -> Any:
        return self._manifest("updateArtifactManifest", v["artifactManifestID"][1:])

    def _on_CreateArtifactFiles(self, v: dict[str, Any]) -> Any:
        edges = [
            {
                "node": {
                    "storagePath": f["name"],
                    "uploadUrl": f"{self.url}/artifact/{f['artifactID'][1:]}/{f['name']}",
                    "uploadHeaders": [],
                    "uploadMultipartUrls": None,
                    "artifact": {"id": f["artifactID"]},
                }
            }
            for f in (v.get("input") or v)["artifactFiles"]
        ]
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def _on_CommitArtifact(self, v: dict[str, Any]) -> Any:
        artifact = self.artifacts[int(v["artifactID"][1:])]
        artifact.committed = True
        return {"commitArtifact": {"artifact": {"id": artifact.id, "digest": artifact.given["digest"]}}}

    def _on_ArtifactType(self, v: dict[str, Any]) -> Any:
        name = v["name"].partition(":")[0]
        types = [a.given["artifactTypeName"] for a in self.artifacts if a.name == name]
        return {"project": {"artifact": {"artifactType": {"name": types[0]}} if types else None}}

    def _member(self, v: dict[str, Any]) -> dict[str, Any] | None:
        name, _, alias = v["name"].partition(":")
        found = [a for a in self.artifacts if a.name == name and alias in a.aliases and a.committed]
        return self._membership(found[-1], v["project"]) if found else None

    def _on_ArtifactMembershipByName(self, v: dict[str, Any]) -> Any:
        return {"project": {"artifactCollectionMembership": self._member(v)}}

    def _on_ArtifactByName(self, v: dict[str, Any]) -> Any:  # wandb 0.24
        member = self._member(v)
        return {"project": {"artifact": member["artifact"] if member else None}}

    def _membership(self, a: StoredArtifact, project: str) -> dict[str, Any]:
        where = {"id": "p", "internalId": "p", "name": project, "entity": {"name": ENTITY}}
        collection = {"__typename": "ArtifactSequence", "name": a.name, "project": where}
        aliases = [{"id": _id(x), "alias": x} for x in a.aliases]
        artifact = {
            "__typename": "Artifact",
            "id": a.id,
            "artifactSequence": collection,
            "versionIndex": a.version,
            "artifactType": {"name": a.given["artifactTypeName"]},
            "description": None,
            "metadata": a.given.get("metadata"),
            "ttlDurationSeconds": -2,
            "ttlIsInherited": True,
            "tags": [],
            "historyStep": None,
            "state": "COMMITTED",
            "size": 1,
            "digest": a.given["digest"],
            "commitHash": None,
            "fileCount": 2,
            "createdAt": "2026-01-01T00:00:00",
            "updatedAt": None,
            "aliases": [{**x, "artifactCollection": collection} for x in aliases],
        }
        return {
            "__typename": "ArtifactCollectionMembership",
            "id": "m",
            "versionIndex": a.version,
            "createdAt": "2026-01-01T00:00:00",
            "aliases": aliases,
            "artifactCollection": collection,
            "artifact": artifact,
        }

    def _on_UseArtifact(self, v: dict[str, Any]) -> Any:
        used = (v.get("input") or v)["artifactID"]
        self.uses.append(used)
        return {"useArtifact": {"artifact": {"id": used}}}


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubBackend]:
    """A W&B backend on loopback; runs with mode="online" talk to it."""
    stub = StubBackend()
    monkeypatch.setenv("WANDB_BASE_URL", stub.url)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    try:
        yield stub
    finally:
        stub.close()
