/* SPDX-License-Identifier: MIT */
/* What the real cuDNN chooses for a GPU that is not here. It compiles for it and needs none, so this shows
 * that it takes the graphs which module_sdpa.c, module_conv.c and module_image.c make, and that a plan which
 * was kept is taken again; no number is computed.
 */
#include "kernels/cuda/module_cudnn.h"

#include "tests/unit/unit.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/cuda.h"

#if CUDNN_IMAGINES

/* As cudaDeviceGetAttribute() says of an H200. */
static const char h200[] =
    "{\"deviceName\":\"NVIDIA H200\",\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,\"totalGlobalMem\":150754820096,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"l2CacheSize\":62914560}";

/* One text at a time. */
struct shelf {
    char *what, *text;
    int puts, hits;
};

static char *get(void *context, const char *what)
{
    struct shelf *s = context;

    if (!s->what || strcmp(s->what, what) != 0)
        return NULL;
    s->hits++;
    return mem_strdup(s->text);
}

static void put(void *context, const char *what, const char *text)
{
    struct shelf *s = context;

    free(s->what);
    free(s->text);
    s->what = mem_strdup(what);
    s->text = mem_strdup(text);
    s->puts++;
}

static struct cuda_device *open_h200(struct shelf *shelf)
{
    struct cuda_device *device = mem_new(1, sizeof(*device));
    struct err err = { 0 };

    snprintf(device->address, sizeof(device->address), "of the test");
    device->store = (struct cuda_store){ get, put, shelf };
    if (cudnn_imagine(device, h200, &err))
        fail_msg("%s", err.text);
    return device;
}

static void close_h200(struct cuda_device *device)
{
    cuda_cudnn_close(device);
    free(device);
}

/* What it is planned with where there is no GPU. */
static size_t guessed(const struct cuda_sdpa *what)
{
    struct err err = { 0 };
    struct cuda_device *device = cuda_absent.open("H200", &err);
    struct cuda_sdpa_kernel *kernel = NULL;
    size_t bytes;

    assert_int_equal(cuda_absent.sdpa_new(device, what, &kernel, &err), 0);
    assert_non_null(kernel);
    bytes = cuda_absent.sdpa_workspace(kernel);
    cuda_absent.sdpa_free(kernel);
    cuda_absent.close(device);
    return bytes;
}

/* Chosen by the first device, taken from the shelf by the second. */
static void check_attention(const struct cuda_sdpa *what, const char *name)
{
    struct shelf shelf = { 0 };
    size_t workspace[2];

    for (int i = 0; i < 2; i++) {
        struct cuda_device *device = open_h200(&shelf);
        struct cuda_sdpa_kernel *kernel = NULL;
        struct err err = { 0 };

        if (cuda_sdpa_new(device, what, &kernel, &err))
            fail_msg("%s: %s", name, err.text);
        if (!kernel)
            fail_msg("%s: cuDNN has it not", name);
        workspace[i] = cuda_sdpa_workspace(kernel);
        assert_int_equal(device->on_tensor_cores, 1);
        cuda_sdpa_free(kernel);
        close_h200(device);
        assert_int_equal(shelf.puts, 1);
        assert_int_equal(shelf.hits, i);
    }
    print_message("%s: %zu bytes of text, %zu of scratch\n", name, strlen(shelf.text), workspace[0]);
    assert_int_equal(workspace[0], workspace[1]);
    assert_in_range(guessed(what), workspace[0], workspace[0] + workspace[0] / 50 + 1024);
    free(shelf.what);
    free(shelf.text);
}

static void test_attentions(void **state)
{
    static const struct {
        const char *name;
        struct cuda_sdpa what;
    } cases[] = {
        { "BERT-large", { 32, 16, 1, 512, 512, 64, 64, 0.125, 0, 0, CUDA_BFLOAT16, 0, 0, { 0 } } },
        { "GPT-2 medium", { 8, 16, 1, 1024, 1024, 64, 64, 0.125, 1, 0, CUDA_BFLOAT16, 0, 0, { 0 } } },
        { "grouped queries", { 2, 32, 4, 2048, 2048, 128, 128, 0.088, 1, 0, CUDA_BFLOAT16, 0, 0, { 0 } } },
        { "odd lengths", { 3, 5, 1, 77, 130, 40, 24, 0.2, 0, 0, CUDA_FLOAT16, 0, 0, { 0 } } },
        { "a mask of each sample", { 8, 12, 1, 384, 384, 64, 64, 0.125, 0, 0, CUDA_BFLOAT16, 0, 1,
                                     { 8, 1, 384, 384 } } },
        { "a mask of keys", { 8, 12, 1, 384, 384, 64, 64, 0.125, 0, 0, CUDA_BFLOAT16, 0, 1,
                              { 8, 1, 1, 384 } } },
        { "a mask for all", { 8, 12, 1, 384, 384, 64, 64, 0.125, 1, 0, CUDA_BFLOAT16, 0, 1,
                              { 1, 1, 384, 384 } } },
        { "a bias of heads", { 8, 12, 1, 384, 384, 64, 64, 0.125, 0, 0, CUDA_FLOAT16, 0, 1,
                               { 1, 12, 384, 384 } } },
    };

    (void)state;
    for (int i = 0; i < COUNT(cases); i++)
        for (int gradient = 0; gradient < 2; gradient++)
            for (int turned = 0; turned < 2; turned++) {
                struct cuda_sdpa what = cases[i].what;
                char name[96];

                what.gradient = gradient;
                what.turned = !turned ? 0 : gradient ? 0xff : 0xf;
                snprintf(name, sizeof(name), "%s%s%s", cases[i].name, gradient ? ", gradient" : "",
                         turned ? ", turned" : "");
                check_attention(&what, name);
            }
}

/* Of a ResNet-50 of 64 images: channels, in and out, the side of the image, of the window, and the step. */
static void test_convolutions(void **state)
{
    static const int64_t cases[][5] = {
        { 3, 64, 224, 7, 2 },
        { 64, 64, 56, 1, 1 },   { 64, 64, 56, 3, 1 },    { 64, 256, 56, 1, 1 },   { 256, 128, 56, 1, 1 },
        { 128, 128, 56, 3, 2 }, { 256, 512, 56, 1, 2 },  { 512, 256, 28, 1, 1 },  { 256, 256, 28, 3, 2 },
        { 512, 512, 7, 3, 1 },  { 1024, 2048, 14, 1, 2 },
    };
    static const char *const kinds[] = { "forward", "dgrad", "wgrad" };
    int on_tensor_cores = 0, n = 0;

    (void)state;
    for (int i = 0; i < COUNT(cases); i++)
        for (int kind = 0; kind < 3; kind++) {
            const int64_t *c = cases[i], out = (c[2] + c[4] - 1) / c[4], pad = c[3] / 2;
            int64_t behind = c[4] > 1 && pad ? pad - 1 : pad;
            const struct cuda_conv what = {
                .kind = (enum cuda_conv_kind)kind, .rank = 2, .images = 64, .in_channels = c[0],
                .out_channels = c[1], .groups = 1, .in = { c[2], c[2] }, .out = { out, out },
                .kernel = { c[3], c[3] }, .stride = { c[4], c[4] }, .dilation = { 1, 1 },
                .before = { pad, pad }, .after = { behind, behind },
                .narrow = CUDA_BFLOAT16, .last = 1
            };
            struct shelf shelf = { 0 };
            size_t workspace[2];

            for (int again = 0; again < 2; again++) {
                struct cuda_device *device = open_h200(&shelf);
                struct cuda_convolution *convolution = NULL;
                struct err err = { 0 };

                if (cuda_conv_new(device, &what, &convolution, &err) || !convolution)
                    fail_msg("convolution %d, %s: %s", i, kinds[kind], err.text);
                workspace[again] = cuda_conv_workspace(convolution);
                on_tensor_cores += device->on_tensor_cores;
                cuda_conv_free(convolution);
                close_h200(device);
                assert_int_equal(shelf.hits, again);
            }
            assert_int_equal(workspace[0], workspace[1]);
            free(shelf.what);
            free(shelf.text);
            n += 2;
        }
    print_message("%d of %d convolutions on tensor cores\n", on_tensor_cores / 2, n / 2);
    assert_int_equal(on_tensor_cores, n);
}

/* Chosen by the first device; taken from the shelf by a second. */
static void check_image(const struct cuda_image *what, const char *name, int devices)
{
    struct shelf shelf = { 0 };
    size_t workspace[2];

    for (int i = 0; i < devices; i++) {
        struct cuda_device *device = open_h200(&shelf);
        struct cuda_image_kernel *kernel = NULL;
        struct err err = { 0 };

        if (cuda_image_new(device, what, &kernel, &err))
            fail_msg("%s: %s", name, err.text);
        if (!kernel)
            fail_msg("%s: cuDNN has it not", name);
        workspace[i] = cuda_image_workspace(kernel);
        assert_in_range(workspace[i], 0, cuda_absent.image_workspace(NULL));
        cuda_image_free(kernel);
        close_h200(device);
        assert_int_equal(shelf.puts, 1);
        assert_int_equal(shelf.hits, i);
    }
    assert_int_equal(workspace[0], workspace[devices - 1]);
    print_message("%s: %zu of scratch\n", name, workspace[0]);
    free(shelf.what);
    free(shelf.text);
}

/* Channels and side of what a ResNet-50 of 256 images normalises. */
static void test_norms(void **state)
{
    static const int64_t cases[][2] = { { 64, 112 }, { 256, 56 }, { 2048, 7 } };
    static const char *const forms[] = { "BatchNorm", "with Relu", "gradient" };

    (void)state;
    for (int i = 0; i < COUNT(cases); i++)
        for (int form = 0; form < COUNT(forms); form++) {
            int64_t side = cases[i][1];
            const struct cuda_image what = {
                .kind = form == 2 ? CUDA_IMAGE_NORM_GRAD : CUDA_IMAGE_NORM, .images = 256,
                .channels = cases[i][0], .in = { side * side, 1 }, .relu = form == 1,
                .narrow = i % 2 ? CUDA_FLOAT16 : CUDA_BFLOAT16, .epsilon = 1e-5,
            };
            char name[64];

            snprintf(name, sizeof(name), "%d channels of %d, %s", (int)cases[i][0], (int)side,
                     forms[form]);
            check_image(&what, name, i == 0 ? 2 : 1);
        }
}

static void test_pools(void **state)
{
    static const struct {
        const char *name;
        enum cuda_image_kind kind;
        int64_t count_padding;
    } cases[] = {
        { "MaxPool", CUDA_IMAGE_MAX, 0 },          { "MaxPoolGrad", CUDA_IMAGE_MAX_GRAD, 0 },
        { "AveragePool", CUDA_IMAGE_MEAN, 0 },     { "AveragePoolGrad", CUDA_IMAGE_MEAN_GRAD, 0 },
        { "AveragePool, all", CUDA_IMAGE_MEAN, 1 }, { "its gradient", CUDA_IMAGE_MEAN_GRAD, 1 },
    };

    (void)state;
    for (int i = 0; i < COUNT(cases); i++) {
        const struct cuda_image what = {
            .kind = cases[i].kind, .count_padding = cases[i].count_padding, .images = 256,
            .channels = 64, .in = { 112, 112 }, .out = { 56, 56 }, .kernel = { 3, 3 },
            .stride = { 2, 2 }, .before = { 1, 1 }, .after = { 0, 0 },
            .narrow = i < 2 ? CUDA_BFLOAT16 : CUDA_FLOAT16,
        };

        check_image(&what, cases[i].name, 2);
    }
}

/* cuDNN compiles nothing where there is no driver: the loader is to find the stand-in. */
static void use_driver(void)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    char *own;

    if (path && strncmp(path, FAKE_DRIVER, strlen(FAKE_DRIVER)) == 0)
        return;
    own = mem_printf("%s:%s", FAKE_DRIVER, path ? path : "");
    setenv("LD_LIBRARY_PATH", own, 1);
    execl("/proc/self/exe", "test_cudnn", (char *)NULL);
    free(own);
}

/* What cuDNN loads to compile, and lets go of, keeps memory where there is no GPU; nobody could name it. */
int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
    return 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_attentions),
                                        cmocka_unit_test(test_convolutions),
                                        cmocka_unit_test(test_norms), cmocka_unit_test(test_pools) };

    use_driver();
    print_message("cuDNN %zu\n", cudnnGetVersion());
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    print_message("cuDNN %d cannot be asked without a GPU\n", CUDNN_VERSION);
    return 77;
}

#endif
