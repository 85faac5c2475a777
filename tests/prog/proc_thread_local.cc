// SPDX-License-Identifier: BSD-2-Clause
//
// C++ thread_local objects whose destructors allocate and free: proc_thread_local [threads]. Two of them hold what the
// other allocated, one of them frees with delete what a string of the main thread used, and a detached thread may still
// be leaving while the process exits.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace
{

long good_ends;

struct Late {
    std::map<int, std::string> names;
    std::unique_ptr<std::vector<std::string>> handed_over;

    ~Late()
    {
        std::vector<std::string> copies;
        for (auto &name : names)
            copies.push_back(name.second + " and a tail that does not fit into a short string");
        if (handed_over)
            for (auto &text : *handed_over)
                if (text.size() != 100)
                    std::abort();
        handed_over.reset(new std::vector<std::string>(copies));
        if (handed_over->size() == names.size())
            __atomic_fetch_add(&good_ends, 1, __ATOMIC_RELAXED);
    }
};

thread_local Late first, second;

void body(int n)
{
    for (int i = 0; i < 50; i++) {
        first.names[i] = std::to_string(n) + std::string(static_cast<size_t>(i) * 7, 'n');
        second.names[n + i] = "n";
    }
    first.handed_over.reset(new std::vector<std::string>(20, std::string(100, 'x')));
    second.handed_over = std::move(first.handed_over);
}

} // namespace

int main(int argc, char **argv)
{
    int threads = argc > 1 ? std::atoi(argv[1]) : 2000;
    for (int n = 0; n + 4 <= threads; n += 4) {
        std::vector<std::thread> four;
        for (int i = 0; i < 4; i++)
            four.emplace_back(body, n + i);
        for (auto &t : four)
            t.join();
    }
    if (good_ends != threads / 4 * 4 * 2) {
        std::fprintf(stderr, "FAIL %s:%d: %ld good ends of %d threads\n", __FILE__, __LINE__, good_ends, threads);
        return 1;
    }
    std::thread(body, -1).detach();
    std::printf("%d threads\n", threads);
    return 0;
}
