"""SLURM in the lab: slurmctld on the server, a slurmd on each node. Jobs are submitted from the first node.

There are two partitions on the same nodes: jobs in `urgent` preempt those in `spare`, which are queued again.
"""

import os
import time

from namespaces import ADDRESS, SERVER
from lab import until

CPUS = 10  # per node, in SLURM's configuration
CONF = """\
ClusterName=lab
SlurmctldHost={server.name}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock,cred_expire=3
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool.%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmctldLogFile={logs}/slurmctld.log
SlurmdLogFile={logs}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
SlurmdTimeout=10
ReturnToService=2
KillWait=5
JobRequeue=1
{nodes}
PartitionName=DEFAULT Nodes=ALL MaxTime=INFINITE State=UP
PartitionName=spare Default=YES PriorityTier=1 GraceTime=5
PartitionName=urgent PriorityTier=2 PreemptMode=OFF
"""


class Slurm:
    """The batch system of a lab."""

    def __init__(self, lab):
        self.lab, self.dir = lab, lab.dir / "slurm"
        self.conf = self.dir / "slurm.conf"

    def start(self):
        """Starts all daemons, and waits until the nodes are idle."""
        server = self.lab.server
        (self.dir / "state").mkdir(parents=True)
        (self.dir / "munge").mkdir(mode=0o700)
        key = self.dir / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        nodes = "\n".join(
            f"NodeName={node.name} NodeAddr={ADDRESS % node.number} CPUs={CPUS} RealMemory=4000 State=UNKNOWN"
            for node in self.lab.nodes
        )
        conf = CONF.format(server=server, address=SERVER, dir=self.dir, logs=self.lab.logs, nodes=nodes)
        self.conf.write_text(conf)
        places = {"socket": "munge.sock", "pid-file": "munged.pid", "seed-file": "munge/seed", "key-file": "munge/key"}
        options = [f"--{name}={self.dir / place}" for name, place in places.items()]
        server.run("munged", "--force", *options, f"--log-file={self.lab.logs / 'munged.log'}")
        server.run("slurmctld", "-f", self.conf)
        for node in self.lab.nodes:
            self.start_node(node)
        until("idle nodes", lambda: self.ask("sinfo", "-h", "-o", "%t", "-p", "spare").split() == ["idle"])

    def start_node(self, node):
        """Starts a node's slurmd."""
        (self.dir / f"spool.{node.name}").mkdir(exist_ok=True)
        node.run("slurmd", "-f", self.conf, "-N", node.name)

    def ask(self, *command, check=True, **environment):
        """Runs a SLURM command on the first node; returns its output."""
        path = os.environ["PATH"]
        pairs = {"SLURM_CONF": self.conf, "PATH": path, **environment}
        given = [f"{name}={value}" for name, value in pairs.items()]
        return self.lab.nodes[0].run("env", *given, *command, check=check)

    def submit(self, *options, **environment):
        """Runs sbatch; returns the job's number."""
        return self.ask("sbatch", "--parsable", *options, **environment).strip()

    def states(self, job):
        """{task of an array, or the job itself: (state, node)}."""
        lines = self.ask("squeue", "-h", "-r", "-j", job, "-o", "%i %t %N", check=False).splitlines()
        rows = [line.split() for line in lines]
        return {row[0]: (row[1], row[2] if len(row) > 2 else "") for row in rows}

    def start_now(self):
        """Starts requeued tasks now; SLURM would let them wait for about two minutes.

        This must not happen at once: a node does not start a job while it holds the credential of its earlier run.
        """
        time.sleep(5)
        for task in self.ask("squeue", "-h", "-r", "-t", "PD", "-o", "%i").split():
            self.ask("scontrol", "update", f"JobId={task}", "StartTime=now", check=False)
