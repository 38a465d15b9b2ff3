// SPDX-License-Identifier: MIT
// The header serves C++ as well.
#include <weft.h>
#include <atomic>
#include <cstdio>
#include <exception>

static std::atomic<int> sum{0}, wrong{0};

// Exceptions in flight are a goroutine's own: many are inside their handlers at the same time.
static void throws(void *arg)
{
    for (int i = 0; i < 100; i++) {
        try {
            try {
                throw i;
            } catch (int &n) {
                weft_yield();
                wrong += n != i || std::uncaught_exceptions() != 0;
                throw;
            }
        } catch (int n) {
            weft_yield();
            wrong += n != i;
        }
    }
    weft_wg_done(static_cast<weft_wg *>(arg));
}

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
            weft_wg_add(&wg, 20);
            for (int i = 0; i < 20; i++)
                weft_go(throws, &wg);
            weft_wg_wait(&wg);
        },
        nullptr);
    std::printf("weft_run returned %d, %d goroutines ran, %d exceptions wrong\n", err, sum.load(), wrong.load());
    return err != 0 || sum != 100 || wrong != 0;
}
