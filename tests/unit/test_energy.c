/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "topology/energy.h"

static char folder[] = "/tmp/test_energy.XXXXXX";

static char *fake_nvml(void)
{
    const char *build = getenv("builddir");

    return mem_printf("%s/tests/.libs/fake_nvml.so", build ? build : ".");
}

static void put(const char *zone, const char *name, const char *text)
{
    char *path = mem_printf("%s/class/powercap/%s", folder, zone);
    FILE *file;

    mkdir(path, 0700);
    free(path);
    path = mem_printf("%s/class/powercap/%s/%s", folder, zone, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    free(path);
}

static void put_zone(const char *zone, const char *name, const char *energy)
{
    put(zone, "name", name);
    put(zone, "max_energy_range_uj", "10000000\n");
    put(zone, "energy_uj", energy);
}

static int make_folder(void **state)
{
    char *path;

    (void)state;
    if (!mkdtemp(folder))
        return -1;
    path = mem_printf("%s/class", folder);
    mkdir(path, 0700);
    free(path);
    path = mem_printf("%s/class/powercap", folder);
    mkdir(path, 0700);
    free(path);
    setenv("TASUKI_SYSFS", folder, 1);
    unsetenv("TASUKI_NVML");
    return 0;
}

static int remove_folder(void **state)
{
    char *command = mem_printf("rm -r %s", folder);
    int status = system(command);

    (void)state;
    free(command);
    return status ? -1 : 0;
}

static void where_there_are_no_counters_nothing_is_known(void **state)
{
    struct energy *e = energy_start(true, "");
    double cpus, gpu;

    energy_read(e, &cpus, &gpu);
    assert_true(isnan(cpus) && isnan(gpu));
    energy_free(e);
    (void)state;
}

/* The second package's counter begins anew; a package's cores are in it, "psys" has all. */
static void packages_and_their_memory_are_summed(void **state)
{
    struct energy *e;
    double cpus, gpu;

    put_zone("intel-rapl:0", "package-0\n", "1000000\n");
    put_zone("intel-rapl:0:0", "core\n", "5\n");
    put_zone("intel-rapl:0:1", "dram\n", "0\n");
    put_zone("intel-rapl:1", "package-1\n", "9000000\n");
    put_zone("intel-rapl:2", "psys\n", "0\n");
    put_zone("intel-rapl-mmio:0", "package-0\n", "0\n");
    e = energy_start(true, "");
    put("intel-rapl:0", "energy_uj", "4000000\n");
    put("intel-rapl:0:0", "energy_uj", "2000000\n");
    put("intel-rapl:0:1", "energy_uj", "500000\n");
    put("intel-rapl:1", "energy_uj", "2000000\n");
    put("intel-rapl:2", "energy_uj", "9000000\n");
    energy_read(e, &cpus, &gpu);
    assert_true(fabs(cpus - (3 + 0.5 + 3)) < 1e-9);
    assert_true(isnan(gpu));
    put("intel-rapl:0", "energy_uj", "nothing\n");
    energy_read(e, &cpus, &gpu);
    assert_true(isnan(cpus));
    energy_free(e);
    (void)state;
}

/* Each time the stand-in is asked, it has used 2,500 millijoules more. */
static void a_gpu_is_known_by_its_address(void **state)
{
    char *path = mem_printf("%s/gpus", folder), *library = fake_nvml();
    FILE *file = fopen(path, "w");
    struct energy *e;
    double cpus, gpu;

    assert_non_null(file);
    fputs("gpu 0000:1b:00.0\nenergy 7\ngpu 0000:3b:00.0\nenergy 2500\n", file);
    fclose(file);
    setenv("TASUKI_FAKE_NVML", path, 1);
    setenv("TASUKI_NVML", library, 1);
    e = energy_start(false, "0000:3b:00.0");
    energy_read(e, &cpus, &gpu);
    assert_true(isnan(cpus));
    assert_true(fabs(gpu - 2.5) < 1e-9);
    energy_free(e);
    e = energy_start(false, "0000:4b:00.0");
    energy_read(e, &cpus, &gpu);
    assert_true(isnan(gpu));
    energy_free(e);
    free(library);
    free(path);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_there_are_no_counters_nothing_is_known),
        cmocka_unit_test(packages_and_their_memory_are_summed),
        cmocka_unit_test(a_gpu_is_known_by_its_address),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
