"""The C library, installed as a user would, and the programs of examples/c that use it.

Run with an interpreter that has the Python package, which reads what the programs wrote. RINGREEL_PREFIX names an
installed library, such as one of the release profile, to test instead of building one. CFLAGS are passed to the
compilers:

    CFLAGS='-g -fsanitize=address,undefined -fno-sanitize-recover=all' RINGREEL_PREFIX=~/.local pytest capi/tests
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import ringreel

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples" / "c"
CFLAGS = os.environ.get("CFLAGS", "").split()
SAMPLES = 1000
# Catches programs that hang.
SECONDS = 600
CONFIG = "DBNAME: demo\nSWAP_CAP: 100\nSAMPLE: [number, field]\nKEEP: 1000\nLEASE_SECONDS: 1\n"


def run(*command, **options):
    """Runs a command and returns what it printed; its stderr is in the error if it fails."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=SECONDS, check=False, **options
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def needs(tool):
    """Skips a test on a machine without this compiler."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """Where the library is installed."""
    needs("cc")
    if installed := os.environ.get("RINGREEL_PREFIX"):
        return Path(installed).expanduser().absolute()
    prefix = tmp_path_factory.mktemp("prefix")
    run(ROOT / "capi" / "install.sh", prefix, env={**os.environ, "PROFILE": "dev"})
    return prefix


@pytest.fixture
def flags(prefix):
    """What pkg-config says about the library, and where programs find it when they run."""
    needs("pkg-config")
    path = str(prefix / "lib" / "pkgconfig")
    found = run("pkg-config", "--cflags", "--libs", "ringreel", env={**os.environ, "PKG_CONFIG_PATH": path})
    return [*CFLAGS, *found.split(), f"-Wl,-rpath,{prefix}/lib"]


@pytest.fixture
def here(tmp_path):
    """A directory with a configuration."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def numbers_of(directory, language):
    """Checks every sample of a ring against its definition; returns how often each number was read."""
    ring = ringreel.Ring(directory / "config.yaml")
    numbers = Counter()
    for generation in range(1, ring.status()["newest"] + 1):
        for sample in ring.dataset(generation=generation):
            number = int(sample["number"])
            expected = (number + 0.5 * np.arange(512)).astype(np.float32).reshape(8, 8, 8)
            assert sample["number"].shape == () and sample["number"].dtype == np.int64
            assert sample["field"].dtype == np.float32 and np.array_equal(sample["field"], expected)
            assert sample.meta["seed"] == number and sample.meta["language"] == language
            numbers[number] += 1
    return numbers


def numbers_after_adoption(directory, language, wanted):
    """Runs a manager, which adopts what generators left behind, until all wanted numbers are readable.

    Returns how often each number was read.
    """
    command = Path(sys.executable).parent / "ringreel"
    with subprocess.Popen(
        [command, "manager", "-c", "config.yaml"], cwd=directory, stderr=subprocess.DEVNULL
    ) as manager:
        numbers, deadline = Counter(), time.monotonic() + SECONDS
        while not wanted <= set(numbers):
            assert time.monotonic() < deadline, f"lost: {wanted - set(numbers)}"
            time.sleep(0.5)
            # A generation need not be full to become readable.
            subprocess.run([command, "promote", "-c", "config.yaml"], cwd=directory, capture_output=True, check=False)
            numbers = numbers_of(directory, language)
        manager.terminate()
    return numbers


def check_program(program, here, language):
    """Runs a program that writes SAMPLES samples, and reads them."""
    assert run(program, "config.yaml", SAMPLES, cwd=here).split()[-1] == str(SAMPLES)
    assert numbers_of(here, language) == Counter(range(SAMPLES))


def test_c_program_writes_samples(flags, here):
    """A C program, compiled without a warning."""
    run("cc", "-Wall", "-Wextra", "-Werror", EXAMPLES / "generator.c", *flags, "-o", here / "generator")
    check_program(here / "generator", here, "C")


def test_cpp_program_writes_samples(flags, here):
    """A C++ program, compiled without a warning."""
    needs("c++")
    warnings = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
    run("c++", *warnings, EXAMPLES / "generator.cpp", *flags, "-o", here / "generator")
    check_program(here / "generator", here, "C++")


def test_fortran_program_writes_samples(prefix, flags, here):
    """A Fortran program: its arrays arrive with reversed axes, and the same elements."""
    needs("gfortran")
    module = prefix / "share" / "ringreel" / "ringreel.f90"
    run("gfortran", "-Wall", module, EXAMPLES / "generator.f90", *flags, "-o", here / "generator", cwd=here)
    check_program(here / "generator", here, "Fortran")


def test_mpi_ranks_write_into_one_ring(flags, here):
    """One generator per rank."""
    needs("mpicc")
    needs("mpirun")
    run("mpicc", EXAMPLES / "mpi_generator.c", *flags, "-o", here / "generator")
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    printed = run("mpirun", "-n", 4, here / "generator", "config.yaml", SAMPLES // 4, cwd=here, env=environment)
    assert printed.split()[-1] == str(SAMPLES)
    # What a rank had no room for when it closed its generator is adopted.
    assert numbers_after_adoption(here, "C", set(range(SAMPLES))) == Counter(range(SAMPLES))


def test_cmake_finds_the_libraries(prefix, here):
    """The CMake package, with the shared and with the static library."""
    needs("cmake")
    run("cmake", "-S", EXAMPLES, "-B", here / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", here / "build")
    linked = run("ldd", here / "build" / "generator_static")
    assert "libringreel" not in linked
    check_program(here / "build" / "generator_static", here, "C")


def test_killed_program_loses_no_finished_sample(flags, here):
    """After SIGKILL, every sample that was reported as finished is read exactly once."""
    run("cc", EXAMPLES / "generator.c", *flags, "-o", here / "generator")
    finished = 0
    with subprocess.Popen(
        [here / "generator", "config.yaml", "1000000000"], cwd=here, stdout=subprocess.PIPE, text=True
    ) as process:
        while finished < SAMPLES:
            finished = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        finished = max([finished, *(int(line) for line in process.stdout if line.endswith("\n"))])
    numbers = numbers_after_adoption(here, "C", set(range(finished)))
    assert set(numbers.values()) == {1}


def test_sanitizers_find_nothing(flags, here):
    """No invalid access, undefined behaviour or leak, in the C example and after mistakes of the caller."""
    sanitizers = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    (here / "empty.c").write_text("int main(void) { return 0; }")
    if subprocess.run(["cc", *sanitizers, here / "empty.c", "-o", here / "empty"], capture_output=True).returncode != 0:
        pytest.skip("cc has no sanitizers")
    warnings = ["-Wall", "-Wextra", "-Werror"]
    run("cc", *warnings, *sanitizers, EXAMPLES / "generator.c", *flags, "-o", here / "generator")
    check_program(here / "generator", here, "C")
    mistakes = ROOT / "capi" / "tests" / "mistakes.c"
    run("cc", *warnings, *sanitizers, mistakes, *flags, "-lm", "-o", here / "mistakes")
    assert run(here / "mistakes", "config.yaml", cwd=here) == ""


def test_mistakes_have_codes_and_messages(prefix, here):
    """Errors of the caller and of the configuration, through ctypes."""
    import ctypes

    library = ctypes.CDLL(str(prefix / "lib" / "libringreel.so"))
    library.ringreel_message.restype = library.ringreel_version.restype = ctypes.c_char_p
    generator = ctypes.c_void_p()

    def message():
        return library.ringreel_message().decode()

    assert library.ringreel_open(None, ctypes.byref(generator)) == 1 and "null pointer" in message()
    assert library.ringreel_open(b"nothing.yaml", ctypes.byref(generator)) == 2 and "nothing.yaml" in message()
    assert generator.value is None
    assert library.ringreel_commit(None) == 1
    assert library.ringreel_open(str(here / "config.yaml").encode(), ctypes.byref(generator)) == 0 and message() == ""
    assert library.ringreel_part(generator, b"number", b"int65", ctypes.c_size_t(0), None, None) == 1
    assert "int65" in message()
    number = ctypes.c_int64(7)
    assert library.ringreel_part(generator, b"number", b"int64", ctypes.c_size_t(0), None, ctypes.byref(number)) == 0
    assert library.ringreel_commit(generator) == 4 and "field" in message()
    assert library.ringreel_close(generator, 0, None) == 0
    assert library.ringreel_version().decode() == ringreel.__version__


def test_stop_ends_a_wait(flags, here):
    """A program that waits for room ends at SIGTERM, and keeps what it finished."""
    (here / "config.yaml").write_text(CONFIG + "REUSE: {min: 1, max: 0}\nSEGMENT_SAMPLES: 1\n")
    run("cc", EXAMPLES / "generator.c", *flags, "-o", here / "generator")
    with subprocess.Popen(
        [here / "generator", "config.yaml", "1000000000"], cwd=here, stdout=subprocess.PIPE, text=True
    ) as process:
        # Without a reader, generators fill one generation ahead and wait.
        while int(process.stdout.readline()) < 200:
            pass
        process.terminate()
        finished = int(process.stdout.read().split()[-1])
        assert process.wait(SECONDS) == 0
    numbers = numbers_of(here, "C")
    assert set(numbers.values()) == {1} and set(numbers) <= set(range(finished))
