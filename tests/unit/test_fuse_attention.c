/* SPDX-License-Identifier: MIT */
/* Attention that is found in parts, or given as one operator; see fused.h. */
#include "fused.h"
#include "unit.h"

/* Queries, keys and values of two heads from one input. */
#define HEADS "input x float batch,5,8\n init wq float 8,8\n init wk float 8,8\n"          \
              "init wv float 8,8\n init s int64 4 = 0,5,2,4\n"                             \
              "const root float . = 0.7071067811865476\n const two float . = 2\n"           \
              "const half float . = 0.5\n const zero float . = 0\n"                          \
              "node MatMul x,wq -> q0\n node MatMul x,wk -> k0\n node MatMul x,wv -> v0\n"  \
              "node Reshape q0,s -> q1\n node Reshape k0,s -> k1\n node Reshape v0,s -> v1\n" \
              "node Transpose q1 -> q perm=[0,2,1,3]\n node Transpose v1 -> v perm=[0,2,1,3]\n"\
              "node Transpose k1 -> k perm=[0,2,3,1]\n"
#define NEVER "const never float . = -1e38\n"
#define LOWER "const o bool 5,5 = 1\n node Trilu o -> m upper=0\n"
#define ANSWER "node Softmax a -> p axis=-1\n node MatMul p,v -> y\n output y"

static int count_op(const struct outcome *out, const char *op)
{
    char word[64];
    int n = 0;

    snprintf(word, sizeof(word), " %s", op);
    for (const char *at = out->ops; (at = strstr(at, word)); at += strlen(word))
        n += at[strlen(word)] == ' ' || at[strlen(word)] == '\0';
    return n;
}

static void attention_is_found_wherever_its_scale_is(void **state)
{
    static const char *const forms[] = {
        HEADS "node MatMul q,k -> a\n" ANSWER,
        HEADS "node MatMul q,k -> c\n node Mul half,c -> a\n" ANSWER,
        HEADS "node MatMul q,k -> c\n node Div c,two -> a\n" ANSWER,
        HEADS "node Mul q,half -> qs\n node MatMul qs,k -> a\n" ANSWER,
        HEADS "node Mul q,root -> qs\n node Mul root,k -> ks\n node MatMul qs,ks -> a\n" ANSWER,
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct outcome out = agree(forms[i], MSE, i < 4 ? SAME : ROUNDED);

        assert_int_equal(count_op(&out, "Attention"), 1);
        assert_int_equal(count_op(&out, "Softmax"), 0);
    }
}

/* What makes keys is told apart from who else reads them. */
static void keys_that_are_read_again_stay_as_they_are(void **state)
{
    struct outcome out = agree(HEADS "node MatMul q,k -> a\n node Softmax a -> p axis=-1\n"
                               "node MatMul p,v -> e\n init f float 5,4\n"
                               "node MatMul q,k -> r\n node MatMul r,f -> g\n node Add e,g -> y\n output y", MSE, SAME);

    (void)state;
    assert_int_equal(count_op(&out, "Attention"), 1);
}

static void attention_takes_every_mask_with_it(void **state)
{
    static const char *const masks[] = {
        LOWER NEVER "node Where m,c,never -> a\n",
        LOWER NEVER "node Not m -> h\n node Where h,never,c -> a\n",
        LOWER NEVER "node Where m,zero,never -> f\n node Add c,f -> a\n",
        "input f float batch,1,1,5\n node Add f,c -> a\n",
        "init f float 2,5,5\n node Add c,f -> a\n",
        "input t float batch,1,5,5\n" NEVER "node Greater t,zero -> g\n"
        "node Where g,c,never -> a\n",
        LOWER NEVER "input f float batch,1,1,5\n node Add f,c -> d\n"
        "node Where m,d,never -> a\n",
    };
    char text[2048];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        struct outcome out;

        snprintf(text, sizeof(text), "%snode MatMul q,k -> b\n node Mul b,half -> c\n %s%s",
                 HEADS, masks[i], ANSWER);
        out = agree(text, MSE, SAME);
        if (count_op(&out, "Attention") != 1 || count_op(&out, "Softmax") ||
            count_op(&out, "Where"))
            fail_msg("mask %d:%s", (int)i, out.ops);
    }
}

static void queries_without_keys_answer_zero(void **state)
{
    struct outcome out =
        agree(HEADS "input t float batch,1,5,5\n const never float . = -inf\n"
              "node Greater t,two -> g\n node MatMul q,k -> b\n"
              "node Where g,b,never -> a\n node Softmax a -> p0 axis=-1\n"
              "node IsNaN p0 -> n\n node Where n,zero,p0 -> p\n node MatMul p,v -> y\n"
              "output y", MSE, SAME);

    (void)state;
    assert_int_equal(count_op(&out, "Attention"), 1);
    assert_int_equal(count_op(&out, "IsNaN"), 0);
}

static void heads_that_share_keys_are_not_repeated(void **state)
{
    struct outcome out =
        agree("input x float batch,5,16\n init wq float 16,16\n init wk float 16,8\n"
              "init wv float 16,8\n init sq int64 4 = 0,5,4,4\n init sk int64 4 = 0,5,2,4\n"
              "init wide int64 5 = -1,2,1,5,4\n const more int64 5 = 1,2,2,5,4\n"
              "const all int64 4 = -1,4,5,4\n"
              "node MatMul x,wq -> q0\n node MatMul x,wk -> k0\n node MatMul x,wv -> v0\n"
              "node Reshape q0,sq -> q1\n node Reshape k0,sk -> k1\n node Reshape v0,sk -> v1\n"
              "node Transpose q1 -> q perm=[0,2,1,3]\n node Transpose v1 -> v2 perm=[0,2,1,3]\n"
              "node Transpose k1 -> k2 perm=[0,2,1,3]\n"
              "node Reshape k2,wide -> k3\n node Expand k3,more -> k4\n"
              "node Reshape k4,all -> k5\n node Transpose k5 -> k perm=[0,1,3,2]\n"
              "node Reshape v2,wide -> v3\n node Expand v3,more -> v4\n"
              "node Reshape v4,all -> v\n node MatMul q,k -> a\n" ANSWER, MSE, SAME);

    (void)state;
    assert_int_equal(count_op(&out, "Attention"), 1);
    assert_int_equal(count_op(&out, "Expand"), 0);
}

/* As torch.export writes it: the root of 1 / sqrt(4) is cast to the type of what it multiplies. */
static void scales_that_are_cast_like_a_value_are_constants(void **state)
{
    struct outcome out =
        agree(HEADS "const one float . = 1\n const four int64 . = 4\n node CastLike four,q -> d\n"
              "node Sqrt d -> r\n node CastLike one,q -> u\n node Div u,r -> s0\n"
              "node CastLike s0,q -> s1\n node Sqrt s1 -> s2\n node Mul q,s2 -> qs\n"
              "node CastLike s2,k -> t\n node Mul k,t -> ks\n node MatMul qs,ks -> a\n" ANSWER,
              MSE, SAME);

    (void)state;
    assert_int_equal(count_op(&out, "Attention"), 1);
    assert_int_equal(count_op(&out, "Mul"), 0);
    assert_int_equal(count_op(&out, "Sqrt"), 0);
}

static void probabilities_that_are_read_again_stay(void **state)
{
    static const char *const forms[] = {
        HEADS "node MatMul q,k -> a\n node Softmax a -> p axis=-1\n node MatMul p,v -> z\n"
        "node MatMul p,z -> y\n output y",
        HEADS "node MatMul q,k -> a\n node Softmax a -> p axis=-1\n node MatMul p,v -> z\n"
        "node MatMul a,z -> y\n output y",
        HEADS "node MatMul q,k -> a\n node Softmax a -> p axis=-2\n node MatMul p,v -> y\n"
        "output y",
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct outcome out = agree(forms[i], MSE, SAME);

        assert_int_equal(count_op(&out, "Attention"), 0);
        assert_int_equal(count_op(&out, "Softmax"), 1);
    }
}

/* Opset 23 has the operator; unfused it is taken apart. */
static void the_operator_of_the_file_is_kept(void **state)
{
    static const char *const forms[] = {
        "node Attention q,k,v -> y scale=0.5\n output y",
        "node Attention q,k,v -> y is_causal=1\n output y",
        "input f float batch,1,5,5\n node Attention q,k,v,f -> y is_causal=1\n output y",
        "input t float batch,1,5,5\n node Greater t,z -> g\n"
        "node Attention q,k,v,g -> y scale=0.25\n output y",
    };
    char text[2048];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct outcome out;

        snprintf(text, sizeof(text),
                 "opset 23\n input x float batch,5,16\n init wq float 16,16\n"
                 "init wk float 16,8\n init wv float 16,8\n init sq int64 4 = 0,5,4,4\n"
                 "init sk int64 4 = 0,5,2,4\n const z float . = 1.5\n"
                 "node MatMul x,wq -> q0\n node MatMul x,wk -> k0\n node MatMul x,wv -> v0\n"
                 "node Reshape q0,sq -> q1\n node Reshape k0,sk -> k1\n"
                 "node Reshape v0,sk -> v1\n node Transpose q1 -> q perm=[0,2,1,3]\n"
                 "node Transpose v1 -> v perm=[0,2,1,3]\n"
                 "node Transpose k1 -> k perm=[0,2,1,3]\n%s", forms[i]);
        out = agree(text, MSE, SAME);
        assert_int_equal(count_op(&out, "Attention"), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_found_wherever_its_scale_is),
        cmocka_unit_test(attention_takes_every_mask_with_it),
        cmocka_unit_test(queries_without_keys_answer_zero),
        cmocka_unit_test(heads_that_share_keys_are_not_repeated),
        cmocka_unit_test(keys_that_are_read_again_stay_as_they_are),
        cmocka_unit_test(scales_that_are_cast_like_a_value_are_constants),
        cmocka_unit_test(probabilities_that_are_read_again_stay),
        cmocka_unit_test(the_operator_of_the_file_is_kept),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
