"""The command `ringreel` of the package."""

import subprocess
import sys

import ringreel


def command(*args, cwd):
    return subprocess.run([sys.executable, "-m", "ringreel", *args], cwd=cwd, capture_output=True, text=True)


def test_command_is_installed(tmp_path):
    done = command("--version", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.strip() == f"ringreel {ringreel.__version__}"
    done = command("nonsense", cwd=tmp_path)
    assert done.returncode == 2 and "nonsense" in done.stderr


def test_command_sees_the_same_ring(tmp_path):
    (tmp_path / "config.yaml").write_text("DBNAME: x\nSWAP_CAP: 3\nSAMPLE: [data]\n")
    ringreel.run_generator([(n,) for n in range(3)], tmp_path / "config.yaml")
    done = command("status", "--json", cwd=tmp_path)
    assert done.returncode == 0 and '"samples_delivered":3' in done.stdout.replace(" ", ""), done.stderr
