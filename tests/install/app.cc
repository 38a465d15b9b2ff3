// SPDX-License-Identifier: MIT
// The header serves C++ as well.
#include <weft.h>
#include <atomic>
#include <cstdio>

static std::atomic<int> sum{0};

int main()
{
    int err = weft_run(
        [](void *) {
            weft_wg wg{};
            for (int i = 0; i < 100; i++) {
                weft_wg_add(&wg, 1);
                weft_go(
                    [](void *arg) {
                        sum++;
                        weft_wg_done(static_cast<weft_wg *>(arg));
                    },
                    &wg);
            }
            weft_wg_wait(&wg);
        },
        nullptr);
    std::printf("weft_run returned %d, %d goroutines ran\n", err, sum.load());
    return err != 0 || sum != 100;
}
