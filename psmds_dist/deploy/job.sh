say() {
    echo "job $SLURM_JOB_ID: $*"
}

# Slurm starts a job again that is pre-empted or loses its first node, but not one that ends by itself in the time that
# it is given for that, nor one that reaches its time limit.
start_again() {
    {
        find "$target.checkpoint" -name '*.npz' -printf '%f\n' | cut -d. -f1,2   # stream and number of each state
        find "$target" -type f
    } 2>/dev/null | sort -u | cksum >>"$private/saved"
    if [ -n "$(tail -n 3 "$private/saved" | uniq -c | awk '$1 == 3')" ]; then
        say "ended three times without having saved anything new, so it is not started again: give it more time"
        return 1
    fi
    say "continues in another allocation, as restart $((restart + 1))"
    scontrol requeue "$SLURM_JOB_ID"
}

# psmds saves the best map so far and ends with code 130
interrupt() {
    { kill -TERM "$(cat "$allocation/pid")"; } 2>/dev/null
}

restart=${SLURM_RESTART_COUNT:-0}
private=$target.job-$SLURM_JOB_ID   # of this job
allocation=$private/$restart        # of this start of it; workers of an earlier one end when theirs is gone
rm -rf "$private"/[0-9]*
[ -d "$private" ] || mkdir -m 700 "$private" || exit 1
mkdir "$allocation" || exit 1
scheduler=   # its process; not all of Slurm's ways to track processes end it with the job
finish() {
    rm -rf "$allocation"
    rmdir "$private" 2>/dev/null   # unless it remembers what was saved
    [ -z "$scheduler" ] || kill "$scheduler" 2>/dev/null
}
trap finish EXIT
trap interrupt TERM

export DASK_LOGGING="{'distributed': 'warning', 'distributed.batched': 'error'}"
step=(srun --overlap --mem=0 --cpu-bind=none)
here=("${step[@]}" --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME")

# several nodes: a scheduler on the first, and a worker on each
if [ "$on_workers" = yes ] && [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    cluster=$allocation/cluster.json
    "${psmds[@]}" certificates "$allocation/tls" || exit 1

    # the address by which another node reaches this one, unless an interface was chosen
    if [ ${#listen[@]} = 0 ]; then
        other=("${step[@]}" --nodes=1 --ntasks=1 --exclude="$SLURMD_NODENAME")
        listen=(--host "$("${other[@]}" printenv SLURM_LAUNCH_NODE_IPADDR)")
    fi
    "${psmds[@]}" scheduler --scheduler-file "$cluster" --tls "$allocation/tls" "${listen[@]}" &
    scheduler=$!

    # the run goes on without a node that is lost; should it be this one, a worker (code 75) has the job started again
    {
        "${step[@]}" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --no-kill --wait=0 --kill-on-bad-exit=0 \
            bash -c '"$@"; [ $? != 75 ] || scontrol requeue "$SLURM_JOB_ID"' worker \
            "${psmds[@]}" worker --scheduler-file "$cluster" --tls "$allocation/tls" --death-timeout 60
        interrupt   # the command would wait for other workers
    } &

    until [ -s "$cluster" ]; do
        kill -0 "$scheduler" || exit 1
        sleep 0.2
    done
    run+=(--cluster "$cluster" --tls "$allocation/tls")
fi

# a step, for Slurm sends it SIGTERM before it pre-empts this job
"${here[@]}" bash -c 'echo $$ >"$0" && exec "$@"' "$allocation/pid" "${psmds[@]}" "${run[@]}" &
command=$!
while kill -0 "$command" 2>/dev/null; do
    wait "$command"   # until it ends, or a signal comes
done
wait "$command"
code=$?

# another start of this job, which began while this node was cut off, has all that is left
[ -d "$allocation" ] || exit $code

# otherwise it is done, has failed in a way that it would meet again, or Slurm itself cancels or restarts it
case $code,$(scontrol show job "$SLURM_JOB_ID") in
    75,*JobState=RUNNING* | 130,*JobState=RUNNING* | *Reason=TimeLimit*) start_again && exit $code ;;
esac
rm -rf "$private"
exit $code
