/* SPDX-License-Identifier: MIT */
/* Configuration files: "key = value" lines, '#' or ';' comments, no sections. */
#ifndef TASUKI_BASE_CONFIG_FILE_H
#define TASUKI_BASE_CONFIG_FILE_H

struct err;

/* Called for each line; returns -1 with 'err' to stop. */
typedef int config_line(void *user, const char *path, int line, const char *key,
                        const char *value, struct err *err);

/* Returns 0, -1 with 'err' ("FILE:LINE: …"), or 1 where the file does not exist. A build
 * without inih fails on any file that exists.
 */
int config_file_read(const char *path, config_line *handle, void *user, struct err *err);

#endif
