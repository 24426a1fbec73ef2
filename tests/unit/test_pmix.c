/* SPDX-License-Identifier: MIT */
/* Which PMIx versions can be expected to speak with each other, by OpenPMIx's documentation. */
#include "unit.h"

#include "topology/pmix.h"

static void expect(const char *client, const char *server, const char *limit)
{
    char *text = pmix_limit(client, server);

    if (limit) {
        assert_non_null(text);
        assert_contains(text, limit);
    } else {
        assert_null(text);
    }
    free(text);
}

static void versions_within_the_bounds_speak(void **state)
{
    (void)state;
    expect("4.2.2", "4.2.2", NULL);
    expect("5.0.7", "4.2.2", NULL);
    expect("3.2.3", "5.0.7rc1", NULL);
    expect("6.1.0", "3.2.0", NULL);
    expect("2.1.4", "4.2.2", NULL);
    expect("2.0.3", "2.0.1", NULL);
    expect("3.1.5", "3.1.2", NULL);
}

static void a_client_before_2_1_or_a_server_before_3_2_is_named(void **state)
{
    (void)state;
    expect("2.0.3", "4.2.2", "clients from 2.1 on");
    expect("1.2.5", "3.2.3", "clients from 2.1 on");
    expect("4.2.2", "3.1.5", "servers from 3.2 on");
    expect("5.0.1", "2.2.3", "servers from 3.2 on");
}

static void what_is_not_known_is_no_reason(void **state)
{
    (void)state;
    expect("", "2.0.1", NULL);
    expect("4.2.2", "", NULL);
    expect("4.2.2", "unknown", NULL);
}

static void none_is_said(void **state)
{
    char *text = pmix_versions_text("4.2.2", "");

    (void)state;
    assert_string_equal(text, "client 4.2.2, server none");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_within_the_bounds_speak),
        cmocka_unit_test(a_client_before_2_1_or_a_server_before_3_2_is_named),
        cmocka_unit_test(what_is_not_known_is_no_reason),
        cmocka_unit_test(none_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
