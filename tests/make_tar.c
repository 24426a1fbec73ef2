/* SPDX-License-Identifier: MIT */
/* make_tar FILE FIRST COUNT CLASSES [BAD]: a WebDataset tar of drawn pictures, samples FIRST
 * and on; number BAD is cut in the middle. Exit code 77 where libjpeg or libarchive is missing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "unit/picture.h"

int main(int argc, char **argv)
{
    struct bytes tar = { 0 };
    int first, count, classes, bad;
    FILE *out;

    if (argc < 5)
        return 2;
    if (!picture_built())
        return 77;
    first = atoi(argv[2]);
    count = atoi(argv[3]);
    classes = atoi(argv[4]);
    bad = argc > 5 ? atoi(argv[5]) : -1;
    for (int i = first; i < first + count; i++) {
        char name[64];

        snprintf(name, sizeof(name), "pictures/%06d", i);
        if (i == bad) {
            struct bytes picture = picture_draw(40, 30, 0, 3, false);

            snprintf(name, sizeof(name), "pictures/%06d.jpg", i);
            tar_add(&tar, name, picture.data, picture.size / 2);
            bytes_clear(&picture);
        } else {
            tar_add_sample(&tar, name, 20 + i % 7, 30 - i % 5, i % classes);
        }
    }
    tar_end(&tar);
    out = fopen(argv[1], "wb");
    if (!out || fwrite(tar.data, 1, tar.size, out) != tar.size || fclose(out))
        return 1;
    bytes_clear(&tar);
    return 0;
}
