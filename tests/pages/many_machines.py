"""Runs the commands of docs/many_machines.md, each block as it stands: workers must meet, train and end well.

What one machine does not have is replaced: ssh and srun by scripts that start the same commands here, the host `a` by an
address of this machine, ports by free ones. Kubernetes' Job is run as the processes that it describes.

With --slurm only the batch scripts run, as such: by sbatch of the Slurm that SLURM_CONF names, which has one node.
"""

import argparse
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```(sh|yaml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LAUNCHERS = re.compile(r"^(TF_CONFIG|RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|SLURM_.*|OMPI_.*|PMI.*|LOCKSTEP_.*)$")

SSH = """#!/bin/sh
for command; do :; done
cd / && exec sh -c "$command"
"""

# Every task gets all of the input.
SRUN = """#!/bin/sh
tasks=$SLURM_NTASKS
while [ "${1#--}" != "$1" ]; do case $1 in --ntasks=*) tasks=${1#--ntasks=};; esac; shift; done
folder=$(mktemp -d)
status=0
fifos= pids=
for task in $(seq 0 $((tasks - 1))); do
  mkfifo "$folder/$task"
  SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$tasks SLURM_STEP_NODELIST=localhost \\
    "$@" < "$folder/$task" &
  fifos="$fifos $folder/$task" pids="$pids $!"
done
tee $fifos > /dev/null
for pid in $pids; do wait $pid || status=$?; done
rm -r "$folder"
exit $status
"""

RUN = """{"model": {"zoo": "mlp", "hidden": [16]}, "data": {"name": "digits", "train_size": 512, "test_size": 128},
 "fit": {"epochs": 2, "batch_size": 64, "verbose": 2}}"""


def own_address():
    """An address of this machine that is not the loopback's; None where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


class Page:
    def __init__(self, folder, arguments):
        self.folder = pathlib.Path(folder)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.slurm = arguments.slurm
        for name, text in {"ssh": SSH, **({} if self.slurm else {"srun": SRUN})}.items():
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        os.symlink(arguments.tool.resolve(), self.bin / "lockstep")
        # A core for each, as on machines of their own: workers that take all cores of one would wait for each other.
        program = self.folder / "many_workers"
        program.write_text(f'#!/bin/sh\nexec taskset -c $(($$ % {os.cpu_count()})) "{arguments.program.resolve()}"\n')
        program.chmod(0o755)
        (self.folder / "run.json").write_text(RUN)

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}
        path = f"{self.bin}:{kept.get('PATH', '')}"
        # Of the container that tests run in: as root, and with fewer cores than workers.
        mpi = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        return {**kept, **mpi, "PATH": path, "LOCKSTEP_LOG": "info", **more}

    def shell(self, block, **more):
        return subprocess.run(["sh", "-e", "-c", block], cwd=self.folder, env=self.environment(**more), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run_sh(self, block):
        if "--hosts a:" in block:
            address = own_address()
            if address is None:
                return "skipped: this machine has no address but the loopback's"
            block = block.replace("--hosts a:", f"--hosts {address}:")
        if "mpirun" in block and not shutil.which("mpirun"):
            return "skipped: there is no mpirun"
        for port in sorted(set(re.findall(r"\b29\d{3}\b", block))):
            block = block.replace(port, free_port())
        if self.slurm:
            return self.run_batch(block)
        slurm = {}
        if "SBATCH" in block:
            slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2"}
        return self.judge(self.shell(block, **slurm), trains="many_workers" not in block)

    def run_batch(self, block):
        """The script as sbatch runs it, its four tasks on one node."""
        script, output = self.folder / "job.sh", self.folder / "output"
        script.write_text(block.replace("--nodes=2", "--nodes=1").replace("--ntasks-per-node=2", "--ntasks-per-node=4"))
        environment = {name: value for name, value in self.environment().items() if not name.startswith("OMPI_")}
        environment["SLURM_CONF"] = os.environ["SLURM_CONF"]
        done = subprocess.run(["sbatch", "--wait", f"--output={output}", script], cwd=self.folder, env=environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        done.stdout += output.read_text() if output.exists() else ""
        return self.judge(done, trains=False)

    def run_yaml(self, block):
        """The processes of the Job's pods, with the variables that it gives them."""
        given = dict(re.findall(r'- name: (\w+)\n\s+value: "([^"]*)"', block))
        asked = set(re.findall(r"- name: ([A-Z_]+)\n", block))
        if asked != {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_SECRET"}:
            return f"the Job sets {sorted(asked)}"
        if not given["MASTER_ADDR"].endswith("-0.train") or f'completions: {given["WORLD_SIZE"]}\n' not in block:
            return "the Job does not fit together"
        command = re.search(r'command: \["([^"]+)"\]', block).group(1)
        given.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), LOCKSTEP_SECRET="of the pods")
        pods = int(given["WORLD_SIZE"])
        lines = "".join(f"RANK={rank} {command} & pids=\"$pids $!\"\n" for rank in range(pods))
        return self.judge(self.shell(f"pids=\n{lines}for pid in $pids; do wait $pid; done", **given), trains=False)

    @staticmethod
    def judge(done, trains):
        """An empty text where it went well."""
        said = re.findall(r"\btest - " if trains else r"(\d+) workers: accuracy", done.stdout)
        if done.returncode == 0 and len(said) == 1 and (trains or int(said[0]) > 1):
            return ""
        return f"status {done.returncode}, and the chief's last line is there {len(said)} times:\n{done.stdout[-4000:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True, help="examples/many_workers.cc, built")
    parser.add_argument("--tool", type=pathlib.Path, required=True, help="lockstep")
    parser.add_argument("--only", default="", help="blocks that hold this text")
    parser.add_argument("--slurm", action="store_true", help="the batch scripts alone, with sbatch and srun themselves")
    arguments = parser.parse_args()
    if arguments.slurm:
        arguments.only = "#SBATCH"
    text = arguments.page.read_text(encoding="utf-8")
    failed = 0
    blocks = list(BLOCK.finditer(text))
    if len(blocks) < 9:
        sys.exit(f"{arguments.page}: {len(blocks)} blocks of commands were found: has the page another form?")
    for block in blocks:
        if arguments.only not in block.group(2):
            continue
        line = text.count("\n", 0, block.start()) + 1
        with tempfile.TemporaryDirectory() as folder:
            page = Page(folder, arguments)
            verdict = page.run_sh(block.group(2)) if block.group(1) == "sh" else page.run_yaml(block.group(2))
        print(f"{arguments.page.name}:{line}: {verdict or 'ran'}", flush=True)
        failed += bool(verdict) and not verdict.startswith("skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
