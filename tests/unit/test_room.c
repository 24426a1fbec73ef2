/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/err.h"
#include "base/room.h"

static char folder[] = "/tmp/test_room.XXXXXX", mounts[] = "/tmp/test_room.XXXXXX";

/* What quotactl() answers, in place of the C library's. */
static struct dqblk answers[MAXQUOTAS];
static bool has_quotas;

int quotactl(int command, const char *special, int id, caddr_t address)
{
    int kind = command & SUBCMDMASK;

    assert_string_equal(special, "/dev/a");
    assert_int_equal((unsigned)command >> SUBCMDSHIFT, Q_GETQUOTA);
    if (!has_quotas) {
        errno = ESRCH;
        return -1;
    }
    assert_int_equal(id, kind == USRQUOTA ? 1000 : (int)getegid());
    memcpy(address, &answers[kind], sizeof(answers[kind]));
    return 0;
}

/* Root has no quotas. */
uid_t geteuid(void)
{
    return 1000;
}

static int make_files(void **state)
{
    struct stat status;
    FILE *file;
    int fd = mkstemp(mounts);

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_return_code(stat(folder, &status), errno);
    file = fdopen(fd, "w");
    fprintf(file, "20 1 0:999 / /proc rw - proc proc rw\n"
            "21 1 %u:%u / / rw,relatime shared:1 - ext4 /dev/a rw\n",
            major(status.st_dev), minor(status.st_dev));
    fclose(file);
    setenv("TASUKI_TEST_MOUNTS", mounts, 1);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    return unlink(mounts) | rmdir(folder);
}

static struct room room_here(void)
{
    struct err err;
    struct room room;

    if (room_in(folder, &room, &err) < 0)
        fail_msg("%s", err.text);
    return room;
}

static void test_disk(void **state)
{
    struct room room;

    (void)state;
    has_quotas = false;
    room = room_here();
    assert_true(room.bytes > 0 && room.files > 0);
    assert_int_equal(room.bytes_limit, ROOM_DISK);
    assert_int_equal(room.files_limit, ROOM_DISK);
    assert_string_equal(room_said(room.bytes_limit), "are free");
}

/* The soft limit counts, of both the tighter one; what is used goes off. */
static void test_quotas(void **state)
{
    struct room room;

    (void)state;
    has_quotas = true;
    answers[USRQUOTA] = (struct dqblk){ .dqb_bhardlimit = 5000, .dqb_bsoftlimit = 10,
                                        .dqb_curspace = 1024, .dqb_ihardlimit = 9,
                                        .dqb_curinodes = 4 };
    answers[GRPQUOTA] = (struct dqblk){ .dqb_bhardlimit = 100, .dqb_ihardlimit = 4,
                                        .dqb_curinodes = 2 };
    room = room_here();
    assert_int_equal(room.bytes, 9 * 1024);
    assert_int_equal(room.bytes_limit, ROOM_USER);
    assert_int_equal(room.files, 2);
    assert_int_equal(room.files_limit, ROOM_GROUP);
    assert_string_equal(room_said(ROOM_GROUP), "are left of the group's quota");
}

/* Limits of 0 are none; what is used beyond a limit leaves nothing. */
static void test_limits(void **state)
{
    struct room room;

    (void)state;
    has_quotas = true;
    answers[USRQUOTA] = (struct dqblk){ .dqb_curspace = 1024 };
    answers[GRPQUOTA] = (struct dqblk){ .dqb_bsoftlimit = 1, .dqb_curspace = 1 << 20 };
    room = room_here();
    assert_int_equal(room.bytes, 0);
    assert_int_equal(room.bytes_limit, ROOM_GROUP);
    assert_int_equal(room.files_limit, ROOM_DISK);
}

/* Network file systems have no device of this host. */
static void test_unasked(void **state)
{
    char *text;
    struct stat status;
    struct room room;
    FILE *file;

    (void)state;
    has_quotas = true;
    room = room_here();
    assert_null(room_unasked(folder, &room));
    assert_return_code(stat(folder, &status), errno);
    file = fopen(mounts, "w");
    fprintf(file, "21 1 %u:%u / /home rw,relatime shared:1 - nfs4 nas:/home rw\n",
            major(status.st_dev), minor(status.st_dev));
    fclose(file);
    room = room_here();
    assert_string_equal(room.unasked, "nfs4");
    assert_int_equal(room.bytes_limit, ROOM_DISK);
    text = room_unasked("out", &room);
    assert_string_equal(text, "out: quotas of this file system (nfs4) cannot be asked: what it shows "
                              "as free counts");
    free(text);
}

static void test_missing(void **state)
{
    struct err err;
    struct room room;

    (void)state;
    assert_int_equal(room_in("/nowhere/at/all", &room, &err), -1);
    assert_string_equal(err.text, "/nowhere/at/all: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_quotas),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_unasked),
        cmocka_unit_test(test_missing),
    };

    return cmocka_run_group_tests(tests, make_files, remove_files);
}
