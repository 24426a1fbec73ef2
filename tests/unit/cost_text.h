/* SPDX-License-Identifier: MIT */
/* Cost files that tests have as text. */
#ifndef TASUKI_TESTS_COST_TEXT_H
#define TASUKI_TESTS_COST_TEXT_H

#include "unit.h"

#include "base/json.h"
#include "scheduler/cost.h"

static inline struct cost *cost_of_text(const char *text, struct err *err)
{
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    struct cost *cost;

    assert_non_null(json);
    cost = cost_from_json("cost.json", json, err);
    json_decref(json);
    return cost;
}

#endif
