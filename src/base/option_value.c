/* SPDX-License-Identifier: MIT */
#include "base/option_private.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

bool options_takes(const struct options *options, const char *name)
{
    return option_find(options->command, name) != NULL;
}

bool option_given(const struct options *options, const char *name)
{
    return option_setting(options, name) != NULL;
}

enum option_origin option_origin(const struct options *options, const char *name)
{
    const struct setting *setting = option_setting(options, name);

    return setting ? setting->origin : OPTION_DEFAULT;
}

bool option_flag(const struct options *options, const char *name, bool def)
{
    const struct setting *setting = option_setting(options, name);

    assert(!setting || !setting->spec->argument);
    return setting ? strcmp(setting->values[0], "yes") == 0 : def;
}

const char *option_string(const struct options *options, const char *name, const char *def)
{
    const struct setting *setting = option_setting(options, name);

    return setting ? setting->values[setting->n - 1] : def;
}

int option_strings(const struct options *options, const char *name,
                   const char *const **values)
{
    const struct setting *setting = option_setting(options, name);

    *values = setting ? setting->values : NULL;
    return setting ? setting->n : 0;
}

/* A whole decimal integer; returns the first character behind it, NULL where none is there. */
static const char *parse_int(const char *text, int64_t *value)
{
    const char *digits = text + (text[0] == '-');
    char *end;

    if (!isdigit((unsigned char)digits[0]))
        return NULL;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno ? NULL : end;
}

/* A finite decimal number: no hexadecimal, no "inf". */
static const char *parse_number(const char *text, double *value)
{
    const char *digits = text + (text[0] == '-');
    char *end;

    if (!isdigit((unsigned char)digits[0]) && digits[0] != '.')
        return NULL;
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))
        return NULL;
    *value = strtod(text, &end);
    return isfinite(*value) && end != text ? end : NULL;
}

static int wrong(const struct setting *setting, const char *value, struct err *err,
                 const char *expected)
{
    return err_set_code(err, EXIT_USAGE, "%s: expected %s, got \"%s\"", setting->where,
                        expected, value);
}

static void describe_ints(int64_t min, int64_t max, char text[96])
{
    if (max == INT64_MAX)
        snprintf(text, 96, "an integer, at least %lld", (long long)min);
    else
        snprintf(text, 96, "an integer from %lld to %lld", (long long)min, (long long)max);
}

int option_int(const struct options *options, const char *name, int64_t min, int64_t max,
               int64_t def, int64_t *value, struct err *err)
{
    const struct setting *setting = option_setting(options, name);
    const char *text = option_string(options, name, NULL), *end;
    char expected[96];
    int64_t result;

    if (!setting) {
        *value = def;
        return 0;
    }
    end = parse_int(text, &result);
    if (!end || *end || result < min || result > max) {
        describe_ints(min, max, expected);
        return wrong(setting, text, err, expected);
    }
    *value = result;
    return 0;
}

int option_number(const struct options *options, const char *name, double min, double max,
                  double def, double *value, struct err *err)
{
    const struct setting *setting = option_setting(options, name);
    const char *text = option_string(options, name, NULL), *end;
    char expected[96];
    double result;

    if (!setting) {
        *value = def;
        return 0;
    }
    end = parse_number(text, &result);
    if (!end || *end || result < min || result > max) {
        if (max < HUGE_VAL && max < 1e300)
            snprintf(expected, sizeof(expected), "a number from %g to %g", min, max);
        else
            snprintf(expected, sizeof(expected), "a number, at least %g", min);
        return wrong(setting, text, err, expected);
    }
    *value = result;
    return 0;
}

int option_two_numbers(const struct options *options, const char *name, double min, double max,
                       double values[2], struct err *err)
{
    const struct setting *setting = option_setting(options, name);
    const char *text = option_string(options, name, NULL), *at = text;
    double given[2] = { 0, 0 };
    char expected[96];

    for (int i = 0; at && i < 2; i++) {
        const char *end = parse_number(at, &given[i]);

        if (!end || (*end && (*end != ',' || i > 0)) || given[i] < min || given[i] > max) {
            snprintf(expected, sizeof(expected), "one or two numbers from %g to %g, such as 30,0.5",
                     min, max);
            return wrong(setting, text, err, expected);
        }
        at = *end ? end + 1 : NULL;
    }
    memcpy(values, given, sizeof(given));
    return 0;
}

/* The factor of "K", "KiB" (1024) or "KB" (1000); 0 where it is none. */
static double size_factor(const char *suffix)
{
    static const char letters[] = "KMGTP";
    const char *letter;
    double base, factor = 1;

    if (suffix[0] == '\0' || strcmp(suffix, "B") == 0)
        return 1;
    letter = strchr(letters, suffix[0] == 'k' ? 'K' : suffix[0]);
    if (!letter)
        return 0;
    if (suffix[1] == '\0' || strcmp(suffix + 1, "iB") == 0)
        base = 1024;
    else if (strcmp(suffix + 1, "B") == 0)
        base = 1000;
    else
        return 0;
    for (const char *l = letters; l <= letter; l++)
        factor *= base;
    return factor;
}

int option_size(const struct options *options, const char *name, double min, double def,
                double *value, struct err *err)
{
    const struct setting *setting = option_setting(options, name);
    const char *text = option_string(options, name, NULL), *end;
    double number, factor;
    char expected[64];

    if (!setting) {
        *value = def;
        return 0;
    }
    end = parse_number(text, &number);
    factor = end ? size_factor(end) : 0;
    if (factor == 0 || number < 0 || number * factor > 0x1p62)
        return wrong(setting, text, err, "a size such as 512M or 16GB");
    if (number * factor < min) {
        snprintf(expected, sizeof(expected), "a size of at least %.0f, such as 512M or 16GB", min);
        return wrong(setting, text, err, expected);
    }
    *value = number * factor;
    return 0;
}

int option_span(const struct options *options, const char *name, int64_t min, struct span def,
                struct span *value, struct err *err)
{
    const struct setting *setting = option_setting(options, name);
    const char *text = option_string(options, name, NULL), *end;
    char expected[96];
    struct span span;

    if (!setting) {
        *value = def;
        return 0;
    }
    end = parse_int(text, &span.n);
    span.epochs = end && (strcmp(end, "epochs") == 0 || strcmp(end, "epoch") == 0);
    if (!end || span.n < min || span.n > (span.epochs ? 1 << 30 : INT64_MAX / 2) ||
        (*end && !span.epochs && strcmp(end, "steps") != 0 && strcmp(end, "step") != 0)) {
        snprintf(expected, sizeof(expected), "a number of steps, at least %lld, or of epochs, "
                 "such as 5epochs", (long long)min);
        return wrong(setting, text, err, expected);
    }
    *value = span;
    return 0;
}

int option_period(const struct options *options, const char *name, struct period def,
                  struct period *value, struct err *err)
{
    const struct setting *setting = option_setting(options, name);
    const char *text = option_string(options, name, NULL), *end;
    struct period period = { 0, false };

    if (!setting) {
        *value = def;
        return 0;
    }
    end = parse_number(text, &period.n);
    period.steps = end && (strcmp(end, "steps") == 0 || strcmp(end, "step") == 0);
    if (!end || period.n < 0 || period.n > 1e9 || (*end && !period.steps) ||
        (period.steps && period.n != floor(period.n)))
        return wrong(setting, text, err, "a number of seconds, at least 0, or of steps, such as "
                                         "50steps");
    *value = period;
    return 0;
}

int option_ints(const struct options *options, const char *name, int64_t min, int64_t max,
                int *n, int **values, struct err *err)
{
    const struct setting *setting = option_setting(options, name);
    const char *text = option_string(options, name, NULL), *at = text;
    char expected[96], list[128];
    int *result = NULL, count = 0;

    assert(min >= INT32_MIN && max <= INT32_MAX);
    while (at) {
        int64_t value;
        const char *end = parse_int(at, &value);

        if (!end || (*end && *end != ',') || value < min || value > max) {
            free(result);
            describe_ints(min, max, expected);
            snprintf(list, sizeof(list), "a list N,N,... with each %s", expected);
            return wrong(setting, text, err, list);
        }
        *(int *)mem_push((void **)&result, &count, sizeof(int)) = (int)value;
        at = *end ? end + 1 : NULL;
    }
    *n = count;
    *values = result;
    return 0;
}

/* "text|json" → "text or json" */
static void describe_words(const char *words, char text[256])
{
    size_t n = 0;

    for (; *words && n < 240; words++) {
        if (*words != '|') {
            text[n++] = *words;
            continue;
        }
        n += (size_t)snprintf(text + n, 256 - n, "%s", strchr(words + 1, '|') ? ", " : " or ");
    }
    text[n] = '\0';
}

int option_word(const struct options *options, const char *name, int *index, struct err *err)
{
    const struct setting *setting = option_setting(options, name);
    const char *value = option_string(options, name, NULL), *word;
    char expected[256];
    int i = 0;

    if (!setting) {
        *index = 0;
        return 0;
    }
    for (word = setting->spec->argument; word; i++) {
        const char *bar = strchr(word, '|');
        size_t length = bar ? (size_t)(bar - word) : strlen(word);

        if (strlen(value) == length && memcmp(value, word, length) == 0) {
            *index = i;
            return 0;
        }
        word = bar ? bar + 1 : NULL;
    }
    describe_words(setting->spec->argument, expected);
    return wrong(setting, value, err, expected);
}

int option_choice(const struct options *options, const char *name, const char **word,
                  struct err *err)
{
    int index;

    if (option_word(options, name, &index, err))
        return -1;
    *word = option_string(options, name, NULL);
    return 0;
}
