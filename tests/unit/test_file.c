/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/file.h"
#include "base/mem.h"

static char *directory, path[600];

static int setup(void **state)
{
    (void)state;
    directory = unit_directory();
    snprintf(path, sizeof(path), "%s/file", directory);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory); /* fails where a temporary file was left behind */
}

static void expect_content(const char *text)
{
    struct file_map map;
    struct err err = { 0 };

    assert_int_equal(file_map_open(path, &map, &err), 0);
    assert_int_equal(map.size, strlen(text));
    if (map.size)
        assert_memory_equal(map.data, text, map.size);
    file_map_close(&map);
}

static void a_written_file_is_read_back(void **state)
{
    struct err err = { 0 };
    struct stat status;
    mode_t mask = umask(027);

    assert_int_equal(file_write(path, "hello", 5, &err), 0);
    umask(mask);
    expect_content("hello");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0640);
    assert_int_equal(file_write(path, "", 0, &err), 0);
    expect_content("");
    (void)state;
}

/* As "setfacl -d -m u:12345:rw" leaves it: version 2, and entries of tag, permissions and user. */
static int give_default_acl(const char *folder)
{
    static const struct entry {
        uint16_t tag, permissions;
        uint32_t user;
    } entries[] = { { 0x01, 7, UINT32_MAX }, { 0x02, 6, 12345 }, { 0x04, 0, UINT32_MAX },
                    { 0x10, 7, UINT32_MAX }, { 0x20, 0, UINT32_MAX } };
    struct {
        uint32_t version;
        struct entry entries[5];
    } acl = { .version = 2 };

    memcpy(acl.entries, entries, sizeof(entries));
    return setxattr(folder, "system.posix_acl_default", &acl, sizeof(acl), 0);
}

/* What a project group, or its ACL, may do with a file is not for the umask of who writes it. */
static void a_written_file_has_the_group_and_the_acl_of_its_folder(void **state)
{
    struct err err = { 0 };
    struct stat status;
    mode_t mask = umask(077);
    gid_t group = geteuid() == 0 ? 12345 : getegid();
    int acl = give_default_acl(directory);

    if (acl)
        assert_int_equal(errno, ENOTSUP);       /* this file system has none */
    assert_int_equal(chown(directory, (uid_t)-1, group), 0);
    assert_int_equal(chmod(directory, 02770), 0);
    assert_int_equal(file_write(path, "a", 1, &err), 0);
    assert_int_equal(file_write(path, "b", 1, &err), 0);
    umask(mask);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_gid, group);
    assert_int_equal(status.st_mode & 0777, acl ? 0600 : 0660);     /* the ACL's mask is there */
    (void)state;
}

static void a_temporary_file_is_for_its_user_alone_whatever_the_umask(void **state)
{
    const char *before = getenv("TMPDIR");
    struct err err = { 0 };
    struct stat status;
    mode_t mask = umask(0);
    char *old = before ? mem_strdup(before) : NULL, *name;

    setenv("TMPDIR", directory, 1);
    name = file_temporary(".conf", "hello", &err);
    umask(mask);
    assert_non_null(name);
    assert_int_equal(strncmp(name, directory, strlen(directory)), 0);
    assert_true(file_ends_in(name, ".conf"));
    assert_int_equal(stat(name, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(rename(name, path), 0);
    expect_content("hello");
    free(name);
    setenv("TMPDIR", "/proc/no such place", 1);
    assert_null(file_temporary("", "hello", &err));
    assert_contains(err.text, "/proc/no such place/tasuki-");
    unsetenv("TMPDIR");
    if (old)
        setenv("TMPDIR", old, 1);
    free(old);
    (void)state;
}

static void a_failed_write_leaves_the_old_file_and_nothing_else(void **state)
{
    struct rlimit old, limit;
    struct err err = { 0 };
    char *big = calloc(1, 100000);

    assert_int_equal(file_write(path, "old", 3, &err), 0);
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(file_write(path, big, 100000, &err), -1);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_contains(err.text, path);
    expect_content("old");
    free(big);
    (void)state;
}

static void a_link_stays_a_link(void **state)
{
    char link_path[700];
    struct err err = { 0 };
    struct stat status;

    snprintf(link_path, sizeof(link_path), "%s/link", directory);
    assert_int_equal(file_write(path, "old", 3, &err), 0);
    assert_int_equal(symlink(path, link_path), 0);
    assert_int_equal(file_write(link_path, "new", 3, &err), 0);
    assert_int_equal(lstat(link_path, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    unlink(link_path);
    expect_content("new");
    (void)state;
}

static void special_files_are_written_in_place_and_never_mapped(void **state)
{
    struct err err = { 0 };
    struct file_map map;

    assert_int_equal(file_write("/dev/null", "x", 1, &err), 0);
    assert_int_equal(access("/dev/null", W_OK), 0);
    assert_int_equal(file_map_open("/dev/null", &map, &err), -1);
    assert_contains(err.text, "/dev/null: not a regular file");
    assert_int_equal(file_write(directory, "x", 1, &err), -1);
    assert_contains(err.text, "is a directory");
    assert_int_equal(file_write("/nonexistent/x", "x", 1, &err), -1);
    (void)state;
}

static void mkdir_accepts_a_directory_that_exists(void **state)
{
    struct err err = { 0 };

    assert_int_equal(file_mkdir(path, &err), 0);
    assert_int_equal(file_mkdir(path, &err), 0);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(file_write(path, "x", 1, &err), 0);
    assert_int_equal(file_mkdir(path, &err), -1);
    assert_contains(err.text, "File exists");
    (void)state;
}

static void a_mapping_shows_another_file_or_what_it_showed(void **state)
{
    char copy[600];
    struct err err = { 0 };
    struct file_map map;
    int fd;

    (void)state;
    snprintf(copy, sizeof(copy), "%s/copy", directory);
    assert_int_equal(file_write(path, "old", 3, &err), 0);
    assert_int_equal(file_write(copy, "new", 3, &err), 0);
    assert_int_equal(file_map_open(path, &map, &err), 0);
    fd = open("/proc/cpuinfo", O_RDONLY);   /* which cannot be mapped, as the kernel finds late */
    assert_int_equal(file_map_replace(&map, fd), -1);
    assert_memory_equal(map.data, "old", 3);
    close(fd);
    fd = open(copy, O_RDONLY);
    assert_int_equal(file_map_replace(&map, fd), 0);
    close(fd);
    assert_memory_equal(map.data, "new", 3);
    file_map_close(&map);
    unlink(copy);
}

static void what_is_written_in_place_of_a_file_is_not_dropped(void **state)
{
    struct err err = { 0 };
    struct file_map map;

    (void)state;
    assert_int_equal(file_map_blank(1 << 20, &map, &err), 0);
    assert_true(file_map_has(&map, map.data + 10, (1 << 20) - 10));
    assert_false(file_map_has(&map, map.data + 10, 1 << 20));
    assert_int_equal(map.data[4096], 0);
    memset((unsigned char *)(uintptr_t)map.data + 4096, 'x', 4096);
    file_map_drop(&map, map.data, map.size);
    assert_int_equal(map.data[4096], 'x');
    file_map_close(&map);
    assert_int_equal(file_map_blank(0, &map, &err), 0);
    assert_false(file_map_has(&map, &err, 0));
    file_map_close(&map);
}

static void hash_is_xxh3(void **state)
{
    char hex[17];

    file_hash("", 0, hex);
#ifdef HAVE_XXHASH
    assert_string_equal(hex, "2d06800538d394c2"); /* of nothing, seed 0 */
#else
    assert_string_equal(hex, "");
#endif
    (void)state;
}

struct watcher {
    const volatile unsigned char *bytes;
    atomic_bool stop;
    int others;                     /* bytes that neither file has */
};

static void *watch(void *argument)
{
    struct watcher *w = argument;

    while (!atomic_load(&w->stop))
        for (int i = 0; i < 2; i++) {
            unsigned char byte = w->bytes[i * 4096];

            w->others += byte != 'a' && byte != 'b';
        }
    return NULL;
}

/* Thousands of times while another thread reads. */
static void a_mapping_is_replaced_under_its_readers(void **state)
{
    char bytes[8192], other[700];
    struct file_map map;
    struct watcher watcher = { .others = 0 };
    struct err err = { 0 };
    pthread_t thread;
    int fds[2];

    (void)state;
    snprintf(other, sizeof(other), "%s.other", path);
    for (int i = 0; i < 2; i++) {
        memset(bytes, 'a' + i, sizeof(bytes));
        assert_int_equal(file_write(i ? other : path, bytes, sizeof(bytes), &err), 0);
        fds[i] = open(i ? other : path, O_RDONLY);
        assert_true(fds[i] >= 0);
    }
    assert_int_equal(file_map_open(path, &map, &err), 0);
    watcher.bytes = map.data;
    assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
    for (int i = 1; i < 5000; i++)
        assert_int_equal(file_map_replace(&map, fds[i % 2]), 0);
    assert_int_equal(map.data[8191], 'b');
    atomic_store(&watcher.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(watcher.others, 0);
    file_map_close(&map);
    close(fds[0]);
    close(fds[1]);
    unlink(other);
}

/* Tests as root: user 1000 owns folders, others put links there. */
static char *place_link(const char *folder, mode_t mode, const char *target, uid_t maker)
{
    char *link = mem_printf("%s/link", folder);

    assert_int_equal(chown(folder, 1000, 60000), 0);
    assert_int_equal(chmod(folder, mode), 0);
    unlink(link);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(lchown(link, maker, 60000), 0);
    return link;
}

static void expect_link(const char *at, const char *refused)
{
    struct err err = { 0 };
    int result = file_check_link(at, &err);

    if (refused) {
        assert_int_equal(result, -1);
        assert_contains(err.text, refused);
    } else if (result) {
        fail_msg("%s", err.text);
    }
}

static void links_of_others_are_refused_where_others_may_make_them(void **state)
{
    static const struct { mode_t mode; uid_t maker; bool refused; } cases[] = {
        { 02770, 1001, true }, { 01777, 1001, true }, { 0777, 1001, true }, { 0775, 1001, true },
        { 02770, 1000, false }, { 02770, 0, false }, { 0755, 1001, false }, { 0700, 1001, false },
    };

    (void)state;
    if (geteuid() != 0)
        skip();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *why = cases[i].refused ? "is a link that another user made (user 1001)" : NULL;
        char *link = place_link(directory, cases[i].mode, "/tmp", cases[i].maker);
        char *inside = mem_printf("%s/a/b", link), *slashes = mem_printf("%s//", link);

        expect_link(link, why);
        expect_link(inside, why);
        expect_link(slashes, why);
        unlink(link);
        free(inside);
        free(slashes);
        free(link);
    }
}

static void what_a_link_of_ones_own_leads_through_is_looked_at_too(void **state)
{
    char *project, *foreign, *own, *relative, *loop;

    (void)state;
    if (geteuid() != 0)
        skip();
    project = mem_printf("%s/project", directory);
    own = mem_printf("%s/own", directory);
    relative = mem_printf("%s/relative", directory);
    loop = mem_printf("%s/loop", directory);
    assert_int_equal(mkdir(project, 0777), 0);
    foreign = place_link(project, 02770, "/tmp", 1001);
    assert_int_equal(symlink(foreign, own), 0);
    assert_int_equal(symlink("project/../project/./link/", relative), 0);
    assert_int_equal(symlink("loop", loop), 0);
    expect_link(own, "project/link is a link that another user made (user 1001)");
    expect_link(relative, "link is a link that another user made (user 1001)");
    expect_link(loop, NULL);
    expect_link("nowhere/at/all", NULL);
    unlink(foreign);
    unlink(own);
    unlink(relative);
    unlink(loop);
    rmdir(project);
    free(project);
    free(foreign);
    free(own);
    free(relative);
    free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_written_file_is_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_written_file_has_the_group_and_the_acl_of_its_folder,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_temporary_file_is_for_its_user_alone_whatever_the_umask,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_write_leaves_the_old_file_and_nothing_else,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_link_stays_a_link, setup, teardown),
        cmocka_unit_test_setup_teardown(special_files_are_written_in_place_and_never_mapped,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(mkdir_accepts_a_directory_that_exists, setup, teardown),
        cmocka_unit_test_setup_teardown(a_mapping_is_replaced_under_its_readers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_mapping_shows_another_file_or_what_it_showed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(links_of_others_are_refused_where_others_may_make_them,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_link_of_ones_own_leads_through_is_looked_at_too,
                                        setup, teardown),
        cmocka_unit_test(what_is_written_in_place_of_a_file_is_not_dropped),
        cmocka_unit_test(hash_is_xxh3),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
