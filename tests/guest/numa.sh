#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Inside the guest: the NUMA programs under each allocator. tests/guest/numa starts it with
#   ALLOCATORS  names, of libc jemalloc sheaf; sheaf alone is judged
#   TESTS       which of the functions below
#   NODES       that are homes: with cpus and memory
#   MIB_LOCAL MIB_HANDOVER MESSAGES   how much
# Prints lines of tab-separated words: fig TEST FIGURE ALLOCATOR VALUE, and verdict TEST ALLOCATOR ok|failed|skipped WORDS.
tab=$(printf '\t')

library_of() {
    case $1 in
    libc) ;;
    *) echo "/t/lib$1.so" ;;
    esac
}

# case TEST PROGRAM...: under each allocator; PROGRAM may say %judge N, which is for those that are judged.
row() {
    name=$1
    shift
    for alloc in $ALLOCATORS; do
        judged=
        [ "$alloc" = sheaf ] && judged=1
        command=
        for word in "$@"; do
            case $word in
            %judge=*) [ -z "$judged" ] || command="$command --judge ${word#*=}" ;;
            *) command="$command $word" ;;
            esac
        done
        # shellcheck disable=SC2086
        env $prefix LD_PRELOAD="$(library_of "$alloc")" $wrap $command >out 2>err
        status=$?
        sed -n "s/^\([^:]*\): \(.*\)/fig$tab$name$tab\1$tab$alloc$tab\2/p" out
        [ -n "$judged" ] || [ $status -ne 0 ] || continue
        verdict
    done
}

verdict() {
    case $status in
    0) word=ok ;;
    77) word=skipped ;;
    *) word=failed ;;
    esac
    printf 'verdict\t%s\t%s\t%s\t%s\n' "$name" "$alloc" $word "$(tail -n 1 err | sed 's/^FAIL [^ ]* //')"
}

wrap=
prefix=

# ---- the tests -------------------------------------------------------------------------------------------------------

local_() { row local numa_local --mib "$MIB_LOCAL" %judge=99; }

handover() { row handover numa_handover --mib "$MIB_HANDOVER" %judge=95; }

# The counters of Sheaf's locks, all of them, against the messages.
stream() {
    prefix=SHEAF_CONF=stats_json:/tmp/json
    rm -f /tmp/json
    row stream numa_stream --messages "$MESSAGES" %judge=10
    prefix=
    name="stream, locks" alloc=sheaf status=1
    [ -s /tmp/json ] || { echo "no statistics" >err; verdict; return; }
    locks=$(grep -o '"[a-z_]*locks": [0-9]*' /tmp/json | awk '{ n += $2 } END { print n + 0 }')
    printf 'fig\tstream\tlock holds an object\tsheaf\t1 in %s\n' "$(awk -v m="$MESSAGES" -v l="$locks" 'BEGIN { printf "%.1f", l ? m / l : 0 }')"
    : >err
    status=0
    awk -v m="$MESSAGES" -v l="$locks" 'BEGIN { exit !(l > 0 && l * 32 <= m) }' ||
        { status=1; echo "$locks lock holds for $MESSAGES messages, more than 1 in 32" >err; }
    verdict
}

policy() {
    # A huge page is placed as a whole: an even spread shows with small ones.
    echo never >/sys/kernel/mm/transparent_hugepage/enabled
    wrap="numactl --interleave=all"
    row interleave numa_policy %judge=95
    echo always >/sys/kernel/mm/transparent_hugepage/enabled
    wrap="numactl --membind=1"
    row "membind 1" numa_policy %judge=100
    wrap="numactl --preferred=1"
    row "preferred 1" numa_policy %judge=99
    wrap=
    # What was touched before the call stays where it is: a 2 MiB page, which is 3 % of all, has our first slabs.
    row "bind in code" numa_policy --set bind:1 %judge=96
}

# The cpus of one node only: what numactl --cpunodebind and a pod's cpuset do. The scan sees that node alone.
bound() {
    wrap="numactl --cpunodebind=1"
    row "cpus of node 1" numa_local --threads 4 --mib "$MIB_LOCAL" %judge=99
    wrap=
}

# A cpuset leaves the memory of node 1 alone, whatever cpu a thread is on.
cpuset() {
    group=/sys/fs/cgroup/sheaf
    echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
    mkdir $group
    echo 1 >$group/cpuset.mems
    printf 'echo $$ >%s/cgroup.procs\nexec "$@"\n' $group >cpuset.sh
    wrap="sh cpuset.sh"
    row "cpuset.mems 1" numa_policy %judge=99
    wrap=
}

# Node 1 is full but for 24 MiB (beyond that the kernel would kill who fills it): who runs there gets memory elsewhere, and work goes on.
full() {
    mkdir -p /tmp/full
    mount -t tmpfs -o size=100%,mpol=bind:1 full /tmp/full
    mib=$(awk '/MemFree/ { print int($4 / 1024) - 24 }' /sys/devices/system/node/node1/meminfo)
    dd if=/dev/zero of=/tmp/full/hog bs=1M count="$mib" 2>/dev/null
    wrap="numactl --cpunodebind=1"
    row "node 1 full" numa_local --threads 4 --mib "$MIB_LOCAL" %judge=0
    wrap=
    umount /tmp/full
}

# Cpus go and come while threads work.
hotplug() {
    name=hotplug alloc=sheaf status=0
    LD_PRELOAD=/t/libsheaf.so numa_work 100 >out 2>err &
    worker=$!
    rounds=0
    while kill -0 $worker 2>/dev/null; do
        for cpu in 7 5 3; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done
        for cpu in 3 5 7; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online; done
        rounds=$((rounds + 1))
    done
    wait $worker || status=$?
    printf 'fig\t%s\trounds of 3 cpus\tsheaf\t%s\n' $name $rounds
    verdict
}

# Nothing visible: same output, nothing on standard error, same status, with and without.
refused() {
    for alloc in $ALLOCATORS; do
        [ "$alloc" = sheaf ] || continue
        for error in EPERM ENOSYS; do
            name="refused, $error" status=0
            LD_PRELOAD=/t/libsheaf.so numa_work 10 >plain 2>err || status=1
            LD_PRELOAD=/t/libsheaf.so numa_refuse $error numa_work 10 >out 2>err || status=1
            cmp -s plain out && [ -s out ] && [ ! -s err ] || status=1
            [ $status -eq 0 ] || echo "plain: $(cat plain); refused: $(cat out); said: $(cat err)" >err
            verdict
        done
    done
}

# The unit tests of nodes and cpus, on a machine that has some.
unit() {
    [ -x /t/suite_unit ] || return
    name="unit tests" alloc=sheaf
    SHEAF_TEST_NODES=$NODES suite_unit --filter '@(numa|cpu)/*' >out 2>err
    status=$?
    grep -q 'Tested: .*[1-9]' err || status=1
    [ $status -ne 0 ] || : >err
    verdict
}

# One node: no libnuma, one question.
onenode() {
    name="one node, start"
    alloc=sheaf
    numa_trace --judge 1 --preload /t/libsheaf.so numa_work 1 >out 2>err
    status=$?
    sed -n "s/^\([^:]*\): \(.*\)/fig$tab$name$tab\1$tab$alloc$tab\2/p" out
    verdict
}

for t in $TESTS; do
    $t
done
exit 0
