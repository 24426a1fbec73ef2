/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_XXHASH
#define XXH_INLINE_ALL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <xxhash.h>
#pragma GCC diagnostic pop
#endif

#include "base/err.h"
#include "base/mem.h"

static int system_error(struct err *err, const char *path)
{
    int number = errno;

    err_set(err, "%s: %s", path, strerror(number));
    if (err)
        err->number = number;
    return -1;
}

static struct file_stamp stamp_of(const struct stat *status)
{
    return (struct file_stamp){
        (uint64_t)status->st_dev, (uint64_t)status->st_ino, (uint64_t)status->st_size,
        (int64_t)status->st_mtim.tv_sec, (int64_t)status->st_mtim.tv_nsec,
    };
}

int file_stamp(int fd, struct file_stamp *stamp)
{
    struct stat status;

    if (fstat(fd, &status))
        return -1;
    *stamp = stamp_of(&status);
    return 0;
}

bool file_stamp_same(const struct file_stamp *a, const struct file_stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->seconds == b->seconds && a->nanoseconds == b->nanoseconds;
}

static int map_descriptor(int fd, const char *path, struct file_map *map, struct err *err)
{
    struct stat status;
    void *data;

    if (fstat(fd, &status))
        return system_error(err, path);
    if (!S_ISREG(status.st_mode))
        return err_set(err, "%s: not a regular file", path);
    *map = (struct file_map){ .size = (size_t)status.st_size, .stamp = stamp_of(&status) };
    if (map->size == 0)
        return 0;
    data = mmap(NULL, map->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return system_error(err, path);
    map->data = data;
    return 0;
}

int file_map_open(const char *path, struct file_map *map, struct err *err)
{
    /* Without O_NONBLOCK opening a pipe would wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), result;

    if (fd < 0)
        return system_error(err, path);
    result = map_descriptor(fd, path, map, err);
    close(fd);
    return result;
}

int file_map_blank(size_t size, struct file_map *map, struct err *err)
{
    void *data;

    *map = (struct file_map){ .blank = true };
    if (size == 0)
        return 0;
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
    if (data == MAP_FAILED)
        return err_set(err, "%zu bytes of address space: %s", size, strerror(errno));
    map->data = data;
    map->size = size;
    return 0;
}

bool file_map_has(const struct file_map *map, const void *data, size_t bytes)
{
    uintptr_t start = (uintptr_t)map->data, from = (uintptr_t)data;

    return map->data && from >= start && from - start <= map->size &&
           bytes <= map->size - (from - start);
}

int file_map_replace(const struct file_map *map, int fd)
{
    /* Elsewhere first: a MAP_FIXED that fails may have unmapped what was there. */
    void *data = mmap(NULL, map->size, PROT_READ, MAP_PRIVATE, fd, 0);

    if (data == MAP_FAILED)
        return -1;
    if (mremap(data, map->size, map->size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)map->data) !=
        MAP_FAILED)
        return 0;
    munmap(data, map->size);
    return -1;
}

void file_map_drop(const struct file_map *map, const void *data, size_t bytes)
{
    uintptr_t from = (uintptr_t)data, to = from + bytes;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    /* What is blank would not come back. */
    if (map->blank || !file_map_has(map, data, bytes))
        return;
    from -= from % page;
    (void)madvise((void *)from, to - from, MADV_DONTNEED);     /* only a hint */
}

void file_map_close(struct file_map *map)
{
    if (map->data)
        munmap((void *)map->data, map->size);
    map->data = NULL;
    map->size = 0;
}

int file_write_all(int fd, const char *path, const void *data, size_t size, struct err *err)
{
    const unsigned char *at = data;

    while (size > 0) {
        ssize_t n = write(fd, at, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return system_error(err, path);
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Pipes, terminals and /dev/null cannot be replaced by a rename. */
static int write_special(const char *path, const void *data, size_t size, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC), result;

    if (fd < 0)
        return system_error(err, path);
    result = file_write_all(fd, path, data, size, err);
    if (close(fd) && result == 0)
        result = system_error(err, path);
    return result;
}

static void sync_directory(const char *path)
{
    char *copy = mem_strdup(path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    /* Best effort: some file systems refuse it, and the data are safe already. */
    if (fd >= 0) {
        (void)!fsync(fd);
        close(fd);
    }
    free(copy);
}

/* A new file beside 'path', whose name, malloc'ed, nobody knows beforehand. Not mkstemp(): who may
 * read it is for the umask, and the folder's default ACL, to say.
 */
static int open_beside(const char *path, mode_t mode, char **name)
{
    uint64_t number;
    int fd;

    do {
        if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
            return -1;
        free(*name);
        *name = mem_printf("%s.%016" PRIx64, path, number);
        fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EEXIST);
    return fd;
}

static int fill_temporary(int fd, const char *path, const void *data, size_t size,
                          struct err *err)
{
    if (file_write_all(fd, path, data, size, err)) {
        close(fd);
        return -1;
    }
    if (fsync(fd) && errno != EINVAL) {
        system_error(err, path);
        close(fd);
        return -1;
    }
    return close(fd) ? system_error(err, path) : 0;
}

static int replace(const char *path, mode_t mode, const void *data, size_t size, struct err *err)
{
    char *name = NULL;
    int fd = open_beside(path, mode, &name), result;

    if (fd < 0) {
        result = system_error(err, path);
        free(name);
        return result;
    }
    result = fill_temporary(fd, path, data, size, err);
    if (result == 0 && rename(name, path))
        result = system_error(err, path);
    if (result)
        unlink(name);
    else
        sync_directory(path);
    free(name);
    return result;
}

int file_replace(const char *path, const void *data, size_t size, struct err *err)
{
    return replace(path, 0666, data, size, err);
}

int file_replace_private(const char *path, const void *data, size_t size, struct err *err)
{
    return replace(path, 0600, data, size, err);
}

char *file_temporary(const char *ending, const char *text, struct err *err)
{
    const char *folder = getenv("TMPDIR");
    char *path = mem_printf("%s/tasuki-XXXXXX%s", folder && *folder ? folder : "/tmp", ending);
    int fd = mkstemps(path, (int)strlen(ending));

    if (fd < 0) {
        system_error(err, path);
        free(path);
        return NULL;
    }
    if (file_write_all(fd, path, text, strlen(text), err)) {
        unlink(path);
        free(path);
        path = NULL;
    }
    close(fd);
    return path;
}

int file_write(const char *path, const void *data, size_t size, struct err *err)
{
    struct stat status;
    char *target;
    int result;

    if (strcmp(path, "-") == 0) {
        fflush(stdout);
        return file_write_all(STDOUT_FILENO, "standard output", data, size, err);
    }
    if (file_check_link(path, err) < 0)
        return -1;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return err_set(err, "%s: is a directory", path);
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return write_special(path, data, size, err);
    /* A link stays a link: what it points to is replaced. */
    target = realpath(path, NULL);
    result = file_replace(target ? target : path, data, size, err);
    free(target);
    return result;
}

void file_hash(const void *data, size_t size, char hex[17])
{
#ifdef HAVE_XXHASH
    snprintf(hex, 17, "%016llx", (unsigned long long)XXH3_64bits(data, size));
#else
    (void)data;
    (void)size;
    hex[0] = '\0';
#endif
}

/* NULL without xxhash, or without memory: then there is no checksum. */
struct file_sum {
    void *state;
};

struct file_sum *file_sum_new(void)
{
    struct file_sum *sum = mem_new(1, sizeof(*sum));

#ifdef HAVE_XXHASH
    sum->state = XXH3_createState();
    if (sum->state)
        XXH3_64bits_reset(sum->state);
#endif
    return sum;
}

void file_sum_add(struct file_sum *sum, const void *data, size_t size)
{
#ifdef HAVE_XXHASH
    if (sum->state)
        XXH3_64bits_update(sum->state, data, size);
#else
    (void)sum;
    (void)data;
    (void)size;
#endif
}

void file_sum_end(struct file_sum *sum, char hex[17])
{
    hex[0] = '\0';
#ifdef HAVE_XXHASH
    if (sum->state)
        snprintf(hex, 17, "%016llx", (unsigned long long)XXH3_64bits_digest(sum->state));
    XXH3_freeState(sum->state);
#endif
    free(sum);
}

void file_mkdirs(const char *path)
{
    struct err ignored = { 0 };
    char *part = mem_strdup(path);

    if (file_check_link(path, &ignored) < 0) {
        free(part);
        return;
    }
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(part, 0777);
        *slash = '/';
    }
    mkdir(part, 0777);
    free(part);
}

int file_mkdir(const char *path, struct err *err)
{
    struct stat status;

    if (file_check_link(path, err) < 0)
        return -1;
    if (mkdir(path, 0777) == 0)
        return 0;
    if (errno == EEXIST && stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return 0;
    return system_error(err, path);
}

bool file_ends_in(const char *name, const char *ending)
{
    size_t length = strlen(name), n = strlen(ending);

    return length > n && strcmp(name + length - n, ending) == 0;
}

DIR *file_opendir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (fd >= 0 && !dir)
        close(fd);
    return dir;
}

void file_remove_directory(const char *path)
{
    DIR *dir = file_opendir(path);
    struct stat status;

    /* "." and ".." are no files: they stay. */
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    else if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
        unlink(path);
    rmdir(path);
}

bool file_in_path(const char *program)
{
    char *path = mem_strdup(getenv("PATH") ? getenv("PATH") : "");
    bool found = false;

    for (char *rest = path, *folder; !found && (folder = strsep(&rest, ":"));) {
        char *file = mem_printf("%s/%s", *folder ? folder : ".", program);

        found = access(file, X_OK) == 0;
        free(file);
    }
    free(path);
    return found;
}
