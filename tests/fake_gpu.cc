// SPDX-License-Identifier: MIT
// Runs a kernel on the host: each thread of a block is a context of its own that runs to the next
// barrier, then the others do. Blocks follow each other.
#undef _FORTIFY_SOURCE  // which takes jumps between stacks for mistakes
#include "tests/fake_gpu.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define MOST_THREADS 1024
#define STACK ((size_t)64 << 10)

struct fake_place fake_place;

namespace {

enum state { RUNS, WAITS, ENDED };

struct fiber {
    ucontext_t context;
    jmp_buf jump;
    bool started;
};

fiber scheduler, fibers[MOST_THREADS];
state states[MOST_THREADS];
char *stacks;
unsigned current;
bool is_free;
void (*function)(void *);
void *argument;

// A context has the signals that are blocked, too, which asks the system: jumps do not. Sanitizers want to
// be told of other stacks, which they are of contexts alone.
void switch_to(fiber *from, fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
    swapcontext(&from->context, &to->context);
#else
    if (_setjmp(from->jump))
        return;
    if (to->started)
        _longjmp(to->jump, 1);
    to->started = true;
    setcontext(&to->context);
#endif
}

// One thread of each block.
void begin()
{
    for (;;) {
        function(argument);
        states[current] = ENDED;
        switch_to(&fibers[current], &scheduler);
    }
}

void go_on(unsigned t)
{
    current = t;
    fake_place.thread = dim3(t);
    states[t] = RUNS;
    switch_to(&scheduler, &fibers[t]);
}

void make_context(unsigned t)
{
    ucontext_t *context = &fibers[t].context;

    getcontext(context);
    context->uc_stack.ss_sp = stacks + t * STACK;
    context->uc_stack.ss_size = STACK;
    context->uc_link = nullptr;
    makecontext(context, begin, 0);
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

    go_on(0);
    if (states[0] == ENDED) {
        run_freely(threads);
        return;
    }
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
    switch_to(&fibers[current], &scheduler);
}

// 'run' calls the kernel with what 'parameter' points at.
extern "C" void fake_gpu_run(void (*run)(void *), void *parameter, unsigned blocks, unsigned threads)
{
    if (!stacks && (stacks = static_cast<char *>(malloc(MOST_THREADS * STACK)))) {
        scheduler.started = true;
        for (unsigned t = 0; t < MOST_THREADS; t++)
            make_context(t);
    }
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
