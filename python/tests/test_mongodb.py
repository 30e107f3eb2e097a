"""The index in MongoDB: Wirehead's unchanged programs, workers, wrong addresses, passwords."""

import json
import multiprocessing
import pathlib
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest
from conftest import add, managed, numbered, numbers, until
from test_processes import in_fork
from test_wirehead import WIREHEADS_CONFIG, run_the_tutorial

import ringreel
from ringreel.wirehead import MongoheadDataset, MongoTupleheadDataset, WireheadGenerator, WireheadManager

pytest.importorskip("pymongo", reason="pymongo is not installed: the index in a MongoDB is NOT tested")
import mongo_server

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

QUICK = "POLL_SECONDS: 0.02\nLEASE_SECONDS: 0.5\n"
SECRET = "s3cr3tWord"


@pytest.fixture(scope="module")
def server():
    """The connection string of a server that works."""
    if mongo_server.given():
        yield mongo_server.given()
        return
    if (lacking := mongo_server.lacking()) is not None:
        pytest.skip(lacking)
    started = mongo_server.JavaServer()
    yield started.uri
    started.end()


@pytest.fixture
def database(server):
    """An empty database, which is dropped afterwards."""
    made = mongo_server.Database(server)
    yield made
    made.drop()


@pytest.fixture
def wireheads(tmp_path, database):
    """Returns the path of Wirehead's configuration, with this server's address and database."""

    def make(more=""):
        kept = [line for line in WIREHEADS_CONFIG.splitlines() if not line.startswith(("MONGOHOST", "DBNAME"))]
        path = tmp_path / "config.yaml"
        path.write_text("\n".join(kept) + "\n" + database.yaml + more)
        return str(path)

    return make


def pairs(count, start=0):
    return [(np.full(3, start + n, np.int16), np.full(2, -start - n, np.float64)) for n in range(count)]


def test_wireheads_programs_run_on_their_server(tmp_path, script, wireheads, database):
    config = pathlib.Path(wireheads()).read_text()
    assert "INDEX" not in config
    run_the_tutorial(tmp_path, script, config)
    ring = tmp_path / f"{database.name}.ring"
    assert ring.is_dir() and not (ring / "index" / "counter").exists()
    with database.open() as found:
        assert set(found.list_collection_names()) == {"counter", "status"}
        # Wirehead's dataset reads this first.
        newest = found.status.find_one(sort=[("_id", -1)])
    assert newest["swapped"] is True and abs(newest["swap_timestamp"] - time.time()) < 300
    assert newest["path"] == str(ring) and newest["generation"] >= 1


def test_wireheads_unit_example_needs_no_manager(wireheads):
    path = wireheads()
    img, lab = np.random.rand(256), np.random.rand(256)
    made = WireheadGenerator(generator=((img, lab) for _ in range(10)), config_path=path, n_samples=10).run()
    assert made.finished == made.delivered == 10 and made.swaps == 1
    dataset = MongoTupleheadDataset(config_path=path, timeout=5)
    for i in range(20):
        sample, label = dataset[[i % 10]][0]
        assert (np.asarray(label) == lab).all() and (np.asarray(sample) == img.astype(np.float32)).all()


def test_wireheads_documents_are_left_unchanged(config, database):
    left = {
        "counter": [{"_id": "started", "sequence_value": 7}, {"_id": "swap_lock", "locked": True}],
        "status": [{"_id": "old", "swapped": True}, {"swapped": True, "swap_timestamp": 1.5}],
        "read.bin": [{"id": 0, "kind": "data"}],
    }
    with database.open() as found:
        for collection, documents in left.items():
            found[collection].insert_many(documents)
    ring = ringreel.Ring(config(SWAP_CAP=2, **database.keys))
    add(ring, numbered(40))
    with database.open() as found:
        for collection, documents in left.items():
            assert list(found[collection].find({"ring": None})) == documents
        # Our old counters are removed.
        assert 1 < found.counter.count_documents({"ring": ring.status()["ring_id"]}) < 12
    assert numbers(ring.dataset()) == [38, 39]


def test_documents_match_their_description(config, database):
    ring = ringreel.Ring(config(SWAP_CAP=4, COUNTER_COLLECTION="numbers", **database.keys))
    with ring.generator() as generator:
        for sample in numbered(6):
            generator.write(sample)
        status = ring.status()
        with database.open() as found:
            counters = list(found.numbers.find())
            documents = {document["_id"]: document for document in found.status.find()}
    assert {name.split(".")[1] for name in documents} == {"swap", "member"}
    assert {document["ring"] for document in [*counters, *documents.values()]} == {status["ring_id"]}
    by_generation = {counter["_id"]: counter for counter in counters}
    assert {"_id", "ring", "next", "closed"} == set(counters[0])
    assert by_generation[1]["closed"] is True and by_generation[2]["closed"] is False and by_generation[2]["next"] == 2
    swap = documents["numbers.swap"]
    assert set(swap) == {"_id", "ring", "of", "path", "swapped", "swap_timestamp", "generation", "samples"}
    assert (swap["generation"], swap["samples"], swap["path"]) == (1, 4, ring.path)
    [member] = [document for name, document in documents.items() if name.startswith("numbers.member.")]
    assert set(member) == {"_id", "ring", "of", "beat", "report"} and member["of"] == "numbers"
    assert member["report"]["role"] == "generator" and member["beat"] >= 0


def test_manager_holds_its_lease_on_the_server_and_releases_it(config, database, caplog):
    keys = config(**database.keys)
    with managed(keys, caplog):
        assert ringreel.Ring(keys).status()["manager"] is not None
        with database.open() as found:
            held = found.status.find_one("counter.lease.manager")
        assert set(held) == {"_id", "ring", "of", "token", "holder", "released"} and held["released"] is False
    with database.open() as found:
        assert found.status.find_one("counter.lease.manager")["released"] is True
        assert not list(found.status.find({"of": "counter", "beat": {"$exists": True}}))


def test_two_rings_share_a_database_by_counter_collection(config, database, tmp_path):
    rings = [
        ringreel.Ring(config(RING=str(tmp_path / name), COUNTER_COLLECTION=name, **database.keys)) for name in "ab"
    ]
    for start, ring in enumerate(rings):
        add(ring, numbered(4, start=10 * start))
    assert [numbers(ring.dataset()) for ring in rings] == [[0, 1, 2, 3], [10, 11, 12, 13]]
    with database.open() as found:
        assert {document["_id"] for document in found.status.find()} == {"a.swap", "b.swap"}


def test_collection_of_another_ring_is_refused_with_advice(config, database, tmp_path):
    add(ringreel.Ring(config(RING=str(tmp_path / "first"), **database.keys)), numbered(4))
    second = ringreel.Ring(config(RING=str(tmp_path / "second"), **database.keys))
    for use in (second.generator, lambda: ringreel.run_manager(second)):
        with pytest.raises(
            ringreel.RingMismatchError, match="first.*DBNAME or COUNTER_COLLECTION.*repair --apply --take-over"
        ):
            use()


def test_collection_of_pymongo_names_the_ring(config, database, tmp_path):
    keys = config(SAMPLE=["data", "label"], KEEP=0, **database.keys)
    ring = ringreel.Ring(keys)
    with database.open() as found:
        with pytest.raises(ringreel.ConfigError, match="has the index of no ring that has a generation: pass config_p"):
            MongoheadDataset(collection=found["read"])
        add(ring, pairs(4), promote=True)
        dataset = MongoheadDataset(collection=found["read"])
        swapped = MongoheadDataset(collection=found["read"], sample=("label", "data"))
        assert (int(dataset[3]["input"][0]), int(swapped[3]["input"][0]), len(dataset)) == (3, -3, 4)
        add(ring, pairs(4, start=10))
        assert int(pickle.loads(pickle.dumps(dataset))[3]["input"][0]) == int(dataset[3]["input"][0]) == 13
        assert dataset.missing == []
        found.status.update_one({"_id": "counter.swap"}, {"$set": {"path": "/no/such.ring"}})
        with pytest.raises(ringreel.ConfigError, match="ring /no/such.ring, which does not exist on this machine"):
            MongoheadDataset(collection=found["read"])
        second = config(RING=str(tmp_path / "second"), COUNTER_COLLECTION="b", SAMPLE=["data", "label"])
        add(ringreel.Ring({**second, **database.keys}), pairs(4))
        with pytest.raises(ringreel.ConfigError, match="the index of 2 rings .*ring, .*second.: pass config_path"):
            MongoheadDataset(collection=found["read"])
    assert not (pathlib.Path(ring.path) / "index" / "members").exists()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_and_write_independently(wireheads, method):
    path = wireheads(QUICK)
    add(ringreel.Ring(path), pairs(10))
    dataset = MongoheadDataset(path)
    assert int(dataset[3]["input"][0]) == 3  # the server was used before the fork

    def child():
        assert int(dataset[3]["input"][0]) == 3

    assert method != "fork" or in_fork(child) == 0
    context = multiprocessing.get_context(method)
    with context.Pool(3) as pool:
        found = pool.starmap(_read, [(dataset, n) for n in range(10)])
        made = pool.starmap(_write, [(path, 5, 100 * n) for n in range(1, 5)])
    assert found == list(range(10)) and made == [5] * 4
    assert int(dataset[0]["input"][0]) >= 100
    assert ringreel.Ring(path).status()["samples_generated"] == 30


def _read(dataset, index):
    return int(dataset[index]["input"][0])


def _write(path, count, start):
    return ringreel.run_generator(pairs(count, start), path).finished


def test_fork_does_not_touch_its_parents_membership(config, database):
    ring = ringreel.Ring(config(SWAP_CAP=100, **database.keys))
    generator = ring.generator()
    generator.write(numbered(1)[0])

    def child():
        with pytest.raises(ringreel.RingreelError, match="after a fork, open it again in the child"):
            generator.write(numbered(1)[0])
        until(lambda: len(ring.status()["generators"]) == 1)
        with ring.generator() as own:
            own.write(numbered(1)[0])
            until(lambda: len(ring.status()["generators"]) == 2)

    for _ in range(3):
        assert in_fork(child) == 0
    until(lambda: len(ring.status()["generators"]) == 1)
    generator.write(numbered(1)[0])
    assert generator.finish().finished == 2 and ring.status()["samples_generated"] == 5


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_read(wireheads, method):
    torch = pytest.importorskip("torch", reason="torch is not installed: workers of a DataLoader are NOT tested")
    path = wireheads(QUICK)
    add(ringreel.Ring(path), pairs(10))
    dataset = MongoheadDataset(path)
    assert float(dataset[0]["input"][0]) == 0
    for _ in range(2):
        loader = torch.utils.data.DataLoader(dataset, batch_size=5, num_workers=2, multiprocessing_context=method)
        batches = list(loader)
        assert [batch["input"][:, 0].tolist() for batch in batches] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
        assert batches[0]["input"].dtype == torch.float32 and batches[0]["label"].dtype == torch.float64


def test_pickled_ring_and_dataset_find_their_server(config, database):
    keys = config(**database.keys)
    ring = ringreel.Ring(keys)
    add(ring, numbered(4))
    dataset = ring.dataset()
    assert len(dataset) == 4
    again, copy = pickle.loads(pickle.dumps((ring, dataset)))
    assert numbers(copy) == [0, 1, 2, 3]
    assert again.status()["index"] == ring.status()["index"] and database.name in again.status()["index"]
    add(again, numbered(4, start=4))
    with database.open() as found:
        assert found.status.find_one("counter.swap")["generation"] == 2


@pytest.fixture
def silent():
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def closed():
    """A port without a listener."""
    return mongo_server.free_port()


def starters(keys):
    """Returns all functions that start a generator or a manager."""
    return [
        ringreel.Ring(keys).generator,
        lambda: ringreel.run_generator(numbered(1), keys),
        lambda: ringreel.run_manager(keys, lambda: False),
        lambda: WireheadGenerator(numbered(1), keys).run(),
        WireheadManager(keys).run_manager,
    ]


def test_wrong_port_is_an_error_and_creates_no_ring(config, closed, tmp_path):
    keys = config(MONGOHOST="127.0.0.1", PORT=closed, DBNAME="x")
    for start in starters(keys):
        begin = time.monotonic()
        with pytest.raises(
            ringreel.CoordinationUnavailableError, match=f"nothing listens at 127.*:{closed}.* is PORT right"
        ):
            start()
        assert time.monotonic() - begin < 60
    assert not (tmp_path / "ring").exists()


def test_a_server_of_another_kind_is_an_error(config, silent):
    begin = time.monotonic()
    with pytest.raises(ringreel.CoordinationUnavailableError, match="does not answer as a MongoDB does") as caught:
        ringreel.Ring(config(MONGOHOST="127.0.0.1", PORT=silent, DBNAME="x")).generator()
    assert time.monotonic() - begin < 60
    assert isinstance(caught.value, ConnectionError) and not isinstance(caught.value, PermissionError)


def test_an_unknown_host_is_an_error(config):
    begin = time.monotonic()
    with pytest.raises(ringreel.CoordinationUnavailableError, match="no-such-host.invalid.*check MONGOHOST"):
        ringreel.Ring(config(MONGOHOST="no-such-host.invalid", DBNAME="x")).generator()
    assert time.monotonic() - begin < 60


def test_server_that_refuses_differs_from_an_unreachable_one(config, database):
    uri = database.uri + ("&" if "?" in database.uri else "/?") + "tls=true"
    if mongo_server.given():
        pytest.skip("what the given server makes of TLS is not known: a refusal is NOT tested")
    begin = time.monotonic()
    with pytest.raises(ringreel.CoordinationDeniedError, match="TLS, but the server does not use TLS") as caught:
        ringreel.Ring(config(MONGOURI=uri, DBNAME=database.name)).generator()
    assert time.monotonic() - begin < 60
    assert isinstance(caught.value, PermissionError) and not isinstance(caught.value, ConnectionError)


@pytest.fixture
def tls(tmp_path, server):
    """A TLS proxy in front of the server."""
    if mongo_server.given() or shutil.which("openssl") is None:
        pytest.skip("there is no openssl, or a server of one's own: TLS is NOT tested")
    proxy = mongo_server.TlsProxy(tmp_path, int(server.rpartition(":")[2]))
    yield proxy
    proxy.end()


def test_tls_works_with_a_private_authority(config, database, tls):
    def ring(options):
        return ringreel.Ring(config(MONGOURI=f"mongodb://localhost:{tls.port}/{options}", DBNAME=database.name))

    for options, kind, message in [
        ("", ringreel.CoordinationUnavailableError, "If it requires TLS, add tls=true to MONGOURI"),
        ("?tls=true", ringreel.CoordinationDeniedError, "UnknownIssuer.*set tlsCAFile"),
        ("?tls=true&tlsCAFile=/no/such.pem", ringreel.ConfigError, "/no/such.pem"),
    ]:
        begin = time.monotonic()
        with pytest.raises(kind, match=message):
            ring(options).generator()
        assert time.monotonic() - begin < 60
    add(ring(f"?tls=true&tlsCAFile={tls.authority}"), numbered(4))
    with database.open() as found:
        assert found.status.find_one("counter.swap")["generation"] == 1


def test_readers_need_no_server(config, closed):
    add(ringreel.Ring(config()), numbered(4))
    ring = ringreel.Ring(config(MONGOHOST="127.0.0.1", PORT=closed, DBNAME="x"))
    assert numbers(ring.dataset()) == numbers(ring.stream(epochs=1)) == [0, 1, 2, 3]
    status = ring.status()
    assert "nothing listens" in status["index_away"] and status["samples_delivered"] == 4
    assert f"127.0.0.1:{closed}" in status["index"]


def shown(keys, caplog):
    """Returns all output about a configuration and about its use."""
    said = []
    ring = ringreel.Ring(keys)
    said += [repr(ring), str(ring), repr(ring._config), repr(ring.dataset()), repr(ring.stream())]
    said += [repr(vars(ring)), repr(ring._config.notes)]
    reads = [ring.status, lambda: numbers(ring.dataset()), lambda: numbers(ring.stream(epochs=1))]
    for start in (*starters(keys)[1:3], *reads):
        try:
            said.append(repr(start()))
        except (ringreel.RingreelError, OSError) as error:
            said += [str(error), repr(error), repr(error.args), repr(vars(error))]
            said += traceback.format_exception(type(error), error, error.__traceback__)
            said.append(str(pickle.loads(pickle.dumps(error))))
    return "\n".join([*said, caplog.text])


def commands(path):
    """Returns the command's output about a configuration."""
    said = []
    for words in (["config"], ["config", "--json"], ["status"], ["manager", "-v"], ["read", "--all"]):
        done = subprocess.run(
            [sys.executable, "-m", "ringreel", *words, "-c", str(path)], capture_output=True, text=True, timeout=60
        )
        said += [done.stdout, done.stderr]
    return "\n".join(said)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("MONGOURI", "closed"),
        ("MONGOURI", "silent"),
        ("MONGOURI", "server"),
        ("MONGOHOST", "closed"),
        ("MONGOHOST", "server"),
    ],
)
def test_password_appears_in_no_output(config, request, tmp_path, caplog, kind, key):
    """Covers a port without a listener, a server that is not MongoDB, and a MongoDB without users."""
    at = request.getfixturevalue(kind)
    if kind == "server" and mongo_server.given():
        pytest.skip("the given server is no place for made-up users")
    add(ringreel.Ring(config()), numbered(4))
    at = f"127.0.0.1:{at}" if isinstance(at, int) else at.removeprefix("mongodb://")
    host, port = at.split(":")
    if key == "MONGOURI":
        keys = config(MONGOURI=f"mongodb://me:{SECRET}@{at}/admin?appName={SECRET}", DBNAME="x")
    else:
        keys = config(MONGOHOST=f"me:{SECRET}@{host}", PORT=int(port), DBNAME="x")
    path = tmp_path / "config.yaml"
    path.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in keys.items()))
    said = shown(keys, caplog) + commands(path)
    assert f"mongodb://me:***@{at}" in said or f"me:***@{host}" in said
    assert "CoordinationUnavailableError" in said or "CoordinationDeniedError" in said
    assert SECRET not in said
    assert kind != "server" or "login refused" in said


@pytest.mark.parametrize(
    "given",
    [
        {"MONGOURI": f"mongodb:/me:{SECRET}@db"},
        {"MONGOURI": f"mongodb://me:{SECRET}@db:port"},
        {"MONGOURI": f"mongodb://me:{SECRET}/@db/?tls=perhaps"},
        {"MONGOURI": [f"mongodb://me:{SECRET}@db"]},
        {"MONGOHOST": f"mongodb://me:{SECRET}@db"},
        {"MONGOHOST": "db", "MONGOURI": f"mongodb://me:{SECRET}@db"},
        {"MONGOURL": f"mongodb://me:{SECRET}@db"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_password_of_an_invalid_connection_string_is_not_shown(config, given, tmp_path):
    path = tmp_path / "config.yaml"
    keys = config(DBNAME="x", **given)
    path.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in keys.items()))
    for use in (keys, path):
        with pytest.raises(ringreel.ConfigError, match="MONGO") as caught:
            ringreel.Ring(use).generator()
        error = caught.value
        said = traceback.format_exception(type(error), error, error.__traceback__)
        assert SECRET not in "".join(said) + repr(error.__dict__)
    assert SECRET not in commands(path)


@pytest.fixture
def restartable():
    """A server that can be killed, and restarted empty."""
    if (lacking := mongo_server.lacking()) is not None:
        pytest.skip(lacking)
    servers = [mongo_server.JavaServer(mongo_server.free_port())]
    yield servers
    servers[-1].end()


def test_dataset_that_waits_for_a_ring_notices_a_lost_server(config, restartable, caplog):
    keys = config(SAMPLE=["data", "label"], **mongo_server.Database(restartable[-1].uri).keys)
    caplog.set_level("INFO", "ringreel")
    lengths = []
    waits = threading.Thread(target=lambda: lengths.append(len(MongoheadDataset(keys))), daemon=True)
    waits.start()
    until(lambda: "no generator or manager has started yet" in caplog.text)
    restartable[-1].end()
    until(lambda: f"MongoDB at 127.0.0.1:{keys['PORT']}" in caplog.text)
    add(ringreel.Ring({**keys, "INDEX": "files"}), pairs(4))
    waits.join(60)
    assert lengths == [4]


def test_ring_continues_without_its_server_and_uses_the_next_one(config, restartable, caplog):
    database = mongo_server.Database(restartable[-1].uri)
    keys = config(KEEP=20, **database.keys)
    ring = ringreel.Ring(keys)
    with managed(keys, caplog), ring.generator() as generator:
        samples = iter(numbered(100))

        def write(count):
            begin = time.monotonic()
            for _ in range(count):
                generator.write(next(samples))
            return time.monotonic() - begin

        write(6)
        assert ring.status()["index_away"] is None and ring.status()["manager"] is not None
        restartable[-1].end()
        assert write(10) < 60
        until(lambda: ring.status()["swaps"] == 4)
        assert "The ring continues without its index until the server answers" in caplog.text
        status = ring.status()
        assert status["index_away"] is not None and status["manager"] is None and numbers(ring.dataset())
        restartable.append(mongo_server.JavaServer(restartable[-1].port))
        until(lambda: caplog.text.count("answers again") >= 2)
        write(4)
        until(lambda: ring.status()["swaps"] == 5)
        assert ring.status()["index_away"] is None
        until(lambda: len(ring.status()["generators"]) == len(ring.status()["managers"]) == 1)
        until(lambda: ring.status()["manager"] is not None, seconds=5)  # the manager pauses after a long round
        with database.open() as found:
            until(lambda: (found.status.find_one("counter.swap") or {}).get("generation") == 5)
    assert sorted(everything(ring)) == list(range(20))


def everything(ring):
    """Returns the numbers of all kept samples."""
    found = []
    for generation in ring.status()["generations"]:
        dataset = ring.dataset()
        dataset._wanted = generation["generation"]
        found += numbers(dataset)
    return found
