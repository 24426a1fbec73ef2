/* SPDX-License-Identifier: MIT */
/* Between cmd_plan.c, cmd_plan_sizes.c, cmd_plan_svg.c and cmd_plan_table.c; cmd_submit
 * asks for sizes. */
#ifndef TASUKI_CMD_PLAN_H
#define TASUKI_CMD_PLAN_H

#include "base/option.h"
#include "scheduler/sizes.h"

struct err;

/* --nodes FIRST..LAST or --gpus FIRST..LAST, --steps or --epochs, --start-up, --data-size; 'last'
 * is 0 where no sizes are compared, and 'first' then what --nodes says, or 0.
 */
int sizes_read(const struct options *options, struct size_request *request, struct err *err);
/* Where epochs were asked for: so many steps, of so many samples (0: as --samples says). */
int sizes_settle(const struct options *options, int64_t samples, int64_t global_batch,
                 struct size_request *request, struct err *err);
/* The table, or JSON; with -o the plan of the size that is recommended is written, too. */
int sizes_print(const struct sizes *sizes, const struct cluster *cluster,
                const struct options *options, struct err *err);

/* Why it is the best that is recommended; sentences in lines. 'best' must be there. */
void sizes_reason(const struct sizes *sizes, FILE *out);
/* What "tasuki plan" compares with this command line, which must have --nodes FIRST..LAST. 'most': as in
 * struct size_request.
 */
struct sizes *plan_sizes(int argc, char **argv, int most, struct err *err);

/* The plan for people. 'why': the planner's reasons; may be NULL. */
void plan_table(const struct plan *plan, const struct cluster *cluster, const char *why,
                FILE *out);
/* The same drawn; malloc'ed, NULL where memory is short. */
char *plan_svg(const struct plan *plan, const struct cluster *cluster);
/* In B to TiB; "any" where there is no limit. */
const char *bytes_text(double bytes, char text[32]);

#endif
