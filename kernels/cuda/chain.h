/* SPDX-License-Identifier: MIT */
/* Chains: pointwise operators of one part of a stage program, as many elements each, that become one
 * kernel, which the device compiles when it is first wanted. What none but they read is not written.
 */
#ifndef TASUKI_KERNELS_CUDA_CHAIN_H
#define TASUKI_KERNELS_CUDA_CHAIN_H

#include "kernels/cuda/cuda.h"

#define CHAIN_MEMBERS 16
#define CHAIN_OPERANDS (CHAIN_MEMBERS + CUDA_CHAIN_INPUTS)

/* What a member reads: what another one makes, an input of the chain, or nothing (0). */
enum chain_from { CHAIN_NOTHING, CHAIN_MEMBER, CHAIN_INPUT };

struct chain_member {
    enum cuda_function function;
    bool sum;                   /* of all operands, in place of the function */
    float p, q;
    bool narrow;                /* what it makes */
    int n;
    struct chain_operand {
        enum chain_from from;
        int index;
    } operands[CHAIN_OPERANDS];
};

struct chain_input {
    bool narrow;
    struct cuda_walk walk;      /* of one operand, merged, where it is not flat: 'flat' */
};

struct chain {
    enum cuda_narrow type;      /* of what is narrow */
    int n_members, n_inputs;
    struct chain_member members[CHAIN_MEMBERS];     /* in the order in which they run; the last one is
                                                     * the result */
    struct chain_input inputs[CUDA_CHAIN_INPUTS];
};

/* chain_text.c: what its kernel computes, for cuda_chain_kernel(); malloc'ed, NULL where
 * there is no memory.
 */
char *chain_text(const struct chain *chain);

/* chain_kernel.c: all that is compiled; malloc'ed. And the kernel of a text, compiled or from the cache of cache.h; it is the device's. NULL
 * with an error where it cannot be made.
 */
char *chain_whole(const char *text);
struct cuda_chain_kernel *cuda_chain_kernel(struct device *device, const char *text, struct err *err);
void cuda_chains_close(struct device *device);

/* chain.c: at the end of lowering; the program is linked anew after it. */
void cuda_form_chains(struct device *device, struct program *program);

#endif
