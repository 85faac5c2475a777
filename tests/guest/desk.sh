# SPDX-License-Identifier: BSD-2-Clause
# Everyday programs, in an empty folder; no network. What this prints must not depend on where or under what it runs. PAGE
# is a manual page.
set -eu -o pipefail
has() { command -v "$1" >/dev/null; }

echo "== shell"
declare -A seen
for i in {1..500}; do seen[key$((i % 70))]+=x$i; done
echo ${#seen[@]} "${seen[key42]}" "$(seq 1000 | sort -rn | sed -n 1,3p | tr '\n' ' ')"
seq 3000 | sed 's/5/x/' | sort | uniq -c | md5sum

if has gcc; then
    echo "== gcc"
    printf '#include <stdio.h>\nint main(void) { printf("hello, %%d\\n", 6 * 7); return 0; }\n' >hello.c
    gcc -O1 -Wall hello.c -o hello && ./hello
fi

if has apt-get; then
    echo "== apt"
    apt-get --version | sed -n 1p
    mkdir -p repo state/lists/partial cache/archives/partial
    printf 'Package: nothing\nVersion: 1\nArchitecture: all\nMaintainer: n <n@example.org>\nDescription: no more\nFilename: ./n.deb\nSize: 1\nMD5sum: 68b329da9893e34099c7d8ad5cb9c940\n' >repo/Packages
    echo "deb [trusted=yes] file:$PWD/repo ./" >list
    : >status
    apt() {
        local tool=$1
        shift
        "$tool" -o Dir::Etc::sourcelist="$PWD/list" -o Dir::Etc::sourceparts=- -o Dir::State="$PWD/state" \
            -o Dir::State::status="$PWD/status" -o Dir::Cache="$PWD/cache" -o APT::Sandbox::User=root \
            -o APT::Get::List-Cleanup=0 -o Debug::NoLocking=1 "$@"
    }
    apt apt-get update -qq
    apt apt-cache show nothing | grep -E '^(Package|Version|Description)'
    apt apt-get -s -qq install nothing | sed -n 1p
fi

if has dpkg-deb; then
    echo "== dpkg"
    dpkg --print-architecture
    mkdir -p pack/DEBIAN
    printf 'Package: some\nVersion: 2\nArchitecture: all\nMaintainer: n <n@example.org>\nDescription: no more\n' >pack/DEBIAN/control
    seq 1000 >pack/file
    dpkg-deb --root-owner-group -Zgzip -b pack some.deb >/dev/null
    dpkg-deb -f some.deb Package Version
    dpkg-deb -x some.deb out && cmp pack/file out/file && echo same
fi

if has man && has groff; then
    echo "== man"
    MANWIDTH=80 man -l "$PAGE" 2>/dev/null | sed -n 1,30p
fi

if has perl; then
    echo "== perl"
    perl -e 'my %h; $h{$_ % 97} .= "x$_" for 1 .. 5000; print scalar(keys %h), " ", length($h{5}), "\n"'
fi

if has python3; then
    echo "== python3"
    python3 -S -c 'import threading
o = [0] * 4
def w(n): o[n] = sum(len(str(i) * n) for i in range(500))
t = [threading.Thread(target=w, args=(n,)) for n in range(4)]
[x.start() for x in t]; [x.join() for x in t]; print(o)'
fi
