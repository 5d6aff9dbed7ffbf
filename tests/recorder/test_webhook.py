"""One webhook: people hear of alarms, training never waits for it, and neither words of people nor the URL leave."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from lineage.recorder import webhook
from lineage.recorder.settings import resolve

from .loop import Loop, attach, only


class Receiver:
    """A server on this machine that keeps what it is sent, and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.asked = 0
        self.answers: list[int] = []
        """codes to answer with, in turn; 200 after them"""
        self.hold: threading.Event | None = None
        """answers wait for it"""
        self.reached = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.asked += 1
                receiver.reached.set()
                if receiver.hold is not None:
                    receiver.hold.wait(60)
                code = receiver.answers.pop(0) if receiver.answers else 200
                if code == 200:
                    receiver.got.append(json.loads(body))
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", f"http://localhost:{receiver.port}/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/hook/s3cret-token"

    def close(self) -> None:
        if self.hold is not None:
            self.hold.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tries come one after the other."""
    monkeypatch.setattr(webhook, "PAUSES", (0.0, 0.0))


def train(root: Path, url: str, **options: Any) -> list[float]:
    """Thirty steps, of which the loss of the last five is not finite."""
    loop = Loop()
    with attach(loop, root, webhook=url, **options) as rec:
        losses = loop.run(rec, 25)
        losses += loop.run(rec, 30, spoil=26)
        rec.incident("the cluster of Ana Lopez is on fire")
    return losses


def test_an_alarm_is_posted_once_with_what_a_person_needs(receiver: Receiver, tmp_path: Path) -> None:
    train(tmp_path, receiver.url)
    events = [m["event"] for m in receiver.got]
    assert "alarm" in events
    alarm = next(m for m in receiver.got if m["event"] == "alarm")
    assert alarm["text"].startswith(f"{alarm['run']}: ")
    assert "NaN" in alarm["text"]
    assert (alarm["rank"], alarm["step"]) == (0, 26)
    assert alarm["code"] == "LIN-A001"
    assert alarm["next"] == f"lineage incident walk {alarm['run']}"
    keys = [(m["event"], m["text"]) for m in receiver.got]
    assert len(keys) == len(set(keys))


def test_what_people_wrote_is_sent_only_where_share_says_so(receiver: Receiver, tmp_path: Path) -> None:
    train(tmp_path / "a", receiver.url)
    assert any(m["event"] == "incident" for m in receiver.got)
    assert "Ana Lopez" not in json.dumps(receiver.got)
    receiver.got.clear()
    train(tmp_path / "b", receiver.url, share=["text"])
    assert "Ana Lopez" in json.dumps(receiver.got)


def test_the_url_stands_in_no_record(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [404] * 50
    train(tmp_path, receiver.url)
    ledger = only(tmp_path)
    assert any(r.payload.part == "webhook" for r in ledger.of("degraded"))
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert b"s3cret-token" not in file.read_bytes(), file


def test_training_goes_on_while_the_receiver_does_not_answer(receiver: Receiver, tmp_path: Path) -> None:
    receiver.hold = threading.Event()
    loop = Loop()
    with attach(loop, tmp_path, webhook=receiver.url, exit_timeout=0.1) as rec:
        loop.run(rec, 25, spoil=20)
        assert receiver.reached.wait(60)
        losses = loop.run(rec, 40)  # made while the first post still waits for its answer
        assert receiver.asked == 1
    assert len(losses) == 15
    assert not receiver.got
    (said,) = [r.payload for r in only(tmp_path).of("degraded") if r.payload.part == "webhook"]
    assert re.search(r"had not taken \d+ posts when the run ended", said.error)
    assert len(only(tmp_path).of("alarm")) > 0


def test_the_same_losses_come_out_with_a_webhook_that_is_dead(tmp_path: Path) -> None:
    with_dead = train(tmp_path / "a", "http://localhost:9/none")
    without = train(tmp_path / "b", "")
    assert [str(x) for x in with_dead] == [str(x) for x in without]
    (said,) = [r.payload for r in only(tmp_path / "a").of("degraded") if r.payload.part == "webhook"]
    assert "could not be reached" in said.error
    assert "localhost" not in said.error


@pytest.mark.parametrize(
    ("answers", "asked"), [([500, 500, 200], 3), ([500] * 9, 3), ([404] * 9, 1), ([302] * 9, 1)]
)
def test_a_post_is_tried_three_times_at_most_and_a_refused_one_once(
    receiver: Receiver, answers: list[int], asked: int
) -> None:
    receiver.answers = list(answers)
    trouble: list[Exception] = []
    hook = webhook.Webhook(receiver.url, "run", "/l", on_trouble=trouble.append)
    hook._post_and_tell(b"{}")
    assert receiver.asked == asked
    assert hook.sent == (200 in answers)
    assert bool(trouble) == (200 not in answers)


def test_what_goes_to_this_machine_goes_past_the_proxies_of_the_environment(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain HTTP is allowed on this machine alone, and a proxy is another one that reads it."""
    other = Receiver()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{other.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    try:
        hook = webhook.Webhook(receiver.url, "run", "/l")
        hook._post_and_tell(b"{}")
    finally:
        other.close()
    assert (receiver.asked, other.asked) == (1, 0)


def test_posts_are_dropped_and_not_piled_up(receiver: Receiver) -> None:
    hook = webhook.Webhook(receiver.url, "run", "/l")
    hook._waiting = webhook.WAITING
    hook.look(_record("LIN-R001"))
    assert hook.dropped == 1
    hook._waiting = 0
    for n in range(webhook.MOST + 5):
        hook.look(_record(f"LIN-X{n:03}"))
    hook.close(30)
    assert len(receiver.got) <= webhook.MOST


def _record(code: str) -> Any:
    from types import SimpleNamespace

    import schemas

    found = schemas.Finding(code=code, check="c/1", severity="fault", subject="it", text="as found")
    return SimpleNamespace(payload=found, segment="s", rank=0, step=1, at="now", id="r")


@pytest.mark.parametrize(
    "text", ["http://example.com/x", "ftp://localhost/x", "example.com", "https://", "http://[::1"]
)
def test_an_address_that_others_could_read_is_left_out_and_not_repeated(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"https|no URL") as e:
        webhook.url(text)
    assert text not in str(e.value)
    monkeypatch.setenv("LINEAGE_WEBHOOK", text)
    settings = resolve()
    assert settings.webhook is None
    assert any("webhook" in p for p in settings.problems)


def test_https_and_this_machine_are_taken() -> None:
    for text in ("https://hooks.example.com/T/B/x", "http://localhost:8000/x", "http://127.0.0.1/x"):
        assert webhook.url(text) == text
    assert webhook.url("") is None


def test_a_file_beside_the_training_code_may_not_set_it(tmp_path: Path) -> None:
    (tmp_path / "lineage.toml").write_text('webhook = "https://example.com/x"\n')
    settings = resolve(start=tmp_path)
    assert settings.webhook is None
    assert any("may not set webhook" in p for p in settings.problems)


def test_doctor_says_that_it_is_set_and_not_where_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lineage.cli import doctor

    monkeypatch.setenv("LINEAGE_WEBHOOK", "https://hooks.example.com/T/B/x")
    for as_json in (False, True):
        with pytest.raises(BaseException):  # noqa: B017, PT011 - typer's way to end
            doctor.command(as_json=as_json)
        said = capsys.readouterr().out
        assert "webhook" in said
        assert "hooks.example.com" not in said
