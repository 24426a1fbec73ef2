/* SPDX-License-Identifier: MIT */
/* Products, activations and losses that are fused; see fused.h. */
#include "fused.h"
#include "unit.h"

static void matmul_and_add_become_linear(void **state)
{
    struct outcome out = agree("input x float batch,5,4\n init w float 4,3\n init b float 3\n"
                               "node MatMul x,w -> h\n node Add b,h -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear MseSum");
}

static void a_transposed_weight_is_read_as_it_is(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 3,4\n init b float 3\n"
                               "node Transpose w -> t perm=[1,0]\n node MatMul x,t -> h\n"
                               "node Add h,b -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear MseSum");
}

static void gemm_and_relu_become_linear(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 3,4\n init b float 3\n"
                               "init v float 3,2\n node Gemm x,w,b -> h transB=1\n"
                               "node Relu h -> r\n node Gemm r,v -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Linear MseSum");
}

static void gemm_with_factors_stays(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n init b float 3\n"
                               "node Gemm x,w,b -> y alpha=0.5 beta=2.0\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Gemm MseSum");
}

static void a_shared_activation_is_kept(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,4\n"
                               "node MatMul x,w -> h\n node Relu h -> r\n node Add r,h -> y\n"
                               "output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Relu Add MseSum");
}

#define GELU_START "opset 17\n input x float batch,6\n init w float 6,6\n"               \
                   "const half float . = 0.5\n const one float . = 1\n"                   \
                   "const root float . = 1.4142135623730951\n"                            \
                   "const inverse float . = 0.7071067811865476\n"                         \
                   "const c float . = 0.044715\n const k float . = 0.7978845608028654\n"  \
                   "const three float . = 3\n"                                            \
                   "node MatMul x,w -> m\n node Add m,x -> h\n"

static void every_form_of_gelu_becomes_one(void **state)
{
    static const char *const forms[] = {
        GELU_START "node Div h,root -> a\n node Erf a -> t\n node Add t,one -> p\n"
        "node Mul h,p -> q\n node Mul q,half -> y\n output y",
        GELU_START "node Mul inverse,h -> a\n node Erf a -> t\n node Add one,t -> p\n"
        "node Mul half,h -> q\n node Mul q,p -> y\n output y",
        GELU_START "node Mul h,inverse -> a\n node Erf a -> t\n node Add one,t -> p\n"
        "node Mul p,half -> q\n node Mul q,h -> y\n output y",
        GELU_START "node Pow h,three -> h3\n node Mul c,h3 -> i\n node Add h,i -> j\n"
        "node Mul k,j -> a\n node Tanh a -> t\n node Add one,t -> p\n node Mul half,h -> q\n"
        "node Mul q,p -> y\n output y",
        GELU_START "node Mul h,h -> h2\n node Mul h2,h -> h3\n node Mul h3,c -> i\n"
        "node Add i,h -> j\n node Mul j,k -> a\n node Tanh a -> t\n node Mul half,h -> q\n"
        "node Mul t,q -> u\n node Add u,q -> y\n output y",
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct outcome out = agree(forms[i], MSE, ROUNDED);

        assert_string_equal(out.ops, " Linear Add Gelu MseSum");
    }
}

static void gelu_after_linear_is_its_activation(void **state)
{
    struct outcome out = agree("opset 20\n input x float batch,6\n init w float 6,6\n"
                               "node MatMul x,w -> h\n node Gelu h -> y approximate=\"tanh\"\n"
                               "output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear MseSum");
}

static void what_is_almost_gelu_stays(void **state)
{
    struct outcome out = agree(GELU_START "node Div h,root -> a\n node Erf a -> t\n"
                               "node Add t,half -> p\n node Mul h,p -> q\n"
                               "node Mul q,half -> y\n output y", MSE, SAME);

    (void)state;
    assert_non_null(strstr(out.ops, "Erf"));
}

static void a_value_times_its_sigmoid_is_silu(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n"
                               "const c float . = 1.75\n node MatMul x,w -> h\n"
                               "node Sigmoid h -> s\n node Mul s,h -> a\n"
                               "node Mul c,a -> b\n node Sigmoid b -> t\n"
                               "node Mul a,t -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Swish MseSum");
}

static void silu_after_linear_is_its_activation(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n init b float 3\n"
                               "node MatMul x,w -> h\n node Add h,b -> g\n"
                               "node Sigmoid g -> s\n node Mul g,s -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear MseSum");
}

static void a_silu_of_a_multiple_stays(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n"
                               "const c float . = 1.75\n node MatMul x,w -> h\n"
                               "node Mul c,h -> b\n node Sigmoid b -> s\n"
                               "node Mul h,s -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Swish MseSum");
}

static void a_sigmoid_of_another_or_read_twice_stays(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,4\n"
                               "node MatMul x,w -> h\n node Sigmoid h -> s\n"
                               "node Mul s,x -> a\n node Sigmoid a -> t\n"
                               "node Mul a,t -> b\n node Add b,t -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Sigmoid Mul Sigmoid Mul Add MseSum");
}

static void the_logarithm_of_a_softmax_goes_as_well(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n"
                               "node MatMul x,w -> h\n node Softmax h -> p axis=-1\n"
                               "node Log p -> y\n output y", "cross-entropy:y,labels", SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear CrossEntropySum");
}

static void log_softmax_before_cross_entropy_goes(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n"
                               "node MatMul x,w -> h\n node LogSoftmax h -> y axis=-1\n"
                               "output y", "cross-entropy:y,labels", SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear CrossEntropySum");
}

static void exchanges_and_factors_go_into_the_product(void **state)
{
    struct outcome out = agree("input x float batch,2,3,4\n init w float 3,4\n"
                               "const s float . = 0.25\n const r float . = 3\n"
                               "node Add x,w -> h\n node Mul s,h -> a\n"
                               "node Transpose h -> t perm=[0,1,3,2]\n node Mul t,s -> b\n"
                               "node MatMul a,b -> c\n node Div c,r -> y\n output y", MSE,
                               ROUNDED);

    (void)state;
    assert_string_equal(out.ops, " Add MatMul MseSum");
}

static void a_transpose_between_reshapes_goes_into_the_product(void **state)
{
    struct outcome out = agree("input x float batch,2,3,4\n init w float 3,4\n"
                               "init s int64 3 = -1,3,4\n const u int64 4 = -1,2,4,3\n"
                               "node Add x,w -> h\n node Reshape h,s -> f\n"
                               "node Transpose f -> t perm=[0,2,1]\n"
                               "node Reshape t,u -> b\n node MatMul h,b -> y\n output y", MSE,
                               SAME);

    (void)state;
    assert_string_equal(out.ops, " Add MatMul MseSum");
}

static void a_quotient_by_the_product_stays(void **state)
{
    struct outcome out = agree("input x float batch,3,4\n init w float 3,4\n"
                               "const r float . = 3\n node Add x,w -> h\n"
                               "node Transpose h -> t perm=[0,2,1]\n node MatMul h,t -> c\n"
                               "node Div r,c -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Add MatMul Div MseSum");
}

#define PROJECTION "input x float batch,5,4\n init w float 4,12\n const z int64 . = 0\n"      \
                   "const o int64 . = 1\n const t int64 . = 2\n node MatMul x,w -> p\n"      \
                   "const s int64 4 = 0,0,3,4\n node Reshape p,s -> q\n"                     \
                   "node Unsqueeze q -> u axes=[0]\n"                                        \
                   "node Transpose u -> v perm=[3,1,2,0,4]\n node Squeeze v -> k axes=[3]\n"

static void one_projection_for_all_is_split(void **state)
{
    struct outcome out = agree("opset 11\n" PROJECTION "node Gather k,o -> b\n"
                               "node Gather k,z -> a\n node Gather k,t -> c\n"
                               "node Mul a,b -> d\n node Sub d,c -> y\n output y", MSE, SAME);

    (void)state;
    assert_null(strstr(out.ops, "Gather"));
    assert_null(strstr(out.ops, "Transpose"));
    assert_non_null(strstr(out.ops, " Split"));
}

#define SLICED "opset 17\n input x float batch,4\n init w float 4,10\n const z int64 1 = 0\n"   \
               "const s int64 1 = 3\n const t int64 1 = 4\n const e int64 1 = 10\n"           \
               "const k int64 1 = 1\n init u float 3,2\n init v float 7,2\n node MatMul x,w -> h\n"
#define JOINED "node MatMul a,u -> c\n node MatMul b,v -> d\n node Mul c,d -> y\n output y"

static void slices_that_take_all_are_a_split(void **state)
{
    static const char *const forms[] = {
        SLICED "node Slice h,z,s,k -> a\n node Slice h,s,e,k -> b\n" JOINED,
        SLICED "node Slice h,s,e,k -> b\n node Slice h,z,s,k -> a\n" JOINED,
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct outcome out = agree(forms[i], MSE, SAME);

        assert_null(strstr(out.ops, " Slice"));
        assert_non_null(strstr(out.ops, " Split"));
    }
}

static void slices_that_overlap_or_leave_some_stay(void **state)
{
    static const char *const forms[] = {
        SLICED "init f float 6,2\n node Slice h,z,s,k -> a\n node Slice h,t,e,k -> g\n"
               "node MatMul a,u -> c\n node MatMul g,f -> d\n node Mul c,d -> y\n output y",
        SLICED "init f float 4,2\n node Slice h,z,t,k -> a\n node Slice h,s,e,k -> b\n"
               "node MatMul a,f -> c\n node MatMul b,v -> d\n node Mul c,d -> y\n output y",
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct outcome out = agree(forms[i], MSE, SAME);

        assert_non_null(strstr(out.ops, " Slice"));
        assert_null(strstr(out.ops, " Split"));
    }
}

static void a_projection_read_twice_is_not_split(void **state)
{
    struct outcome out = agree("opset 11\n" PROJECTION "node Gather k,o -> b\n"
                               "node Gather k,o -> a\n node Gather k,t -> c\n"
                               "node Mul a,b -> d\n node Sub d,c -> y\n output y", MSE, SAME);

    (void)state;
    assert_non_null(strstr(out.ops, "Gather"));
}

static void a_transformer_layer_agrees(void **state)
{
    agree("opset 16\n input x float batch,5,6\n init a float 6,18\n init ab float 18\n"
          "init o float 6,6\n init g float 6\n init b float 6\n init s int64 5 = 0,0,3,2,3\n"
          "init back int64 3 = 0,0,-1\n const two float . = 2.0\n const eps float . = 1e-5\n"
          "const scale float . = 0.57735026\n const i0 int64 . = 0\n const i1 int64 . = 1\n"
          "const i2 int64 . = 2\n"
          "node MatMul x,a -> p\n node Add ab,p -> p1\n node Reshape p1,s -> p2\n"
          "node Transpose p2 -> p3 perm=[2,0,3,1,4]\n node Gather p3,i0 -> q\n"
          "node Gather p3,i1 -> k\n node Gather p3,i2 -> v\n"
          "node Transpose k -> k1 perm=[0,1,3,2]\n node Mul q,scale -> q1\n"
          "node MatMul q1,k1 -> w\n node Softmax w -> w1 axis=-1\n node MatMul w1,v -> c\n"
          "node Transpose c -> c1 perm=[0,2,1,3]\n node Reshape c1,back -> c2\n"
          "node MatMul c2,o -> c3\n node Add c3,x -> r\n"
          "node ReduceMean r -> m axes=[-1]\n node Sub r,m -> d\n node Pow d,two -> d2\n"
          "node ReduceMean d2 -> va axes=[-1]\n node Add va,eps -> ve\n node Sqrt ve -> sd\n"
          "node Div d,sd -> n\n node Mul n,g -> n1\n node Add n1,b -> y\n output y", MSE, SAME);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_and_add_become_linear),
        cmocka_unit_test(a_transposed_weight_is_read_as_it_is),
        cmocka_unit_test(gemm_and_relu_become_linear),
        cmocka_unit_test(gemm_with_factors_stays),
        cmocka_unit_test(a_shared_activation_is_kept),
        cmocka_unit_test(a_value_times_its_sigmoid_is_silu),
        cmocka_unit_test(silu_after_linear_is_its_activation),
        cmocka_unit_test(a_silu_of_a_multiple_stays),
        cmocka_unit_test(a_sigmoid_of_another_or_read_twice_stays),
        cmocka_unit_test(the_logarithm_of_a_softmax_goes_as_well),
        cmocka_unit_test(every_form_of_gelu_becomes_one),
        cmocka_unit_test(gelu_after_linear_is_its_activation),
        cmocka_unit_test(what_is_almost_gelu_stays),
        cmocka_unit_test(log_softmax_before_cross_entropy_goes),
        cmocka_unit_test(exchanges_and_factors_go_into_the_product),
        cmocka_unit_test(a_transpose_between_reshapes_goes_into_the_product),
        cmocka_unit_test(a_quotient_by_the_product_stays),
        cmocka_unit_test(one_projection_for_all_is_split),
        cmocka_unit_test(slices_that_take_all_are_a_split),
        cmocka_unit_test(slices_that_overlap_or_leave_some_stay),
        cmocka_unit_test(a_projection_read_twice_is_not_split),
        cmocka_unit_test(a_transformer_layer_agrees),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
