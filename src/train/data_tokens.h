/* SPDX-License-Identifier: MIT */
/* Token files: 8 bytes of TOKENS_MAGIC, then little-endian version (1, 32 bits), bytes of a
 * token (2 or 4, 32 bits), number of tokens (64 bits), vocabulary (64 bits: every token is
 * less; 0: not said), then the tokens.
 */
#ifndef TASUKI_TRAIN_DATA_TOKENS_H
#define TASUKI_TRAIN_DATA_TOKENS_H

#define TOKENS_MAGIC "TASUKITK"
#define TOKENS_HEADER 32

#endif
