/* The peer of tests/guests/src/bin/repeater.rs, on Solo5's own library for guests, which moves
 * frames through its network ring: passes every frame on, in both directions, for ever. */
#include "solo5.h"

#define BATCH 64

static uint8_t frame[2048];

static void pass(solo5_handle_t from, solo5_handle_t to)
{
    size_t length;
    for (int i = 0; i < BATCH; i++) {
        if (solo5_net_read(from, frame, sizeof frame, &length) != SOLO5_R_OK)
            return;
        solo5_net_write(to, frame, length);
    }
}

int solo5_app_main(const struct solo5_start_info *start)
{
    solo5_handle_t left, right;
    struct solo5_net_info info;
    (void)start;
    if (solo5_net_acquire("left", &left, &info) != SOLO5_R_OK ||
        solo5_net_acquire("right", &right, &info) != SOLO5_R_OK)
        return SOLO5_EXIT_FAILURE;
    for (;;) {
        solo5_handle_set_t ready = 0;
        solo5_yield(solo5_clock_monotonic() + 1000000000ULL, &ready);
        if (ready & (1UL << left))
            pass(left, right);
        if (ready & (1UL << right))
            pass(right, left);
    }
}
