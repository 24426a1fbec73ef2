// SPDX-License-Identifier: MIT
// Runs a kernel on the host: each thread of a block is a context of its own that runs to the next
// barrier, then the others do. Blocks follow each other.
#include "tests/fake_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define MOST_THREADS 1024
#define STACK ((size_t)64 << 10)

struct fake_place fake_place;

namespace {

enum state { RUNS, WAITS, ENDED };

ucontext_t scheduler, contexts[MOST_THREADS];
state states[MOST_THREADS];
char *stacks;
unsigned current;
bool is_free;
void (*function)(void *);
void *argument;

void begin()
{
    function(argument);
    states[current] = ENDED;
    swapcontext(&contexts[current], &scheduler);
}

void go_on(unsigned t)
{
    current = t;
    fake_place.thread = dim3(t);
    states[t] = RUNS;
    swapcontext(&scheduler, &contexts[t]);
}

void make_context(unsigned t)
{
    getcontext(&contexts[t]);
    contexts[t].uc_stack.ss_sp = stacks + t * STACK;
    contexts[t].uc_stack.ss_size = STACK;
    contexts[t].uc_link = nullptr;
    makecontext(&contexts[t], begin, 0);
    states[t] = WAITS;
}

// All threads come to a barrier or none does: where the first has ended the others need no context.
void run_freely(unsigned threads)
{
    is_free = true;
    for (unsigned t = 1; t < threads; t++) {
        fake_place.thread = dim3(t);
        function(argument);
    }
    is_free = false;
}

void run_block(unsigned threads)
{
    unsigned left = threads;

    make_context(0);
    go_on(0);
    if (states[0] == ENDED) {
        run_freely(threads);
        return;
    }
    for (unsigned t = 1; t < threads; t++)
        make_context(t);
    for (unsigned t = 1; t < threads; t++) {
        go_on(t);
        left -= states[t] == ENDED;
    }
    while (left > 0)
        for (unsigned t = 0; t < threads; t++) {
            if (states[t] == ENDED)
                continue;
            go_on(t);
            left -= states[t] == ENDED;
        }
}

} // namespace

extern "C" void fake_barrier(void)
{
    if (is_free) {
        fprintf(stderr, "fake GPU: a barrier that not all threads of a block come to\n");
        abort();
    }
    states[current] = WAITS;
    swapcontext(&contexts[current], &scheduler);
}

// 'run' calls the kernel with what 'parameter' points at.
extern "C" void fake_gpu_run(void (*run)(void *), void *parameter, unsigned blocks, unsigned threads)
{
    if (!stacks)
        stacks = static_cast<char *>(malloc(MOST_THREADS * STACK));
    if (!stacks || threads > MOST_THREADS) {
        fprintf(stderr, "fake GPU: %u threads in a block\n", threads);
        abort();
    }
    function = run;
    argument = parameter;
    fake_place.threads = dim3(threads);
    fake_place.blocks = dim3(blocks);
    for (unsigned b = 0; b < blocks; b++) {
        fake_place.block = dim3(b);
        run_block(threads);
    }
}
