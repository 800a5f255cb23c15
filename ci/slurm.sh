#!/usr/bin/env bash
# Runs a command beside a Slurm of one node, for tests that start srun. Needs Debian's slurm-wlm and munge,
# and root.
#
#   ci/slurm.sh cargo test -p feedline-examples --test training srun
set -euo pipefail

for program in munged slurmctld slurmd srun; do
    command -v "$program" >/dev/null || { echo "not run: Slurm (no $program: apt install slurm-wlm munge)"; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "not run: Slurm (its daemons need root)"; exit 0; }

dir=$(mktemp -d)
pids=()
end() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait "${pids[@]}" 2>/dev/null || true
    rm -rf "$dir"
}
trap end EXIT

# munge refuses folders that others can write to.
chmod 755 "$dir"
mkdir -m 755 "$dir/munge" "$dir/state" "$dir/spool"
head -c 128 /dev/urandom >"$dir/munge/key"
chmod 400 "$dir/munge/key"
munged --foreground --force --key-file "$dir/munge/key" --socket "$dir/munge/socket" --pid-file "$dir/munge/pid" \
    --log-file "$dir/munge/log" --seed-file "$dir/munge/seed" >"$dir/munged.out" 2>&1 &
pids+=($!)

host=$(hostname -s)
cat >"$dir/slurm.conf" <<CONF
ClusterName=feedline
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:8
CONF
export SLURM_CONF=$dir/slurm.conf
slurmctld -D -f "$SLURM_CONF" >"$dir/slurmctld.log" 2>&1 &
pids+=($!)
slurmd -D -f "$SLURM_CONF" >"$dir/slurmd.log" 2>&1 &
pids+=($!)

for _ in $(seq 100); do
    if timeout 5 srun --ntasks 1 true 2>/dev/null; then
        "$@"
        exit
    fi
    sleep 0.3
done
tail -n 20 "$dir"/*.log "$dir/munged.out" >&2
echo "slurm: the node does not take jobs" >&2
exit 1
