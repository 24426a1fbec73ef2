/* SPDX-License-Identifier: MIT */
/* make_onnx MODEL.onnx [FILE NUMBERS] <TEXT: a model by what onnx_text.h says, and a file with so
 * many floats for its external weights.
 */
#include <stdio.h>
#include <stdlib.h>

#include "onnx_text.h"

static int write_weights(const char *path, size_t n)
{
    FILE *file = fopen(path, "wb");
    size_t i, written = 0;

    for (i = 0; i < n && file; i++) {
        float x = (float)onnx_text_value(path, i) / 4;

        written += fwrite(&x, sizeof(x), 1, file);
    }
    return file && fclose(file) == 0 && written == n ? 0 : -1;
}

int main(int argc, char **argv)
{
    static char text[1 << 16];
    size_t n = fread(text, 1, sizeof(text) - 1, stdin);

    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: make_onnx MODEL.onnx [FILE NUMBERS] <TEXT\n");
        return 2;
    }
    text[n] = '\0';
    onnx_write_text(argv[1], text);
    if (argc == 4 && write_weights(argv[2], strtoul(argv[3], NULL, 10))) {
        perror(argv[2]);
        return 1;
    }
    return 0;
}
