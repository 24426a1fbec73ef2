/* SPDX-License-Identifier: MIT */
#include "comm/stillness.h"

#include "base/clock.h"
#include "base/extreme.h"

enum stillness_news stillness_look(struct stillness *still, bool wait, double remark,
                                   double *stood)
{
    double time = clock_now();
    bool remarked = still->remarked;

    *stood = 0;
    if (wait && still->since <= 0)
        still->since = time - remark;
    if (still->since <= 0)
        return STILLNESS_NO_NEWS;
    *stood = time - still->since;
    if (wait)
        return !remarked && *stood > still->longest ? STILLNESS_LASTS : STILLNESS_NO_NEWS;
    still->longest = dmax(still->longest, *stood);
    still->since = 0;
    still->remarked = false;
    return remarked ? STILLNESS_OVER : STILLNESS_NO_NEWS;
}
