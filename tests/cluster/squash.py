"""A ring of two users on an export with root_squash.

Two users of a group share a ring in a directory of that group (RING_MODE 2770). The server maps
root to the user nobody, so root is refused there with a reason; a ring of root's belongs to nobody
and works.
"""

CONFIG = """\
RING: {ring}
SWAP_CAP: 5
SAMPLE: [data]
INDEX: files
LEASE_SECONDS: 3
"""


def user(number, *command):
    """A command line that runs as a user of the group."""
    return [
        "setpriv",
        "--reuid",
        1000 + number,
        "--regid",
        1000 + number,
        "--groups",
        2000,
        *command,
    ]


def run(lab):
    """Returns [(step, whether it met the expectation, output)]."""
    directory, where = lab.part("squash"), lab.dir / "squashed"
    shared, own = directory / "shared.yaml", directory / "own.yaml"
    lab.put(shared, CONFIG.format(ring=where / "group/of.ring") + 'RING_MODE: "2770"\n')
    lab.put(own, CONFIG.format(ring=where / "nobody.ring"))
    group = "/export/squash/group"
    lab.server.run(
        "sh",
        "-c",
        f"chmod 1777 /export/squash; mkdir -p {group}; chown 1001:2000 {group}; chmod 2770 {group}",
    )
    one, other = lab.nodes
    for node in lab.nodes:
        node.run("chmod", "-R", "a+rX", lab.dir / "squash")
        lab.mount(node, where=where, what="/squash")
    told = []

    def look(what, node, command, good):
        done = node.do(*command, timeout=150)
        told.append(
            (what, good(done), f"status {done.status}: {(done.err or done.out).strip()[-200:]}")
        )

    def fine(done):
        return done.status == 0

    def seven(done):
        return done.status == 0 and len(done.out.splitlines()) == 7

    def refused(done):
        return done.status not in (0, None) and "ermission denied" in done.err

    ringreel = lab.ringreel
    generate = [ringreel, "generate", "--shape", 8, "--samples", 7]
    read = [ringreel, "read", "--all", "--json", "-c"]
    look("user 1 generates 7 samples", one, user(1, *generate, "-c", shared), fine)
    manage = user(2, "timeout", 15, ringreel, "manager", "-c", shared)
    look("user 2 manages on the other node", other, manage, lambda done: done.status in (0, 124))
    look("user 2 seals", other, user(2, ringreel, "promote", "-c", shared), fine)
    look("user 2 reads all 7", other, user(2, *read, shared), seven)
    look("root cannot read them", other, [*read, shared, "--timeout", 3], refused)
    one_more = [ringreel, "generate", "--shape", 8, "--samples", 1, "-c"]
    look("root cannot generate there", other, ["timeout", 60, *one_more, shared], refused)
    look("root generates in a ring of nobody", one, [*generate, "--promote", "-c", own], fine)
    look("root reads all 7 on the other node", other, [*read, own], seven)
    for node in lab.nodes:
        node.run("umount", where)
    return told
