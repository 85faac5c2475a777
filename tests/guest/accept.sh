#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Inside the guest: tests/guest/accept starts it with PARTS, which of the functions below, and MODE, short or full. One line
# a check: "ok: PART: WORDS", "FAIL: ..." or "skipped: ...". This shell is linked statically: it is in nobody's way.
part=
LIB=/t/libsheaf.so
PRELOAD=/etc/ld.so.preload

say() {
    word=$1
    shift
    echo "$word: $part: $*"
}

# check WORDS... -- COMMAND...: the command ends well and says nothing on standard error.
check() {
    words=
    while [ "$1" != -- ]; do
        words="$words $1"
        shift
    done
    shift
    "$@" >out 2>err
    status=$?
    if [ $status -eq 77 ]; then
        say skipped "${words# }: $(tail -n 1 err)"
    elif [ $status -eq 0 ] && [ ! -s err ]; then
        say ok "${words# }$(tail -n 1 out | sed 's/^./: &/')"
    else
        say FAIL "${words# }: status $status, said: $(tail -n 3 err | tr '\n' ' ')"
    fi
}

# verdict STATUS WORDS...
verdict() {
    bad=$1
    shift
    if [ "$bad" -eq 0 ]; then say ok "$@"; else say FAIL "$@"; fi
}

ours() { LD_PRELOAD=$LIB "$@"; }

# ---- overcommit_memory 2 (R11): each reservation counts ----------------------------------------------------------------

commit_() {
    kernel=/proc/sys/vm
    echo 2 >$kernel/overcommit_memory
    echo $((256 << 10)) >$kernel/overcommit_kbytes
    check "bash" -- ours /usr/bin/bash -c 'n=0; for i in {1..100}; do n=$((n + i)); done; [ $n = 5050 ]'
    check "eight threads that allocate and free" -- ours stress_mixed -t 8 -n 40000 -s 1
    check "C++ news" -- ours api_new_forms
    # A fork reserves all of it once more.
    echo $((512 << 10)) >$kernel/overcommit_kbytes
    check "fork beside threads" -- ours proc_fork_busy 2 10
    echo $((256 << 10)) >$kernel/overcommit_kbytes
    # Of the 256 MiB; what is left is NULL with ENOMEM, for every size, and the memory comes back.
    check "blocks of 1 MiB to the end" -- ours proc_oom 1048576 120
    check "blocks of 5 kB to the end" -- ours proc_oom 5000 25000
    check "blocks of 20 MB to the end" -- ours proc_oom 20000000 5
    check "an idle process commits no more than 8 MiB" -- little
    echo 0 >$kernel/overcommit_memory
    echo 0 >$kernel/overcommit_kbytes
}

committed() { awk '/^Committed_AS/ { print $2 }' /proc/meminfo; }

# What 20 sleeping processes commit with the library, against 20 without.
little() {
    was=$(committed)
    sleepers /usr/bin/bash
    plain=$(($(committed) - was))
    end_sleepers
    was=$(committed)
    sleepers env LD_PRELOAD=$LIB /usr/bin/bash
    with=$(($(committed) - was))
    end_sleepers
    echo "20 processes commit $plain KiB, with the library $with KiB"
    [ $((with - plain)) -le $((20 * 8192)) ] || { echo "20 processes commit $plain KiB, with the library $with KiB" >&2; return 1; }
}

sleepers() {
    pids=
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        "$@" -c 'read x </tmp/never' &
        pids="$pids $!"
    done
    sleep 3
}

end_sleepers() {
    kill $pids
    wait $pids 2>/dev/null
}

# ---- few mappings (R10) ------------------------------------------------------------------------------------------------

maps_() {
    echo 300 >/proc/sys/vm/max_map_count
    check "no mapping left" -- ours proc_mapfull 3000
    check "holes between many blocks" -- ours proc_holes 20000 100
    check "eight threads that allocate and free" -- ours stress_mixed -t 8 -n 40000 -s 1
    check "threads hand blocks on" -- ours numa_work 5
    check "the reason of a refusal is told" -- ours acc_reason maps
    echo 65530 >/proc/sys/vm/max_map_count
}

# ---- privileged programs under /etc/ld.so.preload (R30) ---------------------------------------------------------------------

# loud PROGRAM: does it, started by somebody who is not root, obey SHEAF_CONF=verbose:true?
loud() {
    setpriv_user SHEAF_CONF=verbose:true "$1" >out 2>err
    status=$?
    grep -q '^sheaf: ' err
}

setpriv_user() {
    env "$1" /bin/busybox su user -s /bin/sh -c "$2"
}

secure_() {
    cp /t/proc_tiny /tmp/plain
    cp /t/proc_tiny /tmp/setuid
    chmod 755 /tmp/plain /t /t/libsheaf.so
    chmod 4755 /tmp/setuid
    chmod 1777 /tmp
    echo 'user:x:1000:1000:user:/tmp:/bin/sh' >>/etc/passwd
    echo $LIB >$PRELOAD
    # As it is, the variable is obeyed: or the rest proves nothing.
    loud /tmp/plain
    verdict $? "an ordinary program obeys SHEAF_CONF"
    if loud /tmp/setuid; then verdict 1 "a set-user-ID program does not: $(head -n 1 err)"; else verdict $status "a set-user-ID program does not"; fi
    setpriv_user SHEAF_CONF=stats_json:/tmp/owned /tmp/setuid >out 2>err
    [ ! -e /tmp/owned ]
    verdict $? "... nor writes a file that it names"
    if [ -x /usr/sbin/setcap ] || [ -x /sbin/setcap ]; then
        mkdir -p /mnt/caps && mount -t tmpfs caps /mnt/caps
        cp /t/proc_tiny /mnt/caps/capable && chmod 755 /mnt/caps /mnt/caps/capable
        if PATH=$PATH:/usr/sbin:/sbin setcap cap_net_raw+ep /mnt/caps/capable 2>err; then
            if loud /mnt/caps/capable; then verdict 1 "a set-capability program does not"; else verdict $status "a set-capability program does not"; fi
        else
            say skipped "no capabilities on files here: $(head -n 1 err)"
        fi
    fi
    : >$PRELOAD
}

# ---- transparent huge pages: always (R09) -----------------------------------------------------------------------------------

huge_() {
    thp=/sys/kernel/mm/transparent_hugepage
    echo 10 >$thp/khugepaged/scan_sleep_millisecs
    echo 10 >$thp/khugepaged/alloc_sleep_millisecs
    echo 65536 >$thp/khugepaged/pages_to_scan
    for when in never always; do
        echo $when >$thp/enabled
        ours gb_threads 100 >out.$when 2>err || say FAIL "threads with $when: $(cat err)"
    done
    never=$(sed -n 's/^after_kib=//p' out.never)
    always=$(sed -n 's/^after_kib=//p' out.always)
    [ "$always" -le $((2 * never)) ]
    verdict $? "100 idle threads: $always KiB resident, $never without huge pages"
    echo always >$thp/enabled
    check "what was given back does not come back" -- ours acc_collapse 128 10
    echo madvise >$thp/enabled
}

# ---- everyday programs (R79) --------------------------------------------------------------------------------------------------

desk_() {
    [ -f /t/desk.out ] || { say skipped "nothing was brought"; return; }
    mkdir -p /tmp/desk /var/lib/dpkg /var/lib/apt /var/cache/apt /etc/apt
    printf '%s\n' /t/shim_proof.so $LIB >$PRELOAD
    cd /tmp/desk || return
    env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/ LC_ALL=C PAGE=/t/sheaf.7 SHIM_PROOF=/tmp/proof \
        /usr/bin/bash /t/desk.sh >/tmp/desk.out 2>/tmp/desk.err
    status=$?
    cd /tmp || return
    : >$PRELOAD
    verdict $status "desk.sh ends well: $(tail -n 3 desk.err | tr '\n' ' ')"
    if cmp -s desk.out /t/desk.out; then
        verdict 0 "all programs print what they print without the library"
    else
        verdict 1 "programs print something else"
        diff /t/desk.out desk.out | head -n 20
    fi
    ! grep -q 'sheaf: ' desk.err desk.out
    verdict $? "no line of Sheaf's"
    for name in $(sed -n 's/^== //p' /t/desk.out); do
        case $name in
        gcc) programs="cc1 as collect2 ld hello" ;;
        apt) programs="apt-get apt-cache file" ;;
        dpkg) programs="dpkg dpkg-deb" ;;
        man) programs="man groff troff" ;;
        shell) programs="bash sort" ;;
        *) programs=$name ;;
        esac
        for p in $programs; do
            grep "^$p[^ ]* " proof >seen
            [ -s seen ] && ! grep -qv " $LIB\$" seen
            verdict $? "$p had the library's malloc, $(wc -l <seen) times"
        done
    done
}

# ---- su and login ------------------------------------------------------------------------------------------------------------

login_() {
    [ -x /usr/bin/su ] && [ -x /usr/bin/script ] && [ -d /etc/pam.d ] || { say skipped "nothing was brought"; return; }
    printf '%s\n' 'root:x:0:0:root:/root:/usr/bin/bash' 'person:x:1001:1001:person:/tmp:/usr/bin/bash' >/etc/passwd
    printf '%s\n' 'root:*:19000:0:99999:7:::' 'person:*:19000:0:99999:7:::' >/etc/shadow
    printf '%s\n' 'root:x:0:' 'person:x:1001:' 'tty:x:5:' 'utmp:x:43:' >/etc/group
    chmod 600 /etc/shadow
    chmod 755 /t /t/libsheaf.so
    mkdir -p /root /var/log /var/mail /var/run /run
    touch /var/run/utmp /var/log/wtmp /var/log/lastlog
    ask='grep -q libsheaf /proc/$$/maps && echo "$(id -un) has it"'
    echo $LIB >$PRELOAD
    /usr/bin/su - person -c "$ask" >out 2>err
    [ "$(tail -n 1 out)" = "person has it" ] && ! grep -q 'sheaf: ' out err
    verdict $? "su - person: $(tail -n 1 out) $(tail -n 1 err)"
    login=/usr/bin/login
    [ -x $login ] || login=/bin/login
    printf '%s\nexit\n' "$ask" | timeout 60 /usr/bin/script -qec "$login -f person" /dev/null >out 2>err
    tr -d '\r' <out | grep -q '^person has it$' && ! grep -q 'sheaf: ' out err
    verdict $? "login -f person: $(tr -d '\r' <out | tail -n 2 | tr '\n' ' ') $(tail -n 1 err)"
    : >$PRELOAD
}

mkfifo /tmp/never
for part in $PARTS; do
    "${part}_"
    echo "end of $part"
done
exit 0
