/* SPDX-License-Identifier: MIT */
/* What the kernel says of memory, from files that this test writes. */
#include "unit.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/oom.h"

#define MIB (1024 * 1024)
#define V1 "sys/fs/cgroup/memory"
#define V2 "sys/fs/cgroup"
#define UNLIMITED "9223372036854771712\n"

static char *root;

static int begin(void **state)
{
    (void)state;
    root = unit_directory();
    return 0;
}

static int end(void **state)
{
    (void)state;
    return unit_remove(root);
}

/* A file below the root, and the folders on the way. */
static void put(const char *folder, const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", root, folder), *file = mem_printf("%s/%s", path, name);

    file_mkdirs(path);
    unit_write(file, text);
    free(file);
    free(path);
}

static void put_proc(const char *group, const char *vmstat)
{
    put("proc/self", "cgroup", group);
    put("proc", "vmstat", vmstat);
}

static void put_v2(const char *path, const char *limit, const char *events)
{
    char *folder = mem_printf(V2 "/%s", path);

    put(folder, "memory.max", limit);
    put(folder, "memory.events", events);
    free(folder);
}

static void put_v1(const char *path, const char *limit, const char *control)
{
    char *folder = mem_printf(V1 "/%s", path);

    put(folder, "memory.limit_in_bytes", limit);
    put(folder, "memory.oom_control", control);
    free(folder);
}

static void is_limited_to(const struct oom *oom, double limit)
{
    assert_true(oom->grouped);
    assert_true(oom->limit == limit);
}

/* As Slurm has them: that of the job counts, since that of the task knows of this rank alone. */
static void of_v2_the_outermost_of_the_tightest_limits_counts(void **state)
{
    struct oom oom;

    (void)state;
    put_proc("0::/slurm/job_5/step_0/task_1\n", "pgfault 7\noom_kill 9\nnr_zspages 3\n");
    put_v2("slurm", "max\n", "low 0\noom 9\noom_kill 8\n");
    put_v2("slurm/job_5", "268435456\n", "low 0\nhigh 0\nmax 44\noom 3\noom_kill 2\n");
    put_v2("slurm/job_5/step_0", "268435456\n", "oom_kill 1\n");
    put_v2("slurm/job_5/step_0/task_1", "max\n", "oom 7\noom_kill 0\noom_group_kill 5\n");
    oom = oom_look(root);
    is_limited_to(&oom, 256.0 * MIB);
    assert_int_equal(oom.group, 2);
    assert_int_equal(oom.machine, 9);
}

static void without_a_limit_it_is_the_machine_s_and_the_group_its_own(void **state)
{
    struct oom oom;

    (void)state;
    put_proc("0::/a/b\n", "oom_kill 0\n");
    put_v2("a", "max\n", "oom_kill 5\n");
    put_v2("a/b", "max\n", "oom_kill 4\n");
    oom = oom_look(root);
    assert_false(oom.grouped);
    assert_true(oom.limit == (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE));
    assert_int_equal(oom.group, 4);
    assert_int_equal(oom.machine, 0);
}

/* Of v1 each group counts what was ended in itself alone. */
static void of_v1_limits_above_count_and_what_was_ended_here(void **state)
{
    struct oom oom;

    (void)state;
    put_proc("9:name=systemd:/\n4:cpu,memory:/slurm/uid_0/job_5\n3:memory2:/wrong\n0::/other\n",
             "oom_kill 2\n");
    put_v2("other", "1048576\n", "oom_kill 77\n");
    put_v1("", UNLIMITED, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    put_v1("slurm", "104857600\n", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    put_v1("slurm/uid_0", UNLIMITED, "oom_kill 0\n");
    put_v1("slurm/uid_0/job_5", "209715200\n", "oom_kill_disable 0\nunder_oom 1\noom_kill 1\n");
    oom = oom_look(root);
    is_limited_to(&oom, 100.0 * MIB);
    assert_int_equal(oom.group, 1);
}

/* As in a container: what is mounted is the group itself. */
static void of_a_path_that_is_not_there_the_mount_is_looked_at(void **state)
{
    struct oom oom;

    (void)state;
    put_proc("4:memory:/docker/0123\n", "oom_kill 1\n");
    put_v1("", "1048576\n", "oom_kill 3\n");
    oom = oom_look(root);
    is_limited_to(&oom, MIB);
    assert_int_equal(oom.group, 3);
    put("proc/self", "cgroup", "4:memory:/../../proc\n");
    put("sys/proc", "memory.limit_in_bytes", "7\n");
    oom = oom_look(root);
    is_limited_to(&oom, MIB);
}

static void beside_v1_v2_is_mounted_elsewhere(void **state)
{
    struct oom oom;

    (void)state;
    put_proc("1:cpu:/x\n0::/job\n", "oom_kill 1\n");
    put_v2("unified/job", "2097152\n", "oom_kill 6\n");
    put_v2("job", "1048576\n", "oom_kill 7\n");
    oom = oom_look(root);
    is_limited_to(&oom, 2 * MIB);
    assert_int_equal(oom.group, 6);
}

static void nothing_is_known_where_nothing_is_there(void **state)
{
    struct oom oom = oom_look(root);

    (void)state;
    assert_false(oom.grouped);
    assert_true(oom.limit > 0);
    assert_int_equal(oom.group, -1);
    assert_int_equal(oom.machine, -1);
}

static void what_is_no_number_is_not_known(void **state)
{
    static const char *const bad[] = {
        "", "\n", "-5\n", "+5\n", " 5\n", "0x10\n", "5 6\n", "5k\n", "1e3\n", "nan\n",
        "99999999999999999999\n", "maximum\n", "\x80\xff\n",
    };

    (void)state;
    put("proc/self", "cgroup", "0::/job\n");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char *events = mem_printf("oom_kill %s", bad[i]);
        struct oom oom;

        put("proc", "vmstat", events);
        put_v2("job", bad[i], events);
        oom = oom_look(root);
        assert_false(oom.grouped);
        assert_int_equal(oom.group, -1);
        assert_int_equal(oom.machine, -1);
        free(events);
    }
}

/* Long lines, lines that lack parts, and none at all. */
static void a_list_of_groups_that_is_none_is_passed_over(void **state)
{
    static const char *const bad[] = {
        "", "\n\n", "memory", "4:memory", "4:memory:job\n", ":::\n", "0::", "4::/job\n:",
        "1:memory2,xmemory,:/job\n", "0::/\n",
    };
    char *path = mem_new(5000, 1), *text;

    (void)state;
    put_v2("job", "max\n", "oom_kill 1\n");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put("proc/self", "cgroup", bad[i]);
        assert_false(oom_look(root).grouped);
    }
    memset(path, '/', 4999);
    text = mem_printf("0::%s\n", path);
    put("proc/self", "cgroup", text);
    put_v2("", "1048576\n", "oom_kill 1\n");
    assert_true(oom_look(root).grouped);
    free(text);
    free(path);
}

static void words_are_of_the_group_where_it_is_that_and_of_the_machine_else(void **state)
{
    struct oom before = { .limit = 512.0 * MIB, .grouped = true, .group = 1, .machine = 4 };
    struct oom now = before;
    char text[240];

    (void)state;
    assert_false(oom_text(&before, &now, "n2", "then", text, sizeof(text)));
    assert_string_equal(text, "");
    now.group = 2;
    now.machine = 9;
    assert_true(oom_text(&before, &now, "n2", "then", text, sizeof(text)));
    assert_string_equal(text, "the kernel of n2 has ended 1 process of the ranks' control group "
                        "for want of memory since then (limit of the control group: 0.5 GiB)");
    /* Of a group that has come anew nothing is known. */
    now.group = 0;
    assert_true(oom_text(&before, &now, "n2", "then", text, sizeof(text)));
    assert_contains(text, "has ended 5 processes for want of memory since then (limit of the");
    now = (struct oom){ .limit = 4096.0 * MIB, .group = 7, .machine = 5 };
    assert_true(oom_text(&before, &now, "n2", "then", text, sizeof(text)));
    assert_contains(text, "has ended 1 process for want of memory since then (memory of the node");
    before.machine = -1;
    assert_false(oom_text(&before, &now, "n2", "then", text, sizeof(text)));
}

static void this_machine_is_looked_at_without_harm(void **state)
{
    const struct oom oom = oom_look("");

    (void)state;
    assert_true(oom.limit > 0);
    assert_true(oom.machine >= -1);
    assert_true(oom.group >= -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(of_v2_the_outermost_of_the_tightest_limits_counts),
        TEST(without_a_limit_it_is_the_machine_s_and_the_group_its_own),
        TEST(of_v1_limits_above_count_and_what_was_ended_here),
        TEST(of_a_path_that_is_not_there_the_mount_is_looked_at),
        TEST(beside_v1_v2_is_mounted_elsewhere),
        TEST(nothing_is_known_where_nothing_is_there),
        TEST(what_is_no_number_is_not_known),
        TEST(a_list_of_groups_that_is_none_is_passed_over),
        cmocka_unit_test(words_are_of_the_group_where_it_is_that_and_of_the_machine_else),
        cmocka_unit_test(this_machine_is_looked_at_without_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
