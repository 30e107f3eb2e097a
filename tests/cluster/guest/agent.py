"""Runs commands in a virtual machine for the lab on the host.

A connection carries one request: a line of JSON, {"do": name, ...} (and bytes, for `put`). The answer
is a line of JSON whose `size` says how many bytes follow.
"""

import json
import os
import socketserver
import subprocess

SPAWNED = {}


class Handler(socketserver.StreamRequestHandler):
    """One request."""

    def handle(self):
        request = json.loads(self.rfile.readline() or b"null")
        if not request:
            return
        try:
            answer, data = getattr(self, "do_" + request.pop("do"))(**request)
        except Exception as error:  # the host raises it
            answer, data = {"error": repr(error)}, b""
        self.wfile.write(json.dumps({**answer, "size": len(data)}).encode() + b"\n" + data)

    def do_run(self, argv, timeout):
        """Runs a command to its end."""
        pipe = subprocess.PIPE
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        )
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # It may hang in a system call, where no signal reaches it, so it is abandoned.
            child.kill()
            return {"status": None, "out": "", "err": f"no end within {timeout} s"}, b""
        out, err = out.decode(errors="replace"), err.decode(errors="replace")
        return {"status": child.returncode, "out": out, "err": err}, b""

    def do_spawn(self, argv, out, err):
        """Starts a command whose output is appended to files."""
        with open(out, "ab") as one, open(err, "ab") as two:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=one, stderr=two, start_new_session=True
            )
        SPAWNED[child.pid] = child
        return {"pid": child.pid}, b""

    def do_poll(self):
        """Exit statuses of all that was spawned; null while it runs."""
        return {"statuses": {pid: child.poll() for pid, child in list(SPAWNED.items())}}, b""

    def do_kill(self, pid, number):
        """Signals a spawned process. Until it is polled it is a zombie, so its pid is not reused."""
        if SPAWNED[pid].returncode is None:
            os.kill(pid, number)
        return {}, b""

    def do_put(self, path, size):
        """Writes a file."""
        data = self.rfile.read(size)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return {}, b""

    def do_grown(self, directory, have):
        """What the files of a directory have beyond the host's copy: {path: bytes}, and the bytes."""
        grown, data = {}, []
        for top, _, names in os.walk(directory):
            for name in names:
                path = os.path.join(top, name)
                key = os.path.relpath(path, directory)
                try:
                    with open(path, "rb") as file:
                        file.seek(have.get(key, 0))
                        new = file.read()
                except OSError:
                    continue  # renamed meanwhile
                if new:
                    grown[key] = len(new)
                    data.append(new)
        return {"grown": grown}, b"".join(data)


class Server(socketserver.ThreadingTCPServer):
    """Listens only on the network card that leads to the host."""

    allow_reuse_address = True
    daemon_threads = True


Server(("10.0.2.15", 5000), Handler).serve_forever()
