/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "base/config_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

#ifdef HAVE_INIH
#include <ini.h>

struct reading {
    FILE *file;
    const char *path;
    int line;           /* of the last line read, counted here: inih tells no handler */
    int too_long;
    config_line *handle;
    void *user;
    struct err *err;
};

static char *read_line(char *buffer, int room, void *stream)
{
    struct reading *r = stream;
    char *line = fgets(buffer, room, r->file);

    if (!line)
        return NULL;
    r->line++;
    if (!strchr(line, '\n') && !feof(r->file))
        r->too_long = r->line;
    return r->too_long ? NULL : line;
}

static int take_line(void *user, const char *section, const char *name, const char *value)
{
    struct reading *r = user;

    if (r->err->code)
        return 0;
    if (section[0]) {
        err_set_code(r->err, EXIT_USAGE, "%s:%d: sections are not used here, got [%s]",
                     r->path, r->line, section);
        return 0;
    }
    return r->handle(r->user, r->path, r->line, name, value, r->err) == 0;
}

static int read_stream(struct reading *r)
{
    int bad = ini_parse_stream(read_line, r, take_line, r);

    if (r->err->code)
        return -1;
    if (r->too_long)
        return err_set_code(r->err, EXIT_USAGE, "%s:%d: the line is too long", r->path,
                            r->too_long);
    if (ferror(r->file))
        return err_set(r->err, "%s: %s", r->path, strerror(errno));
    if (bad)
        return err_set_code(r->err, EXIT_USAGE, "%s:%d: expected \"key = value\"", r->path,
                            bad);
    return 0;
}

int config_file_read(const char *path, config_line *handle, void *user, struct err *err)
{
    struct err own = { 0 };
    struct reading r = { .path = path, .handle = handle, .user = user, .err = &own };
    int result;

    r.file = fopen(path, "re");
    if (!r.file && (errno == ENOENT || errno == ENOTDIR))
        return 1;
    if (!r.file)
        return err_set(err, "%s: %s", path, strerror(errno));
    result = read_stream(&r);
    fclose(r.file);
    if (result && err)
        *err = own;
    return result;
}

#else

int config_file_read(const char *path, config_line *handle, void *user, struct err *err)
{
    FILE *file = fopen(path, "re");

    (void)handle;
    (void)user;
    if (!file && (errno == ENOENT || errno == ENOTDIR))
        return 1;
    if (file)
        fclose(file);
    return err_set(err, "%s: this build reads no configuration files (no inih)", path);
}

#endif
