/* SPDX-License-Identifier: MIT */
#include "train/job_limit.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "train/step_facts.h"

#define LEAST_NOTICE 60
#define MOST_NOTICE 300
#define MOST_DIGITS 12
#define DAY 86400

/* Not less than twice the half minute that Slurm takes to look at limits, but of a short one no
 * more than half.
 */
int64_t job_limit_notice(int64_t limit)
{
    int64_t seconds = limit / 5 < LEAST_NOTICE ? LEAST_NOTICE : limit / 5;

    if (limit == 0 || seconds > MOST_NOTICE)
        return MOST_NOTICE;
    return seconds < limit / 2 ? seconds : limit / 2;
}

/* 0 where the variable says nothing. */
static int read_seconds(const char *name, double *seconds, struct err *err)
{
    const char *text = getenv(name);
    size_t digits = text ? strspn(text, "0123456789") : 0;

    *seconds = 0;
    if (!text || !*text)
        return 0;
    if (!text[digits] && digits <= MOST_DIGITS) {
        *seconds = strtod(text, NULL);
        return 0;
    }
    return err_set_code(err, EXIT_USAGE, "%s: expected a number of seconds, got \"%s\"", name,
                        text);
}

/* 'left': from now on. A number of seconds that are left would end the run at its first step. */
static int read_end(double *end, double *left, struct err *err)
{
    const char *text = getenv("TASUKI_JOB_END");

    if (read_seconds("TASUKI_JOB_END", end, err) < 0)
        return -1;
    *left = *end - (double)time(NULL);
    if (!text || !*text || *left >= -DAY)
        return 0;
    return err_set_code(err, EXIT_USAGE, "TASUKI_JOB_END: expected seconds since 1970 (date "
                        "+%%s), got \"%s\", which is more than a day ago", text);
}

int job_limit_read(struct job_limit *limit, const struct step_facts *known, struct err *err)
{
    double end, left;

    if (read_end(&end, &left, err) < 0 ||
        read_seconds("TASUKI_JOB_NOTICE", &limit->launcher, err) < 0)
        return -1;
    if (end > 0) {
        limit->end = end;
        /* What has passed of it is not known: that would make it a little longer. */
        limit->notice = left >= 1 ? (double)job_limit_notice((int64_t)left) : 0;
    } else {
        limit->end = known->end;
        limit->asker = known->asker;
        limit->notice = (double)job_limit_notice((int64_t)known->limit);
    }
    return 0;
}
