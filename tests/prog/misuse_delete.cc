// SPDX-License-Identifier: BSD-2-Clause
//
// Sized operator delete with a wrong size, as a base class without a virtual destructor causes it: misuse_delete.
// Prints the address of the first block; unless that is an error, all of it goes well and the memory is used again.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <unistd.h>

// Declared here since clang knows the sized forms only with an option.
void operator delete(void *, std::size_t) noexcept;

int main()
{
    void *p = ::operator new(64);
    char line[32];
    int n = std::snprintf(line, sizeof line, "0x%lx\n", reinterpret_cast<unsigned long>(p));
    if (write(1, line, static_cast<std::size_t>(n)) != n)
        return 1;
    ::operator delete (p, std::size_t{1000});
    for (int i = 0; i < 200000; i++) {
        p = ::operator new(i % 2 ? 64 : 2008);
        std::memset(p, i, 64);
        ::operator delete(p, std::size_t(i % 3 ? 8 : 5000));
    }
    return 0;
}
