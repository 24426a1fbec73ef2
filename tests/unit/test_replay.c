/* SPDX-License-Identifier: MIT */
/* Tapes in pieces, on a backend that writes down what it is told. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "train/replay.h"

struct kernel {
    char name;
    bool on_host;
};

struct recording {
    int number;
};

static char said[512];
static int n_recordings;

static void say(const char *text)
{
    strncat(said, text, sizeof(said) - strlen(said) - 1);
}

static bool kernel_records(const struct kernel *kernel)
{
    return !kernel->on_host;
}

static int kernel_run(struct kernel *kernel, struct stream *stream,
                      const struct kernel_args *args, struct err *err)
{
    char text[8];

    (void)stream, (void)err;
    snprintf(text, sizeof(text), "%c%s", kernel->name,
             args->accumulate == ACCUMULATE_YES ? "+" : "");
    say(text);
    return 0;
}

static int record_begin(struct stream *stream, struct err *err)
{
    (void)stream, (void)err;
    say("[");
    return 0;
}

static int record_end(struct stream *stream, struct recording **recording, struct err *err)
{
    static struct recording all[16];

    (void)stream, (void)err;
    say("]");
    *recording = &all[n_recordings];
    (*recording)->number = n_recordings++;
    return 0;
}

static int replay(struct stream *stream, struct recording *recording, struct err *err)
{
    char text[8];

    (void)stream, (void)err;
    snprintf(text, sizeof(text), "%d", recording->number);
    say(text);
    return 0;
}

static void recording_free(struct recording *recording)
{
    n_recordings -= recording != NULL;
}

static const struct backend backend = {
    .kernel_records = kernel_records, .kernel_run = kernel_run, .record_begin = record_begin,
    .record_end = record_end, .replay = replay, .recording_free = recording_free,
};

/* Of kernels a, b, … of which those in capitals run on the host, for two slots. */
struct fixture {
    struct kernel kernels[8];
    struct kernel_args args[8][2];
    struct tape_item items[8];
    struct tape tape;
};

static void make_tape(struct fixture *f, const char *kernels)
{
    *f = (struct fixture){ .tape = { .backend = &backend, .n_slots = 2 } };
    for (int i = 0; kernels[i]; i++) {
        f->kernels[i] = (struct kernel){ kernels[i], kernels[i] < 'a' };
        f->items[i] = (struct tape_item){ .gradient = true, .kernel = &f->kernels[i],
                                          .args = f->args[i] };
        f->tape.n++;
    }
    f->tape.items = f->items;
    said[0] = '\0';
    n_recordings = 0;
}

static const char *run(struct replay *r, int slot, bool accumulate)
{
    struct err err = { 0 };

    said[0] = '\0';
    for (int p = 0; p < r->n; p++)
        assert_int_equal(replay_run(r, p, slot, accumulate, &err), 0);
    return said;
}

static void kernels_run_plainly_once_are_recorded_for_each_slot_then_replayed(void **state)
{
    const bool ends[8] = { false };
    struct fixture f;
    struct replay r;

    (void)state;
    make_tape(&f, "abc");
    replay_init(&r, &f.tape, ends, true);
    assert_string_equal(run(&r, 0, false), "abc");
    assert_string_equal(run(&r, 0, true), "a+b+c+");
    assert_string_equal(run(&r, 0, false), "[abc]0");
    assert_string_equal(run(&r, 1, false), "[abc]1");
    assert_string_equal(run(&r, 1, true), "[a+b+c+]2");
    assert_string_equal(run(&r, 0, false), "0");
    assert_string_equal(run(&r, 1, false), "1");
    assert_string_equal(run(&r, 1, true), "2");
    replay_clear(&r);
    assert_int_equal(n_recordings, 0);
}

static void kernels_on_the_host_stand_between_recordings_and_so_do_ends(void **state)
{
    const bool ends[8] = { [5] = true };
    struct fixture f;
    struct replay r;

    (void)state;
    make_tape(&f, "abCDefgH");
    replay_init(&r, &f.tape, ends, true);
    assert_int_equal(r.n, 6);
    assert_string_equal(run(&r, 0, false), "abCDefgH");
    assert_string_equal(run(&r, 0, false), "[ab]0CD[ef]1[g]2H");
    assert_string_equal(run(&r, 0, false), "0CD12H");
    replay_clear(&r);
}

static void without_recording_each_kernel_is_a_piece(void **state)
{
    const bool ends[8] = { false };
    struct fixture f;
    struct replay r;

    (void)state;
    make_tape(&f, "abC");
    replay_init(&r, &f.tape, ends, false);
    assert_int_equal(r.n, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(run(&r, i % 2, false), "abC");
    replay_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_run_plainly_once_are_recorded_for_each_slot_then_replayed),
        cmocka_unit_test(kernels_on_the_host_stand_between_recordings_and_so_do_ends),
        cmocka_unit_test(without_recording_each_kernel_is_a_piece),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
