/* SPDX-License-Identifier: MIT */
/* ONNX files for tests, written down as text:
 *
 *   opset 17
 *   input x float batch,4
 *   init w float 3,4                   (values drawn from the name)
 *   init n int64 2 = -1,4
 *   typed b float 3 = 1,2,3            (in float_data rather than raw_data)
 *   external e float 4 weights.bin 16 16   (location, offset, length)
 *   absent a float 4                   (external data that are nowhere)
 *   const c float . = 0.5              (a Constant node; "." is a scalar)
 *   node Gemm x,w,b -> y transB=1 alpha=1.0 perm=[1,0] mode="SAME"   ("-": left out)
 *   node com.example:Foo y -> z
 *   about w kind PARAMETER             (what torch.export says of it)
 *   about v folded w,b                 (it was computed from these)
 *   signature PARAMETER:w BUFFER:b     (what the module had)
 *   output y
 *   graph G                            (a subgraph: lines as these, up to "end", for node If
 *   ...                                 c -> z then_branch={G} else_branch={H})
 *   end
 *   function com.example:Foo a,b -> c alpha,beta   (inputs, outputs, attributes)
 *   default beta=0.5                   (an attribute with a default)
 *   node Elu a -> c alpha=@alpha       (an attribute of the call)
 *   end
 */
#ifndef TASUKI_TESTS_ONNX_TEXT_H
#define TASUKI_TESTS_ONNX_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct onnx_bytes {
    unsigned char *data;
    size_t size, room;
};

/* Called for each field before it is written, to damage it: a number may be changed, a string
 * replaced, and how often the field is written returned (1 unless something is to be wrong).
 */
struct onnx_mutator {
    int (*number)(void *user, int64_t *value);
    int (*string)(void *user, const char **text);
    int (*message)(void *user);
    void *user;
};

/* Write the file that 'text' describes; free(bytes->data). 'mutator' may be NULL. Ends the
 * process where the text itself is wrong.
 */
void onnx_from_text(const char *text, const struct onnx_mutator *mutator,
                    struct onnx_bytes *bytes);
/* The same into a file. */
void onnx_write_text(const char *path, const char *text);

/* The value that "init" draws for element 'index' of 'name': in [-0.5, 0.5). */
double onnx_text_value(const char *name, size_t index);

#endif
