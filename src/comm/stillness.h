/* SPDX-License-Identifier: MIT */
/* When it is worth a word that nothing moves, and that it moves again. */
#ifndef TASUKI_COMM_STILLNESS_H
#define TASUKI_COMM_STILLNESS_H

#include <stdbool.h>

struct stillness {
    double since;           /* nothing moves, clock; 0: it does */
    double longest;         /* seconds, of what has passed */
    bool remarked;          /* this one was said, which its reader sets */
};

enum stillness_news { STILLNESS_NO_NEWS, STILLNESS_LASTS, STILLNESS_OVER };

/* Every so often: do some ranks wait, for 'remark' seconds or more by now? '*stood' is for how long.
 * Waits that are no longer than one that has passed, as for the first compilation, are no news.
 */
enum stillness_news stillness_look(struct stillness *still, bool wait, double remark,
                                   double *stood);

#endif
