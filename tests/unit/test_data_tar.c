/* SPDX-License-Identifier: MIT */
/* Pictures in tar archives: which samples there are, and what is seen of each. */
#include "config.h"

#include "unit.h"

#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "picture.h"
#include "train/crop.h"
#include "train/data_format.h"
#include "train/jpeg.h"
#include "train/resize.h"
#include "train/shards.h"
#include "train/tar_index.h"

static const char *directory;

static char *save(const char *name, const struct bytes *bytes)
{
    char *path = mem_printf("%s/%s", directory, name);
    FILE *out = fopen(path, "wb");

    assert_non_null(out);
    assert_int_equal(fwrite(bytes->data, 1, bytes->size, out), bytes->size);
    assert_int_equal(fclose(out), 0);
    return path;
}

/* As a model with input "x" of [N, channels, 8, 8] and labels wants it. */
static struct data *open_for(const char *spec, int64_t channels, struct data_options options,
                             struct err *err)
{
    struct model_tensor input = { "x", DTYPE_F32, { .rank = 3, .dim = { channels, 8, 8 } } };
    struct data_wanted wanted = { .n = 1, .inputs = &input, .label = "y" };
    struct data *data;

    *err = (struct err){ 0 };
    data = data_open(spec, &options, err);
    if (data && data->format->complete(data, &wanted, err) < 0) {
        data_close(data);
        return NULL;
    }
    return data;
}

static int read_one(struct data *data, int tensor, int64_t sample, int64_t epoch, float *out,
                    struct err *err)
{
    struct data_reader *reader = data_reader_new(data);
    int64_t elements = shape_elements(&data->tensors[tensor].shape);
    struct data_want want = { tensor, DTYPE_F32, { .outer = 1, .inner = elements } };
    int bad = data_gather(reader, &want, epoch, &sample, 1, 0, 1, out, err);

    data_reader_free(reader);
    return bad;
}

static void files_of_one_name_are_a_sample(void **state)
{
    struct bytes tar = { 0 };
    struct err err;
    struct data *data;
    float label;
    char *path;

    (void)state;
    tar_add(&tar, "README", "x", 1);
    tar_add_sample(&tar, "a/0.x/one", 20, 30, 7);
    tar_add(&tar, "a/0.x/one.json", "{}", 2);
    tar_add_sample(&tar, "b/one", 30, 20, 3);
    tar_end(&tar);
    path = save("a.tar", &tar);
    data = open_for(path, 3, (struct data_options){ .max_bad = 0 }, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(data_samples(data), 2);
    assert_int_equal(read_one(data, 1, 0, 0, &label, &err), 0);
    assert_true(label == 7);
    assert_int_equal(read_one(data, 1, 1, 0, &label, &err), 0);
    assert_true(label == 3);
    data_close(data);
    bytes_clear(&tar);
    unlink(path);
    free(path);
}

/* Seven ways to be no sample, among two good ones. */
static struct bytes make_bad(void)
{
    struct bytes tar = { 0 }, picture = picture_draw(20, 20, 0, 3, false);

    tar_add_sample(&tar, "good1", 20, 30, 0);
    tar_add(&tar, "cut.jpg", picture.data, picture.size - 20);
    tar_add(&tar, "cut.cls", "1", 1);
    tar_add(&tar, "empty.jpg", "", 0);
    tar_add(&tar, "empty.cls", "1", 1);
    tar_add(&tar, "text.jpg", "no picture", 10);
    tar_add(&tar, "text.cls", "1", 1);
    tar_add(&tar, "alone.jpg", picture.data, picture.size);
    tar_add(&tar, "label.cls", "1", 1);
    tar_add(&tar, "word.jpg", picture.data, picture.size);
    tar_add(&tar, "word.cls", "cat", 3);
    tar_add(&tar, "twice.jpg", picture.data, picture.size);
    tar_add(&tar, "twice.jpeg", picture.data, picture.size);
    tar_add(&tar, "twice.cls", "1", 1);
    tar_add_sample(&tar, "good2", 20, 30, 1);
    tar_end(&tar);
    bytes_clear(&picture);
    return tar;
}

static void bad_samples_are_counted_named_and_left_out(void **state)
{
    static const char *const why[] = { "\"cut\": its end is missing", "\"empty\": no JPEG",
                                       "\"text\": no JPEG", "\"alone\": no .cls",
                                       "\"label\": no .jpg", "\"word\": its .cls is no class",
                                       "\"twice\": two pictures" };
    struct bytes tar;
    const char *const *names;
    struct err err;
    struct data *data;
    char *path;
    int n;

    (void)state;
    tar = make_bad();
    path = save("bad.tar", &tar);
    data = open_for(path, 3, (struct data_options){ .max_bad = 7 }, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(data_samples(data), 2);
    assert_int_equal(data_bad(data, &n, &names), 7);
    assert_int_equal(n, 7);
    for (int i = 0; i < n; i++)
        assert_contains(names[i], why[i]);
    data_close(data);
    assert_null(open_for(path, 3, (struct data_options){ .max_bad = 6 }, &err));
    assert_contains(err.text, "bad.tar: sample \"cut\"");
    assert_contains(err.text, "7 of 9, more than --max-bad-samples 6");
    bytes_clear(&tar);
    unlink(path);
    free(path);
}

static void an_archive_that_is_cut_off_loses_its_end_only(void **state)
{
    struct bytes tar = { 0 };
    const char *const *names;
    struct err err;
    struct data *data;
    char *path;
    int n;

    (void)state;
    tar_add_sample(&tar, "a", 20, 30, 0);
    tar_add_sample(&tar, "b", 20, 30, 1);
    tar.size -= 1024 + 512;         /* into the picture */
    path = save("cut.tar", &tar);
    data = open_for(path, 3, (struct data_options){ .max_bad = 9 }, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(data_samples(data), 1);
    assert_true(data_bad(data, &n, &names) >= 1);
    assert_contains(names[0], "cut.tar");
    data_close(data);
    bytes_clear(&tar);
    unlink(path);
    free(path);
}

static void pictures_follow_from_seed_epoch_and_sample(void **state)
{
    struct bytes tar = { 0 };
    struct err err;
    struct data *data, *test;
    float a[192], b[192];
    char *path;

    (void)state;
    tar_add_sample(&tar, "a", 60, 50, 0);
    tar_add_sample(&tar, "b", 60, 50, 0);
    tar_end(&tar);
    path = save("s.tar", &tar);
    data = open_for(path, 3, (struct data_options){ .augment = true, .seed = 3 }, &err);
    test = open_for(path, 3, (struct data_options){ .augment = true, .test = true }, &err);
    assert_int_equal(read_one(data, 0, 0, 1, a, &err), 0);
    assert_int_equal(read_one(data, 0, 0, 1, b, &err), 0);
    assert_memory_equal(a, b, sizeof(a));
    assert_int_equal(read_one(data, 0, 0, 2, b, &err), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(read_one(data, 0, 1, 1, b, &err), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(read_one(test, 0, 0, 1, a, &err), 0);
    assert_int_equal(read_one(test, 0, 1, 2, b, &err), 0);
    assert_memory_equal(a, b, sizeof(a));
    data_close(data);
    data_close(test);
    bytes_clear(&tar);
    unlink(path);
    free(path);
}

/* The window [8, 56) x [6, 42) of 64 x 48 pixels, as 12 x 9: each covers 4 x 4, and red is
 * 255/64 for each pixel, so that the mean of a symmetric filter is that of its center. JPEG at quality
 * 95 leaves errors of some levels.
 */
static void a_window_is_decoded_where_it_lies(void **state)
{
    struct jpeg_window window = { 8, 6, 48, 36 };
    struct jpeg *jpeg = jpeg_new();
    static const int components[] = { 3, 3, 4 };
    float out[3 * 12 * 9];
    struct err err = { 0 };
    bool damaged;

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct bytes picture = picture_draw(64, 48, 100, components[k], k == 1);
        int width, height;

        assert_null(jpeg_check(jpeg, picture.data, picture.size, &width, &height));
        assert_int_equal(width, 64);
        assert_int_equal(height, 48);
        assert_int_equal(jpeg_decode(jpeg, picture.data, picture.size, &window, 3, 9, 12, out,
                                     &damaged, &err), 0);
        assert_false(damaged);
        for (int y = 1; y < 8; y++)
            for (int x = 1; x < 11; x++) {
                double red = 255.0 * (8 + 4 * (x + 0.5) - 0.5) / 64;
                double green = 255.0 * (6 + 4 * (y + 0.5) - 0.5) / 48;

                assert_true(fabs(out[12 * y + x] - red) < 8);
                assert_true(fabs(out[108 + 12 * y + x] - green) < 8);
                assert_true(fabs(out[216 + 12 * y + x] - 100) < 8);
            }
        bytes_clear(&picture);
    }
    jpeg_free(jpeg);
}

static void damage_inside_is_noticed_and_grey(void **state)
{
    struct jpeg_window window = { 0, 0, 64, 64 };
    struct jpeg *jpeg = jpeg_new();
    struct bytes picture;
    float out[64];
    struct err err = { 0 };
    bool damaged;

    (void)state;
    picture = picture_draw(64, 64, 100, 3, false);
    memset(picture.data + picture.size - 300, 0xff, 200);
    assert_int_equal(jpeg_decode(jpeg, picture.data, picture.size, &window, 1, 8, 8, out,
                                 &damaged, &err), 0);
    assert_true(damaged);
    for (int i = 0; i < 64; i++)
        assert_true(out[i] >= 0 && out[i] <= 255);
    bytes_clear(&picture);
    jpeg_free(jpeg);
}

static void resizing_keeps_a_flat_picture_and_one_of_its_size(void **state)
{
    unsigned char flat[5 * 7], steps[12];
    float out[12];
    struct resize resize = { 0 };
    struct resize_source source = { .pixels = flat, .width = 7, .height = 5, .components = 1,
                                    .left = 0.3, .top = 0.2, .window_width = 6.1,
                                    .window_height = 4.7 };
    struct err err = { 0 };

    (void)state;
    memset(flat, 77, sizeof(flat));
    assert_int_equal(resize_planes(&resize, &source, 1, 3, 4, out, &err), 0);
    for (int i = 0; i < 12; i++)
        assert_true(fabsf(out[i] - 77) < 1e-4f);
    for (int i = 0; i < 12; i++)
        steps[i] = (unsigned char)(i * i);
    source = (struct resize_source){ .pixels = steps, .width = 4, .height = 3, .components = 1,
                                     .window_width = 4, .window_height = 3 };
    assert_int_equal(resize_planes(&resize, &source, 1, 3, 4, out, &err), 0);
    for (int i = 0; i < 12; i++)
        assert_true(out[i] == (float)steps[i]);
    resize_clear(&resize);
}

static void crops_lie_inside_and_cover_what_they_should(void **state)
{
    double least = 1, most = 0;
    int flips = 0;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct crop c = crop_random(5, i % 3, i, 500, 375);
        double area = c.window.width * c.window.height / (500.0 * 375);

        assert_true(c.window.x >= 0 && c.window.x + c.window.width <= 500);
        assert_true(c.window.y >= 0 && c.window.y + c.window.height <= 375);
        least = area < least ? area : least;
        most = area > most ? area : most;
        flips += c.flip;
    }
    assert_true(least > 0.07 && least < 0.1);
    assert_true(most > 0.9);
    assert_true(flips > 850 && flips < 1150);   /* 6.7 standard deviations */
    assert_true(crop_random(5, 0, 0, 1, 1000).window.height <= 2);
    assert_true(crop_middle(100, 50, 8, 8).window.x == 28.125);
}

static void shards_are_expanded_in_order(void **state)
{
    struct bytes tar = { 0 };
    char *paths[12], *spec, **found;
    struct err err = { 0 };
    int n;

    (void)state;
    tar_end(&tar);
    for (int i = 0; i < 12; i++) {
        char name[32];

        snprintf(name, sizeof(name), "t-%02d.tar", i);
        paths[i] = save(name, &tar);
    }
    spec = mem_printf("%s/t-{08..11}.tar", directory);
    assert_int_equal(shards_find(spec, ".tar", &found, &n, &err), 0);
    assert_int_equal(n, 4);
    assert_string_equal(found[2], paths[10]);
    shards_free(found, n);
    free(spec);
    assert_int_equal(shards_find(directory, ".tar", &found, &n, &err), 0);
    assert_int_equal(n, 12);
    assert_string_equal(found[11], paths[11]);
    shards_free(found, n);
    spec = mem_printf("%s/u-*.tar", directory);
    assert_int_equal(shards_find(spec, ".tar", &found, &n, &err), -1);
    assert_contains(err.text, "no such files");
    free(spec);
    for (int i = 0; i < 12; i++) {
        unlink(paths[i]);
        free(paths[i]);
    }
    bytes_clear(&tar);
}

static void a_directory_and_files_may_be_called_like_patterns(void **state)
{
    char *inside = mem_printf("%s/a[b]*?{1..2}", directory);
    char *path = mem_printf("%s/t{00..01}[x].tar", inside), **found;
    struct err err = { 0 };
    const char *specs[] = { inside, path };
    int n;

    (void)state;
    assert_int_equal(mkdir(inside, 0700), 0);
    unit_write(path, "x");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(shards_find(specs[i], ".tar", &found, &n, &err), 0);
        assert_int_equal(n, 1);
        assert_string_equal(found[0], path);
        shards_free(found, n);
    }
    unlink(path);
    assert_int_equal(shards_find(inside, ".tar", &found, &n, &err), -1);
    assert_contains(err.text, "no files *.tar");
    rmdir(inside);
    free(path);
    free(inside);
}

/* The index --------------------------------------------------------------------------- */

/* Without xxhash nothing is kept. */
#ifdef HAVE_XXHASH

struct kept {
    struct bytes tar;
    char *path, *cache;             /* cache: the file, once there is one */
};

static void open_kept(struct kept *k, struct tar_index *index)
{
    struct err err = { 0 };

    *index = (struct tar_index){ 0 };
    if (tar_index_open(index, k->path, directory, true, &err) < 0)
        fail_msg("%s", err.text);
}

static void make_kept(struct kept *k)
{
    struct tar_index index;
    glob_t found;
    char *pattern = mem_printf("%s/tar-*.index", directory);

    k->tar = make_bad();
    k->path = save("kept.tar", &k->tar);
    open_kept(k, &index);
    tar_index_clear(&index);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    k->cache = mem_strdup(found.gl_pathv[0]);
    globfree(&found);
    free(pattern);
}

static void clear_kept(struct kept *k)
{
    bytes_clear(&k->tar);
    unlink(k->path);
    unlink(k->cache);
    free(k->path);
    free(k->cache);
}

/* Of the archive in another form, of which the time of change is that of before. */
static void change_quietly(const char *path, size_t at)
{
    struct stat before;
    struct timespec times[2];
    int fd = open(path, O_WRONLY);

    assert_int_equal(fstat(fd, &before), 0);
    assert_int_equal(pwrite(fd, "?", 1, (off_t)at), 1);
    times[0] = before.st_atim;
    times[1] = before.st_mtim;
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static void the_index_is_kept_while_the_archives_stay_the_same(void **state)
{
    struct timespec times[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
    struct tar_index fresh = { 0 }, again;
    struct err err = { 0 };
    struct kept k;

    (void)state;
    make_kept(&k);
    assert_int_equal(tar_index_open(&fresh, k.path, NULL, true, &err), 0);
    /* Read anew, this would be a bad sample more. */
    change_quietly(k.path, (size_t)(fresh.samples[0].bytes - fresh.maps[0].data));
    open_kept(&k, &again);
    assert_int_equal(again.n, 2);
    for (int i = 0; i < 2; i++) {
        const struct tar_sample *a = &fresh.samples[i], *b = &again.samples[i];

        assert_string_equal(a->name, b->name);
        assert_int_equal(a->bytes - fresh.maps[0].data, b->bytes - again.maps[0].data);
        assert_int_equal(a->size, b->size);
        assert_int_equal(a->shard, b->shard);
        assert_int_equal(a->width, b->width);
        assert_int_equal(a->height, b->height);
        assert_int_equal(a->label, b->label);
    }
    assert_int_equal(again.n_bad, fresh.n_bad);
    assert_int_equal(again.n_named, fresh.n_named);
    for (int i = 0; i < fresh.n_named; i++)
        assert_string_equal(again.bad[i], fresh.bad[i]);
    tar_index_clear(&again);
    tar_index_clear(&fresh);
    assert_int_equal(utimensat(AT_FDCWD, k.path, times, 0), 0);
    for (int i = 0; i < 2; i++) {       /* read anew, then from what was kept anew */
        open_kept(&k, &again);
        assert_int_equal(again.n, 1);
        assert_int_equal(again.n_bad, 8);
        tar_index_clear(&again);
    }
    clear_kept(&k);
}

static void load_file(const char *path, struct bytes *bytes)
{
    struct file_map map;

    assert_int_equal(file_map_open(path, &map, NULL), 0);
    bytes->data = malloc(map.size);
    bytes->size = map.size;
    memcpy(bytes->data, map.data, map.size);
    file_map_close(&map);
}

/* Whatever a kept index says, what is used of it lies in the archive; where it is only damaged,
 * it is not used.
 */
static void a_kept_index_is_not_believed(void **state)
{
    struct bytes good, bad;
    struct tar_index index;
    struct kept k;

    (void)state;
    make_kept(&k);
    load_file(k.cache, &good);
    load_file(k.cache, &bad);
    srand(1);
    for (int i = 0; i < 2000; i++) {
        bool forged = i % 2;
        size_t at = (size_t)rand() % (good.size - 16);
        char hex[17];

        memcpy(bad.data, good.data, good.size);
        bad.data[at] = (unsigned char)(forged && i % 4 == 1 ? 0xff : rand());
        bad.data[at] = (unsigned char)(bad.data[at] + (bad.data[at] == good.data[at]));
        bad.size = i % 32 == 31 ? at : good.size;
        if (forged && bad.size > 16) {
            file_hash(bad.data, bad.size - 16, hex);
            memcpy(bad.data + bad.size - 16, hex, 16);
        }
        free(save(strrchr(k.cache, '/') + 1, &bad));
        open_kept(&k, &index);
        for (int64_t s = 0; s < index.n; s++) {
            const struct tar_sample *it = &index.samples[s];
            const struct file_map *map = &index.maps[it->shard];

            assert_true(it->bytes >= map->data && it->bytes <= map->data + map->size &&
                        it->size <= (size_t)(map->data + map->size - it->bytes));
            assert_true(it->width > 0 && it->height > 0 && strlen(it->name) < 4096);
        }
        assert_true(forged || (index.n == 2 && index.n_bad == 7));
        tar_index_clear(&index);
    }
    bytes_clear(&good);
    bytes_clear(&bad);
    clear_kept(&k);
}

#define INDEX_TESTS                                                       \
    cmocka_unit_test(the_index_is_kept_while_the_archives_stay_the_same), \
        cmocka_unit_test(a_kept_index_is_not_believed),
#else
#define INDEX_TESTS
#endif

/* These need neither libarchive nor libjpeg. */
#define PLAIN_TESTS                                                      \
    cmocka_unit_test(resizing_keeps_a_flat_picture_and_one_of_its_size), \
        cmocka_unit_test(crops_lie_inside_and_cover_what_they_should),   \
        cmocka_unit_test(shards_are_expanded_in_order),                  \
        cmocka_unit_test(a_directory_and_files_may_be_called_like_patterns)

int main(void)
{
    const struct CMUnitTest plain[] = { PLAIN_TESTS };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_one_name_are_a_sample),
        cmocka_unit_test(bad_samples_are_counted_named_and_left_out),
        cmocka_unit_test(an_archive_that_is_cut_off_loses_its_end_only),
        cmocka_unit_test(pictures_follow_from_seed_epoch_and_sample),
        cmocka_unit_test(a_window_is_decoded_where_it_lies),
        cmocka_unit_test(damage_inside_is_noticed_and_grey),
        INDEX_TESTS
        PLAIN_TESTS,
    };
    int failed;

    directory = unit_directory();
    failed = picture_built() ? cmocka_run_group_tests(tests, NULL, NULL)
                             : cmocka_run_group_tests(plain, NULL, NULL);
    rmdir(directory);
    return failed;
}
