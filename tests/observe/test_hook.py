"""The start-up hook in real processes: chained, light, harmless; and `lineage run` around a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lineage.observe.light import place
from lineage.observe.reach import Watch, kept_out

from .conftest import REPOSITORY, Run, environment, ledgers, lineage_run, script

HOOK = REPOSITORY / "lineage" / "observe" / "hook"
LOG = """
import wandb
run = wandb.init(project="p", config={"lr": 0.1})
run.log({"loss": 0.5}, step=1)
run.finish()
"""


def test_a_sitecustomize_that_is_there_runs_once_under_its_own_name(tmp_path: Path, run: Run) -> None:
    """Also where PYTHONPATH leads to it: the hook stands before it there, and all other entries stay."""
    own = script(
        tmp_path, "own/sitecustomize.py", "import builtins\nbuiltins.ran = getattr(builtins, 'ran', 0) + 1\n"
    )
    code = (
        "import builtins, json, os, sys, sitecustomize; print(json.dumps([builtins.ran, sitecustomize.__file__, "
        "sitecustomize.__name__, os.environ['PYTHONPATH'].split(os.pathsep)[1:], '_lineage_light' in sys.modules]))"
    )
    done = run(sys.executable, "-c", code, env={"PYTHONPATH": f"{own.parent}{os.pathsep}/nowhere"})
    assert json.loads(done.stdout) == [1, str(own), "sitecustomize", [str(own.parent), "/nowhere"], True]


def test_a_sitecustomize_that_fails_fails_as_it_did_and_the_program_runs(tmp_path: Path, run: Run) -> None:
    own = script(tmp_path, "own/sitecustomize.py", "raise RuntimeError('theirs')\n")
    words = (sys.executable, "-c", "print('ran')")
    env = {"PYTHONPATH": str(own.parent)}
    hooked = run(*words, env=env)
    plain = subprocess.run(
        words, capture_output=True, text=True, env={**environment(tmp_path), **env}, check=False, cwd=tmp_path
    )
    assert (hooked.stdout, hooked.returncode) == (plain.stdout, plain.returncode) == ("ran\n", 0)
    assert plain.stderr in hooked.stderr
    assert "theirs" in plain.stderr


def test_where_there_is_no_sitecustomize_there_is_none_with_the_hook_either(run: Run) -> None:
    code = (
        "import sys\nprint('sitecustomize' in sys.modules)\n"
        "try:\n    import sitecustomize\nexcept ImportError as e:\n    print(e.name)"
    )
    done = run(sys.executable, "-c", code)
    assert done.stdout == "False\nsitecustomize\n"


def test_a_usercustomize_runs_as_it_did(tmp_path: Path, run: Run) -> None:
    """A virtual environment has no user's site by default, so the interpreter below it is asked."""
    base = getattr(sys, "_base_executable", sys.executable)
    own = script(tmp_path, "own/usercustomize.py", "print('user')\n")
    ask = [base, "-c", "import site; print(site.ENABLE_USER_SITE)"]
    enabled = subprocess.run(
        ask, capture_output=True, text=True, check=True, env=environment(tmp_path)
    ).stdout
    if enabled.strip() != "True":
        pytest.skip(f"{base} has no user's site: {enabled.strip()}")
    done = run(
        base, "-c", "import sys; print('_lineage_light' in sys.modules)", env={"PYTHONPATH": str(own.parent)}
    )
    assert done.stdout == "user\nTrue\n"


def test_the_hook_imports_nothing_but_the_standard_library_until_a_tracker_comes(run: Run) -> None:
    code = (
        "import sys\n"
        "third = [n for n, m in sys.modules.items() if 'site-packages' in (getattr(m, '__file__', None) or '')]\n"
        "ours = [n for n in sys.modules if n.partition('.')[0] in ('lineage', 'schemas', 'trackers')]\n"
        "print(third, ours, '_lineage_light' in sys.modules, 'pydantic' in sys.modules)"
    )
    done = run(sys.executable, "-c", code)
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert done.stdout == plain.replace("False False", "True False")


def test_torch_alone_brings_no_pydantic_and_no_ledger(tmp_path: Path, run: Run) -> None:
    code = "import sys, torch\nprint('pydantic' in sys.modules, torch.save.__lineage_original__.__name__)"
    done = run(sys.executable, "-c", code)
    assert done.stdout == "False save\n", done.stderr
    assert ledgers(tmp_path) == []


def test_a_spawned_child_that_begins_no_run_does_not_bring_the_recording_part(
    tmp_path: Path, run: Run
) -> None:
    """As a data loader's worker: it imports the tracker only because its parent's script does."""
    train = script(
        tmp_path,
        "train.py",
        "import multiprocessing, sys, wandb\n"
        "def work(): print('lineage.observe' in sys.modules, hasattr(wandb.Run.log, '__lineage_original__'))\n"
        "if __name__ == '__main__':\n"
        "    print('lineage.observe' in sys.modules, flush=True)\n"
        "    p = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    p.start()\n    p.join()\n",
    )
    assert run(sys.executable, train).stdout == "True\nFalse True\n"


def test_exit_code_streams_and_arguments_are_the_command_s_own(tmp_path: Path) -> None:
    code = (
        "import sys\nprint(sys.stdin.read().upper(), end='')\n"
        "print(sys.argv[1:], file=sys.stderr)\nsys.exit(7)"
    )
    done = subprocess.run(
        [*lineage_run(tmp_path), sys.executable, "-c", code, "--ledger", "x", "--", "--help"],
        input="in\n",
        capture_output=True,
        text=True,
        check=False,
        env=environment(tmp_path),
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "IN\n", "['--ledger', 'x', '--', '--help']\n")


@pytest.mark.parametrize(("words", "code"), [(["no-such-command"], 127), (["./not-executable"], 127)])
def test_a_command_that_cannot_be_run_is_said_with_a_shell_s_exit_code(
    tmp_path: Path, run: Run, words: list[str], code: int
) -> None:
    script(tmp_path, "not-executable", "#!/bin/sh\n")
    done = run(*words)
    assert done.returncode == code
    assert words[0] in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL])
def test_a_signal_reaches_the_command_once_and_its_death_is_its_own(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The command takes the place of `lineage run`: pid, process group and terminal are the same."""
    code = (
        "import os, signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background inherits none
        "for n in (signal.SIGTERM, signal.SIGUSR1):\n"
        "    signal.signal(n, lambda n, f: seen.append(n))\n"
        "try:\n"
        "    print(os.getpid(), os.getpgrp(), flush=True)\n"
        "    while not seen:\n"
        "        time.sleep(0.01)\n"
        "    time.sleep(0.3)\n"
        "except KeyboardInterrupt:\n"
        "    seen.append(2)\n"
        "print(*[int(n) for n in seen], flush=True)\n"
        "sys.exit(40 + len(seen))\n"
    )
    child = subprocess.Popen(
        [*lineage_run(tmp_path), sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline().split() == [str(child.pid), str(child.pid)]
    os.killpg(child.pid, number) if number != signal.SIGKILL else child.kill()
    out = child.stdout.read()
    expected = (-9, "") if number == signal.SIGKILL else (41, f"{int(number)}\n")
    assert (child.wait(60), out) == expected


def test_a_script_with_a_bug_fails_as_it_did_and_the_segment_says_so(tmp_path: Path, run: Run) -> None:
    buggy = script(
        tmp_path,
        "train.py",
        LOG.replace("run.finish()", "") + "\n\ndef deep():\n    return 1 / 0\n\n\ndeep()\n",
    )
    plain = subprocess.run(
        [sys.executable, str(buggy)],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        check=False,
        cwd=tmp_path,
    )
    done = run(sys.executable, buggy)
    assert done.returncode == plain.returncode == 1
    trace = plain.stderr[plain.stderr.index("Traceback") :].partition("ZeroDivisionError: division by zero")[
        0
    ]
    assert trace in done.stderr
    (ledger,) = ledgers(tmp_path)
    end = ledger.of("segment_end")[0].payload
    assert (end.reason, end.error) == ("exception", "ZeroDivisionError: division by zero")


def test_grandchildren_are_reached_and_their_runs_are_recorded(tmp_path: Path, run: Run) -> None:
    script(tmp_path, "train.py", LOG)
    launch = script(
        tmp_path,
        "launch.py",
        "import subprocess, sys\nsubprocess.run(['sh', '-c', sys.executable + ' train.py'], check=True)\n",
    )
    done = run(sys.executable, launch)
    assert done.returncode == 0, done.stderr
    (ledger,) = ledgers(tmp_path)
    assert ledger.series("metrics").num_rows == 1
    assert ledger.of("environment")
    assert ledger.of("code")
    assert "not reached" not in done.stderr
    end = time.monotonic() + 30
    while (tmp_path / "runs" / ".observe").exists() and time.monotonic() < end:
        time.sleep(0.1)  # the watch goes when the last process has gone
    assert not (tmp_path / "runs" / ".observe").exists()


@pytest.mark.parametrize(
    ("option", "word"), [("-I", "-I makes Python"), ("-E", "-E makes Python"), ("-S", "-S makes")]
)
def test_a_child_that_keeps_the_hook_out_is_named(tmp_path: Path, run: Run, option: str, word: str) -> None:
    launch = script(
        tmp_path,
        "launch.py",
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '{option}', '-c', 'import time; time.sleep(1.5)', '--token=hunter2abc9'])\n",
    )
    done = run(sys.executable, launch)
    assert done.returncode == 0
    assert "LIN-O001" in done.stderr
    assert word in done.stderr
    assert "hunter2abc9" not in done.stderr
    assert "launch.py" not in done.stderr  # that one was reached


def test_a_child_that_escaped_stands_in_the_ledger_of_the_run_beside_it(tmp_path: Path, run: Run) -> None:
    child = "import subprocess, sys\nc = subprocess.Popen([sys.executable, '-I', '-c', 'import time; time.sleep(3)'])\n"
    train = script(tmp_path, "train.py", child + LOG + "c.wait()\n")
    run(sys.executable, train)
    (ledger,) = ledgers(tmp_path)
    assert any("LIN-O001" in g and "-I" in g for g in ledger.of("coverage")[0].payload.gaps)


def test_a_child_without_the_hook_in_its_environment_is_named(tmp_path: Path, run: Run) -> None:
    launch = script(
        tmp_path,
        "launch.py",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(4)'], env={})\n",
    )
    done = run(sys.executable, launch)
    assert "its environment does not carry the hook" in done.stderr


def test_an_interpreter_without_the_distribution_is_named_and_runs(tmp_path: Path, run: Run) -> None:
    """It reads the hook, and has a module called wandb, but no runlineage to record with."""
    script(tmp_path, "wandb/__init__.py", "class Run: pass\nclass sdk: pass\n")
    base = getattr(sys, "_base_executable", sys.executable)
    if base == sys.executable:
        pytest.skip("this interpreter is no virtual environment's")
    done = run(base, "-c", "import wandb; print('ran', wandb.__spec__.loader.__class__.__name__)")
    assert done.stdout == "ran SourceFileLoader\n"
    assert "runlineage is not installed for this interpreter" in done.stderr


def test_a_user_s_module_called_lineage_is_left_alone_and_said(tmp_path: Path, run: Run) -> None:
    script(tmp_path, "lineage.py", "MINE = True\n")
    train = script(tmp_path, "train.py", "import wandb, lineage\nprint(lineage.MINE)\n")
    done = run(sys.executable, train)
    assert done.stdout == "True\n", done.stderr
    assert "the name `lineage` leads to" in done.stderr


def test_a_command_without_python_is_said_to_be_unobserved(run: Run) -> None:
    done = run("sh", "-c", "exit 3")
    assert done.returncode == 3
    assert "no Python process of this command was reached" in done.stderr


def test_switched_off_nothing_is_hooked(tmp_path: Path, run: Run) -> None:
    code = "import os, sys; print('_lineage_light' in sys.modules, 'LINEAGE_OBSERVE_TO' in os.environ)"
    for name in ("LINEAGE_OBSERVE", "LINEAGE_ENABLED"):
        assert run(sys.executable, "-c", code, env={name: "0"}).stdout == "False False\n"


@pytest.mark.parametrize(
    ("words", "letter"),
    [
        ("python -I x.py", "I"),
        ("python -sE x.py", "E"),
        ("python -bS -c pass", "S"),
        ("python x.py -I", None),
        ("python -c -I", None),
        ("python -m mod -E", None),
        ("python -X importtime -W ignore x.py", None),
        ("python -Wignore -I x.py", "I"),
        ("python -X E x.py", None),
        ("python -P -u x.py", None),
        ("python --check-hash-based-pycs always -E", "E"),
        ("python - -E", None),
    ],
)
def test_the_options_that_keep_a_hook_out_are_read_as_python_reads_them(
    words: str, letter: str | None
) -> None:
    assert kept_out(words.split()) == letter


def test_the_last_records_of_a_stuck_disk_do_not_hold_the_exit(tmp_path: Path, run: Run) -> None:
    """Here every write of the journal hangs for ever, as on a file server that is gone: that it ends is the proof."""
    hang = (
        "import threading, lineage.ledger.journal as j\nj.Journal._write = lambda self, draft: hung.wait()\n"
    )
    train = script(tmp_path, "train.py", hang + "hung = threading.Event()\n" + LOG)
    done = run(sys.executable, train)
    assert done.returncode == 0
    assert "were not written in time" in done.stderr


def test_a_pid_that_is_used_again_is_not_followed(tmp_path: Path) -> None:
    """The system gives pids a second time: a process with another start is somebody else's."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={})
    try:
        watch = Watch(-1, tmp_path, "hook")
        while (image := place.image(other.pid)) is None:  # amid its `exec`, which `Popen` does not wait for
            assert other.poll() is None
        pid, start, line = image.split("-")
        for kept, then in ((image, {other.pid: image}), (f"{pid}-{int(start) - 1}-{line}", {})):
            watch.alive = {other.pid: kept}
            watch._others = set()
            watch.look(0.0)
            assert watch.alive == then
    finally:
        other.kill()
        other.wait()
