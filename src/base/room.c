/* SPDX-License-Identifier: MIT */
#include "base/room.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"

#define QUOTA_BLOCK 1024.0

/* What is mounted there. */
struct mounted {
    char *device;           /* a block device; NULL where it has none */
    char type[32];
};

/* Is it this file system that a line of mountinfo is about? "ID PARENT MAJOR:MINOR … - TYPE
 * SOURCE …", with blanks as octal numbers, which no device has.
 */
static bool read_mounted(char *line, dev_t device, struct mounted *mounted)
{
    unsigned int high, low;
    char *tail = strstr(line, " - "), *type, *source, *rest;

    if (!tail || sscanf(line, "%*d %*d %u:%u", &high, &low) != 2 ||
        makedev(high, low) != device)
        return false;
    type = strtok_r(tail + 3, " \n", &rest);
    source = type ? strtok_r(NULL, " \n", &rest) : NULL;
    if (!source)
        return false;
    snprintf(mounted->type, sizeof(mounted->type), "%s", type);
    mounted->device = source[0] == '/' ? mem_strdup(source) : NULL;
    return true;
}

static struct mounted mounted_at(dev_t device)
{
    const char *mounts = getenv("TASUKI_TEST_MOUNTS");
    FILE *file = fopen(mounts ? mounts : "/proc/self/mountinfo", "re");
    struct mounted mounted = { 0 };
    char *line = NULL;
    size_t room = 0;

    while (file && !mounted.type[0] && getline(&line, &room, file) >= 0)
        (void)read_mounted(line, device, &mounted);
    free(line);
    if (file)
        fclose(file);
    return mounted;
}

/* Limits of 0 are none; beyond the soft one nothing can be relied upon. */
static double left(uint64_t hard, uint64_t soft, double unit, double used)
{
    double limit = (double)(soft && (!hard || soft < hard) ? soft : hard) * unit;

    return limit > 0 ? dmax(limit - used, 0) : INFINITY;
}

/* QCMD() shifts a bit into the sign. */
static int quota_command(int kind)
{
    return (int)((unsigned int)Q_GETQUOTA << SUBCMDSHIFT | ((unsigned int)kind & SUBCMDMASK));
}

static void take_quota(const char *device, int kind, unsigned int id, enum room_limit limit,
                       struct room *room)
{
    struct dqblk quota = { 0 };
    double bytes, files;

    if (quotactl(quota_command(kind), device, (int)id, (void *)&quota) < 0)
        return;
    bytes = left(quota.dqb_bhardlimit, quota.dqb_bsoftlimit, QUOTA_BLOCK,
                 (double)quota.dqb_curspace);
    files = left(quota.dqb_ihardlimit, quota.dqb_isoftlimit, 1, (double)quota.dqb_curinodes);
    room->bytes_limit = bytes < room->bytes ? limit : room->bytes_limit;
    room->bytes = dmin(bytes, room->bytes);
    room->files_limit = files < room->files ? limit : room->files_limit;
    room->files = dmin(files, room->files);
}

/* Root has none. */
static void take_quotas(const struct stat *directory, struct room *room)
{
    gid_t group = directory->st_mode & S_ISGID ? directory->st_gid : getegid();
    struct mounted mounted;

    if (geteuid() == 0)
        return;
    mounted = mounted_at(directory->st_dev);
    if (mounted.device) {
        take_quota(mounted.device, USRQUOTA, geteuid(), ROOM_USER, room);
        take_quota(mounted.device, GRPQUOTA, group, ROOM_GROUP, room);
    } else {
        snprintf(room->unasked, sizeof(room->unasked), "%s",
                 mounted.type[0] ? mounted.type : "not known");
    }
    free(mounted.device);
}

int room_in(const char *directory, struct room *room, struct err *err)
{
    struct statvfs disk;
    struct stat status;

    if (statvfs(directory, &disk) < 0 || stat(directory, &status) < 0)
        return err_set(err, "%s: %s", directory, strerror(errno));
    *room = (struct room){
        .bytes = (double)(geteuid() ? disk.f_bavail : disk.f_bfree) * (double)disk.f_frsize,
        .files = disk.f_files ? (double)(geteuid() ? disk.f_favail : disk.f_ffree) : INFINITY,
    };
    take_quotas(&status, room);
    return 0;
}

const char *room_said(enum room_limit limit)
{
    return limit == ROOM_USER    ? "are left of the user's quota"
           : limit == ROOM_GROUP ? "are left of the group's quota"
                                 : "are free";
}

char *room_unasked(const char *directory, const struct room *room)
{
    return room->unasked[0] ? mem_printf("%s: quotas of this file system (%s) cannot be asked: what "
                                         "it shows as free counts", directory, room->unasked)
                            : NULL;
}
