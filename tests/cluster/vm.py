"""Virtual machines under QEMU, each with a separate kernel.

They share a network that is multicast on the loopback device, so they run in a network namespace
without any other device (scripts/cluster.sh makes it). Through a second network card the lab talks
to the agent on each machine (guest/agent.py), and the machine reaches one port of the host. KVM is
not required; `LAB_ACCEL=kvm` uses it.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from lab import Done, LabError, until

ADDRESS = "10.78.0.%d"
# The host's address and port, as seen from a machine.
HOST, HOST_PORT = "10.0.2.100", 27017
# On a busy host a booting kernel may miss timer ticks and would consider its timer broken.
FLAGS = "mitigations=off no_timer_check"
BOOT_SECONDS = 150


def free_port():
    """Returns a free port of the loopback device."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class VmProcess:
    """A process in a machine."""

    def __init__(self, vm, name, pid):
        self.vm, self.name, self.pid, self.life, self.status = vm, name, pid, vm.life, None

    def ended(self):
        """The exit status, or None while it runs. A power cut counts as SIGKILL."""
        if self.status is None:
            if self.life != self.vm.life or not self.vm.alive():
                self.status = -signal.SIGKILL
            else:
                self.status = self.vm.statuses().get(str(self.pid))
        return self.status

    def send(self, number):
        """Signals it."""
        if self.ended() is None:
            self.vm.ask({"do": "kill", "pid": self.pid, "number": int(number)})

    def end(self, number=signal.SIGKILL, seconds=60):
        """Signals it and waits; returns its exit status, or None if SIGKILL does not end it."""
        for one in (number, signal.SIGKILL):
            self.send(one)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if self.ended() is not None:
                    return self.status
                time.sleep(0.2)
        return None


class Vm:
    """One machine."""

    def __init__(self, name, number, role, images, directory, group, words, disk=None):
        self.name, self.number, self.role = name, number, role
        self.images, self.dir, self.group, self.disk, self.words = (
            images,
            directory,
            group,
            disk,
            words,
        )
        self.popen, self.life, self.port = None, 0, None
        self.monitor = directory / f"{name}.monitor"
        self.lock, self.known, self.asked = threading.Lock(), {}, 0.0

    def power(self):
        """Turns the machine on without waiting for it."""
        self.port, self.life, self.known = free_port(), self.life + 1, {}
        words = f"lab.name={self.name} lab.number={self.number} lab.role={self.role} {self.words}"
        command = ["setpriv", "--pdeathsig", "KILL", "nice", "-n", "5", "qemu-system-x86_64"]
        command += [
            "-accel",
            os.environ.get("LAB_ACCEL", "tcg"),
            "-cpu",
            "max",
            "-smp",
            "1",
            "-m",
            "768",
        ]
        command += ["-nodefaults", "-display", "none", "-no-reboot", "-rtc", "base=utc"]
        command += ["-kernel", self.images / "vmlinuz", "-initrd", self.images / "initrd.gz"]
        command += ["-append", f"console=ttyS0 quiet {FLAGS} {words}"]
        disks = [
            (self.images / "root.img", "snapshot=on"),
            (self.dir / "program.tar", "readonly=on"),
        ]
        if self.disk:
            disks.append((self.disk, "cache=writeback"))
        for path, option in disks:
            command += ["-drive", f"file={path},if=virtio,format=raw,{option}"]
        line = f"hostfwd=tcp:127.0.0.1:{self.port}-10.0.2.15:5000"
        # QEMU starts this for each connection; its error messages must not reach the machine.
        relay = f"sh -c 'exec busybox nc 127.0.0.1 {HOST_PORT} 2>/dev/null'"
        line += f",guestfwd=tcp:{HOST}:{HOST_PORT}-cmd:{relay}"
        command += ["-netdev", f"user,id=line,restrict=on,{line}"]
        command += ["-device", "virtio-net-pci,netdev=line,romfile="]
        command += ["-netdev", f"socket,id=lan,mcast={self.group},localaddr=127.0.0.1"]
        address = f"52:54:00:78:00:{self.number:02x}"
        command += ["-device", f"virtio-net-pci,netdev=lan,id=lan0,mac={address},romfile="]
        command += ["-monitor", f"unix:{self.monitor},server=on,wait=off"]
        command += ["-serial", f"file:{self.console()}"]
        environment = {**os.environ, "TMPDIR": str(self.dir)}  # for QEMU's writes to root.img
        self.popen = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, env=environment
        )

    def console(self):
        """The file with the console's output since the power was last turned on."""
        return self.dir / "logs" / f"{self.name}.{self.life}.console"

    def wait_up(self):
        """Waits until the machine answers."""

        def up():
            if self.popen.poll() is not None:
                raise LabError(f"qemu of {self.name} ended with status {self.popen.returncode}")
            console = self.console()
            if not console.exists() or "is up after" not in console.read_text(errors="replace"):
                return False
            try:
                self.ask({"do": "poll"}, 5)
            except LabError:
                return False
            return True

        try:
            until(f"{self.name} to boot", up, BOOT_SECONDS)
        except LabError:
            self.stop()
            self.power()
            until(f"{self.name} to boot, twice", up, 2 * BOOT_SECONDS)

    def start(self):
        """Turns the machine on and waits for it."""
        self.power()
        self.wait_up()

    def stop(self):
        """Cuts its power; what its kernel did not write to its disk is lost."""
        if self.popen:
            self.popen.kill()
            self.popen.wait()
            self.popen = None

    def alive(self):
        """Whether it has power."""
        return self.popen is not None and self.popen.poll() is None

    def cable(self, there):
        """Pulls the cable to the cluster's network, or plugs it in."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(10)
            line.connect(str(self.monitor))
            line.sendall(f"set_link lan0 {'on' if there else 'off'}\n".encode())
            time.sleep(0.3)
            line.recv(1 << 16)

    # The agent

    def ask(self, request, seconds=60, data=b""):
        """Sends a request to the agent; returns the answer, with its bytes as `data`."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as line:
                line.settimeout(seconds)
                line.sendall(json.dumps(request).encode() + b"\n" + data)
                with line.makefile("rb") as file:
                    answer = json.loads(file.readline())
                    answer["data"] = file.read(answer["size"])
        except (OSError, ValueError) as error:
            raise LabError(f"{self.name} does not answer: {error}") from error
        if "error" in answer or len(answer["data"]) != answer["size"]:
            raise LabError(f"{self.name}: {answer.get('error', 'an answer was cut short')}")
        return answer

    def statuses(self):
        """Exit statuses of all spawned processes, at most 0.3 s old."""
        with self.lock:
            if time.monotonic() - self.asked > 0.3:
                self.known, self.asked = self.ask({"do": "poll"})["statuses"], time.monotonic()
            return self.known

    def do(self, *command, timeout=60):
        """Runs a command; returns how it ended."""
        request = {"do": "run", "argv": list(map(str, command)), "timeout": timeout}
        answer = self.ask(request, timeout + 30)
        return Done(answer["status"], answer["out"], answer["err"])

    def run(self, *command, check=True, timeout=60):
        """Runs a command; returns its output."""
        done = self.do(*command, timeout=timeout)
        if check and done.status != 0:
            words = " ".join(map(str, command))
            raise LabError(f"{self.name}: {words}: status {done.status}: {done.out}{done.err}")
        return done.out

    def spawn(self, name, *command, stdout="/dev/null", stderr="/dev/null"):
        """Starts a command; appends its output to files of the machine."""
        request = {
            "do": "spawn",
            "argv": list(map(str, command)),
            "out": str(stdout),
            "err": str(stderr),
        }
        return VmProcess(self, name, self.ask(request)["pid"])

    def put(self, path, data):
        """Writes a file."""
        self.ask({"do": "put", "path": str(path), "size": len(data)}, data=data)

    def fetch(self, directory, here):
        """Copies to the host what the files of a directory have grown by."""
        have = {}
        for top, _, names in os.walk(here):
            for name in names:
                path = os.path.join(top, name)
                have[os.path.relpath(path, here)] = os.path.getsize(path)
        answer = self.ask({"do": "grown", "directory": str(directory), "have": have})
        at = 0
        for key, size in answer["grown"].items():
            path = Path(here) / key
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab") as file:
                file.write(answer["data"][at : at + size])
            at += size

    @property
    def address(self):
        """Its address in the cluster's network."""
        return ADDRESS % self.number


def program_tar(ringreel, directory):
    """Packs the program under test, without debug information, for all machines."""
    copy = directory / "ringreel"
    shutil.copy(ringreel, copy)
    if shutil.which("strip"):
        subprocess.run(["strip", copy], check=False)
    subprocess.run(
        ["tar", "-C", directory, "-cf", directory / "program.tar", "ringreel"], check=True
    )
    copy.unlink()
