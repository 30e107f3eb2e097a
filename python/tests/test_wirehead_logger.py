"""Wirehead's logger: its fields and their values. Reading them changes nothing in the ring."""

import io
import json
import multiprocessing
import signal
import subprocess
import sys
import threading
import time

import pytest

import ringreel
from ringreel.wirehead import SwapLog, WireheadLogger, WireheadSnapshot

# The fields of Wirehead 0.9.3, in its order.
SWAP = ["swap_timestamp", "prev_swap_timestamp", "swap_duration", "swap_count", "db_name"]
SNAPSHOT = """samples_started samples_completed in_flight swap_cap fill_pct is_swapping swap_lock_duration swap_count
    swap_timestamp swap_duration time_since_last_swap avg_swap_duration samples_per_s swaps_per_s write_mb_per_s
    write_docs write_size_mb read_docs read_size_mb mongo_active_ops db_name poll_interval timestamp
    recent_swaps""".split()


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("DBNAME: brains\nSWAP_CAP: 4\nSAMPLE: [data, label]\nINDEX: files\n")
    return path


def generate(config, samples):
    ringreel.run_generator([(n, n) for n in range(samples)], config)


def listing(ring):
    return sorted((str(path), path.stat().st_mtime_ns) for path in ring.rglob("*"))


def eventually(what):
    for _ in range(1000):
        if what():
            return
        time.sleep(0.02)
    raise AssertionError("it never came to this")


def test_snapshot_has_wireheads_fields(config):
    generate(config, 10)  # two generations of 4, and 2 samples
    before = listing(config.parent / "brains.ring")
    snapshot = WireheadLogger(config, poll_interval=0.5).snapshot()
    assert listing(config.parent / "brains.ring") == before
    assert isinstance(snapshot, WireheadSnapshot) and list(dict(snapshot)) == SNAPSHOT
    assert (snapshot.swap_count, snapshot.swap_cap, snapshot.read_docs) == (2, 4, 4)
    assert (snapshot.samples_completed, snapshot.write_docs, snapshot.in_flight) == (2, 2, 0)
    assert (snapshot.samples_started, snapshot["fill_pct"], snapshot.is_swapping) == (2, 50.0, False)
    assert snapshot.db_name == "brains" and snapshot.poll_interval == 0.5
    assert abs(snapshot.timestamp - time.time()) < 60 and 0 <= snapshot.time_since_last_swap < 60
    assert 0 < snapshot.write_size_mb < snapshot.read_size_mb < 1
    assert [swap.swap_count for swap in snapshot.recent_swaps] == [1, 2]
    assert json.loads(str(snapshot))["recent_swaps"][1]["swap_count"] == 2
    with pytest.raises(KeyError):
        snapshot["to_jsonl"]


def test_rates_are_those_between_two_snapshots(config):
    generate(config, 4)
    log = WireheadLogger(config)
    assert log.snapshot().samples_per_s == 0  # one swap gives no rate
    generate(config, 8)
    second = log.snapshot()
    assert second.samples_per_s > 0 and second.swaps_per_s > 0 and second.write_mb_per_s > 0


def test_history_is_all_swaps_with_their_durations(config):
    log = WireheadLogger(config)
    assert log.history() == []
    with pytest.raises(ringreel.RingNotFoundError):
        log.snapshot()
    generate(config, 50)
    history = log.history()
    assert [swap.swap_count for swap in history] == list(range(1, 13))
    assert all(isinstance(swap, SwapLog) and list(dict(swap)) == SWAP and swap.db_name == "brains" for swap in history)
    assert history[0].prev_swap_timestamp is None and history[0].swap_duration is None
    for swap in history[1:]:
        before = history[swap.swap_count - 2]
        assert swap.prev_swap_timestamp == before.swap_timestamp
        assert swap.swap_duration == pytest.approx(swap.swap_timestamp - before.swap_timestamp, abs=1e-3)
    assert log.history() == history, "asked again, nothing comes twice"
    assert [swap.swap_count for swap in log.snapshot().recent_swaps] == list(range(3, 13))


def test_run_writes_each_swap_once_and_ends_at_stop(config, tmp_path):
    log, out = WireheadLogger(config, poll_interval=0.02), tmp_path / "swaps.jsonl"
    thread = threading.Thread(target=log.run, kwargs={"out": out})
    thread.start()  # the ring does not exist yet
    generate(config, 4)
    eventually(lambda: out.exists() and out.read_text().count("\n") == 1)
    generate(config, 8)
    eventually(lambda: out.read_text().count("\n") == 3)
    log.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert [json.loads(line)["swap_count"] for line in out.read_text().splitlines()] == [1, 2, 3]


def test_run_daemon_writes_snapshots_to_an_open_file(config):
    generate(config, 4)
    log, out = WireheadLogger(config), io.StringIO()
    thread = threading.Thread(target=log.run_daemon, args=(0.02, out))
    thread.start()
    eventually(lambda: out.getvalue().count("\n") >= 2)
    log.stop()
    thread.join(20)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["swap_count"] for line in lines] == [1] * len(lines) and lines[0]["poll_interval"] == 0.02


def _count(log, found):
    found.put(log.snapshot().swap_count)


def test_forked_child_has_its_own_watcher(config):
    generate(config, 4)
    log = WireheadLogger(config)
    assert log.snapshot().swap_count == 1
    fork = multiprocessing.get_context("fork")
    found = fork.Queue()
    child = fork.Process(target=_count, args=(log, found))
    child.start()
    assert found.get(timeout=60) == 1
    child.join(60)


def test_invalid_arguments_are_refused(config):
    for interval in (0, -1, float("nan")):
        with pytest.raises(ringreel.ConfigError, match="poll interval: expected more than 0"):
            WireheadLogger(config, poll_interval=interval)
    with pytest.raises(ringreel.ConfigError, match="cannot read"):
        WireheadLogger(config.parent / "other.yaml")


def test_live_view_needs_a_terminal(config, capfd):
    with pytest.raises(ringreel.ConfigError, match="terminal"):
        WireheadLogger(config).run_tui()
    assert "ringreel metrics" in capfd.readouterr().err
    with pytest.raises(ringreel.ConfigError, match="file"):
        WireheadLogger({"RING": "x.ring"}).run_tui()


COMMAND = [sys.executable, "-m", "ringreel.wirehead"]


@pytest.mark.parametrize("module", ["ringreel.wirehead", "ringreel.wirehead.log"])
def test_command_prints_the_swaps(config, module):
    command = [sys.executable, "-m", module, str(config)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "No swaps recorded yet.\n"
    generate(config, 8)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert [json.loads(line)["swap_count"] for line in done.stdout.splitlines()] == [1, 2] and done.stderr == ""


def test_command_prints_snapshots_until_it_is_interrupted(config):
    generate(config, 4)
    command = [*COMMAND, str(config), "--daemon", "--poll-interval", "0.02"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr.read() == "" and process.wait() == 130
    assert [list(line) for line in lines] == [SNAPSHOT] * 2


def test_command_ends_with_the_reader_of_its_output(config):
    generate(config, 4)
    command = [*COMMAND, str(config), "--daemon", "--poll-interval", "0.02"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == "" and process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["no.yaml"], 1, "error: no.yaml: cannot read"),
        (["--tui"], 1, "error: the live view could not be shown: it needs a terminal"),
        (["--poll-interval", "0"], 1, "error: poll interval: expected more than 0"),
        (["--logger"], 2, "unrecognized arguments: --logger"),
    ],
)
def test_command_reports_errors(config, arguments, status, message):
    given = arguments if arguments[0] == "no.yaml" else [str(config), *arguments]
    done = subprocess.run([*COMMAND, *given], capture_output=True, text=True, cwd=config.parent)
    assert done.returncode == status and message in done.stderr and "Traceback" not in done.stderr
