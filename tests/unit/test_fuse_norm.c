/* SPDX-License-Identifier: MIT */
/* Norms that are fused, and sums before them; see fused.h. */
#include "fused.h"
#include "unit.h"

#define NORM_START "opset 16\n input x float batch,5,6\n init g float 6\n init b float 6\n"  \
                   "init w float 6,6\n const two float . = 2.0\n const eps float . = 1e-5\n" \
                   "node MatMul x,w -> h\n"                                                  \
                   "node ReduceMean h -> m axes=[-1]\n node Sub h,m -> d\n"

static void a_spelled_out_norm_becomes_one(void **state)
{
    struct outcome out = agree(NORM_START "node Pow d,two -> s\n"
                               "node ReduceMean s -> v axes=[2] keepdims=1\n"
                               "node Add v,eps -> e\n node Sqrt e -> r\n node Div d,r -> n\n"
                               "node Mul n,g -> k\n node Add k,b -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear LayerNormalization MseSum");
}

static void operands_may_stand_in_any_order(void **state)
{
    struct outcome out = agree(NORM_START "node Mul d,d -> s\n"
                               "node ReduceMean s -> v axes=[-1] keepdims=1\n"
                               "node Add eps,v -> e\n node Sqrt e -> r\n node Div d,r -> n\n"
                               "node Mul g,n -> k\n node Add b,k -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear LayerNormalization MseSum");
}

static void a_norm_without_scale_gets_ones(void **state)
{
    struct outcome out = agree(NORM_START "node Mul d,d -> s\n"
                               "node ReduceMean s -> v axes=[-1] keepdims=1\n"
                               "node Add eps,v -> e\n node Sqrt e -> r\n node Div d,r -> n\n"
                               "node Mul n,n -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear LayerNormalization Mul MseSum");
}

static void another_mean_is_no_norm(void **state)
{
    struct outcome out = agree(NORM_START "node Mul d,d -> s\n"
                               "node ReduceMean s -> v axes=[1] keepdims=1\n"
                               "node Add eps,v -> e\n node Sqrt e -> r\n node Div d,r -> y\n"
                               "output y", MSE, SAME);

    (void)state;
    assert_null(strstr(out.ops, "LayerNormalization"));
}

static void another_spelling_of_the_root_is_a_norm(void **state)
{
    static const char *const roots[] = {
        "node Sqrt e -> r\n node Reciprocal r -> i\n",
        "node Sqrt e -> r\n node Div one,r -> i\n",
        "node Pow e,minus -> i\n",
    };
    char text[1024];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        struct outcome out;

        snprintf(text, sizeof(text), NORM_START "const one float . = 1\n"
                 "const minus float . = -0.5\n node Mul d,d -> s\n"
                 "node ReduceMean s -> v axes=[-1] keepdims=1\n node Add eps,v -> e\n%s"
                 "node Mul i,d -> n\n node Mul g,n -> k\n node Add b,k -> y\n output y",
                 roots[i]);
        out = agree(text, MSE, SAME);
        assert_string_equal(out.ops, " Linear LayerNormalization MseSum");
    }
}

static void every_spelling_of_an_rms_norm_becomes_one(void **state)
{
    static const char *const ends[] = {
        "node Sqrt e -> r\n node Div h,r -> n\n",
        "node Sqrt e -> r\n node Reciprocal r -> i\n node Mul h,i -> n\n",
        "node Sqrt e -> r\n node Div one,r -> i\n node Mul i,h -> n\n",
        "node Pow e,minus -> i\n node Mul h,i -> n\n",
    };
    char text[1024];
    size_t i;

    (void)state;
    for (i = 0; i < 2 * sizeof(ends) / sizeof(ends[0]); i++) {
        struct outcome out;

        snprintf(text, sizeof(text),
                 "opset 16\n input x float batch,5,6\n init g float 6\n init w float 6,6\n"
                 "const two float . = 2.0\n const eps float . = 1e-5\n"
                 "const one float . = 1\n const minus float . = -0.5\n"
                 "node MatMul x,w -> h\n node Pow h,two -> s\n"
                 "node ReduceMean s -> v axes=[-1] keepdims=1\n node Add v,eps -> e\n%s%s"
                 "output y", ends[i / 2], i % 2 ? "node Mul n,n -> y\n"
                                                : "node Mul g,n -> y\n");
        out = agree(text, MSE, SAME);
        assert_string_equal(out.ops, i % 2 ? " Linear RMSNormalization Mul MseSum"
                                           : " Linear RMSNormalization MseSum");
    }
}

static void a_sum_that_only_a_norm_reads_goes_into_it(void **state)
{
    static const char *const norms[] = {
        "node LayerNormalization r,g,b -> y\n output y",
        "node LayerNormalization r,g -> y\n output y",
        "node Pow r,two -> s\n node ReduceMean s -> v axes=[-1] keepdims=1\n"
        "node Add v,eps -> e\n node Sqrt e -> q\n node Div r,q -> n\n node Mul n,g -> y\n"
        "output y",
    };
    char text[1024];
    size_t i;

    (void)state;
    for (i = 0; i < 2 * sizeof(norms) / sizeof(norms[0]); i++) {
        struct outcome out;

        snprintf(text, sizeof(text),
                 "opset 17\n input x float batch,5,6\n init g float 6\n init b float 6\n"
                 "init w float 6,6\n const two float . = 2\n const eps float . = 1e-5\n"
                 "node MatMul x,w -> h\n node Add %s -> r\n%s", i % 2 ? "h,b" : "x,h",
                 norms[i / 2]);
        out = agree(text, MSE, SAME);
        assert_int_equal(strstr(out.ops, " AddLayerNorm") || strstr(out.ops, " AddRmsNorm"),
                         i % 2 == 0);
    }
}

static void a_sum_that_goes_on_stays(void **state)
{
    struct outcome out = agree("opset 17\n input x float batch,5,6\n init g float 6\n"
                               "init w float 6,6\n node MatMul x,w -> h\n"
                               "node Add x,h -> r\n node LayerNormalization r,g -> n\n"
                               "node Add n,r -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Add LayerNormalization Add MseSum");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spelled_out_norm_becomes_one),
        cmocka_unit_test(operands_may_stand_in_any_order),
        cmocka_unit_test(a_norm_without_scale_gets_ones),
        cmocka_unit_test(another_mean_is_no_norm),
        cmocka_unit_test(another_spelling_of_the_root_is_a_norm),
        cmocka_unit_test(every_spelling_of_an_rms_norm_becomes_one),
        cmocka_unit_test(a_sum_that_only_a_norm_reads_goes_into_it),
        cmocka_unit_test(a_sum_that_goes_on_stays),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
