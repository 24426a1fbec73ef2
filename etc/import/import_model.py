# SPDX-License-Identifier: MIT
"""A torch.nn.Module to an ONNX file for training: names of the module, dynamic batch.

Weights that are absent (--no-weights) are initializers with type and shape whose data are said to
be external, with an entry "absent" (tasuki-import(1)). Such a module is made with its large
tensors on PyTorch's meta device and exported with parameters of stride 0, so that memory does not
grow with the number of its parameters.
"""
import contextlib
import inspect
import logging
import os
import sys
import warnings

import numpy as np
import onnx
import onnx_ir
import torch
from torch.overrides import TorchFunctionMode

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
EXTERNAL_FROM = 1 << 30         # bytes of weights; a file of 2 GiB cannot be read as one message
TORCHSCRIPT_OPSET = 17
TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64,
         "int32": torch.int32, "uint8": torch.uint8, "bool": torch.bool}
tool = None                     # the helper's module


def example(text):
    """NAME:8x128[:TYPE] to a tensor that says no more than type and shape. The trace holds for
    one sample as for many only where it does not see one."""
    name, dims, *kind = text.split(":")
    shape = [int(part) for part in dims.split("x")]
    shape[0] = max(shape[0], 2)
    dtype = TYPES[kind[0] if kind else "float32"]
    return name, (torch.ones if dtype == torch.bool else torch.zeros)(shape, dtype=dtype)


# Making the module ----------------------------------------------------------------------

class OnMeta(TorchFunctionMode):
    """What is to be filled with weights needs no memory; tables that are computed do."""

    FACTORIES = {torch.empty, torch.rand, torch.randn, torch.normal, torch.empty_like,
                 torch.rand_like, torch.randn_like}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        like = args[0].dtype if args and isinstance(args[0], torch.Tensor) else None
        dtype = kwargs.get("dtype") or like or torch.get_default_dtype()
        if func in self.FACTORIES and kwargs.get("device") is None and dtype.is_floating_point:
            kwargs["device"] = "meta"
            kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


def construct(source, found):
    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found):
        raise tool.Failure(f"{source}: neither a module nor a function or class that makes one")
    configuration = getattr(found, "config_class", None)
    if inspect.isclass(found) and configuration is not None:
        return found(configuration())
    return found()


def make(source, no_weights):
    """The module, in training mode. Where the user's code cannot do without values, --no-weights
    makes them and drops them."""
    made = None
    if no_weights:
        try:
            with OnMeta():
                made = construct(source, tool.load(source))
        except Exception:
            made = None
    if made is None:
        found = tool.load(source)
        with tool.users_code(source):
            made = construct(source, found)
    if not isinstance(made, torch.nn.Module):
        raise tool.Failure(f"{source}: gave a {type(made).__name__}, not a torch.nn.Module")
    configuration = getattr(made, "config", None)
    if getattr(configuration, "use_cache", False):
        configuration.use_cache = False
    return made.train()


def drop_weights(module):
    """Each parameter becomes one zero that is read everywhere; ties stay ties."""
    seen = {}
    with torch.no_grad():
        for part in module.modules():
            for name, value in list(part._parameters.items()):
                if value is None:
                    continue
                if id(value) not in seen:
                    zero = torch.zeros((), dtype=value.dtype).expand(value.shape)
                    seen[id(value)] = torch.nn.Parameter(zero, value.requires_grad), value
                part._parameters[name] = seen[id(value)][0]
            for name, value in list(part._buffers.items()):
                if value is not None and value.is_meta:
                    part._buffers[name] = torch.zeros((), dtype=value.dtype).expand(value.shape)
    stray = [name for part in module.modules() for name, value in vars(part).items()
             if isinstance(value, torch.Tensor) and value.is_meta]
    if stray:
        raise tool.Failure(f"\"{stray[0]}\" is a tensor of the module, but neither a parameter "
                           "nor a registered buffer: it has no values with --no-weights")


# Calling it -----------------------------------------------------------------------------

OUTPUTS = []        # names of what the last call gave; exporters put attributes of modules back


class Net(torch.nn.Module):
    """The user's module, called with the inputs by name or in order, giving tensors alone."""

    def __init__(self, net, names):
        super().__init__()
        self.net = net
        self.by_name = takes_by_name(net, names)
        self.names = tuple(names)

    def forward(self, *values):
        result = self.net(**dict(zip(self.names, values))) if self.by_name \
            else self.net(*values)
        named = list(flatten(result))
        OUTPUTS[:] = [name for name, _ in named]
        return tuple(value for _, value in named)


def takes_by_name(net, names):
    parameters = inspect.signature(net.forward).parameters.values()
    known = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    missing = [name for name in names if name not in known]
    if not missing:
        return True
    if len(missing) < len(names) or all(p.kind == p.KEYWORD_ONLY for p in parameters):
        raise tool.Failure(f"forward() of {type(net).__name__} takes no \"{missing[0]}\"; it "
                           f"takes {', '.join(p.name for p in parameters)}")
    return False


def flatten(result):
    """(name, tensor) of each output; what is no tensor, such as a cache, is left out."""
    if isinstance(result, torch.Tensor):
        yield "output", result
    elif hasattr(result, "items"):
        for name, value in result.items():
            if isinstance(value, torch.Tensor):
                yield str(name), value
    elif isinstance(result, (tuple, list)):
        for i, value in enumerate(result):
            if isinstance(value, torch.Tensor):
                yield f"output_{i}", value
    else:
        raise TypeError(f"forward() gave a {type(result).__name__}, no tensor")


# Exporting ------------------------------------------------------------------------------

@contextlib.contextmanager
def silence():
    """Exporters print on both streams, from C++ as well, and warn."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.disable(logging.WARNING)
            yield
    finally:
        logging.disable(logging.NOTSET)
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, copy in enumerate(kept, 1):
            os.dup2(copy, stream)
        for descriptor in [*kept, nowhere]:
            os.close(descriptor)


def by_dynamo(net, inputs, opset):
    """Without its optimizer, which merges equal parameters and folds BatchNorm away."""
    dynamic = {"values": tuple({0: torch.export.Dim.AUTO} for _ in inputs)}
    options = {"opset_version": opset} if opset else {}
    with silence():
        program = torch.onnx.export(net, tuple(inputs.values()), dynamo=True, optimize=False,
                                    dynamic_shapes=dynamic, verbose=False, **options)
    return program.model


def by_torchscript(net, inputs, opset, folder):
    """It runs the network, which moves running statistics: they are put back."""
    kept = {name: value.clone() for name, value in net.named_buffers()}
    path = os.path.join(folder, "torchscript.onnx")
    with silence():
        with torch.no_grad():
            net(*inputs.values())
        outputs = list(OUTPUTS)
        torch.onnx.export(net, tuple(inputs.values()), path, dynamo=False,
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                          opset_version=opset or TORCHSCRIPT_OPSET, input_names=list(inputs),
                          output_names=outputs, keep_initializers_as_inputs=False,
                          dynamic_axes={name: {0: "batch"} for name in [*inputs, *outputs]})
    with torch.no_grad():
        for name, value in net.named_buffers():
            value.copy_(kept[name])
    model = onnx_ir.load(path)
    for name, value in net.named_buffers():
        if name in model.graph.initializers:
            model.graph.initializers[name].const_value = onnx_ir.tensor(
                value.detach().cpu().numpy(), name=name)
    return model


def first_lines(error):
    lines = [line for line in str(error.__cause__ or error).splitlines() if line.strip()]
    return f"{type(error.__cause__ or error).__name__}: {' '.join(lines[:2])[:300]}"


def export(args, net, inputs, folder):
    """The preferred exporter, else the other one."""
    ways = [("dynamo", lambda: by_dynamo(net, inputs, args.opset)),
            ("torchscript", lambda: by_torchscript(net, inputs, args.opset, folder))]
    if args.exporter != "auto":
        ways = [way for way in ways if way[0] == args.exporter]
    elif args.no_weights:
        ways = ways[:1]         # the other would compute with all of it
    for i, (name, way) in enumerate(ways):
        try:
            return name, way()
        except Exception as error:
            if i == len(ways) - 1:
                raise tool.Failure(tool.describe(
                    error.__cause__ or error,
                    f"{args.source}: the {name} exporter failed")[len("error: "):]) from error
            tool.say(f"the {name} exporter failed, trying {ways[i + 1][0]} "
                     f"({first_lines(error)})")


# The file -------------------------------------------------------------------------------

def rename(model, inputs, outputs):
    """Names are those of the user's module, not of the wrapper around it."""
    for value, name in zip(model.graph.inputs, inputs):
        value.name = name
    taken = set(inputs) | set(outputs)
    for value in list(model.graph.initializers.values()):
        name = value.name.removeprefix("net.")
        if name != value.name and name not in taken and name not in model.graph.initializers:
            value.name = name
    made = {id(value): name for value, name in zip(model.graph.outputs, outputs)}
    for node in model.graph:
        for value in node.outputs:
            if id(value) in made:
                value.name = made[id(value)]
            elif value.name in taken:
                value.name = f"{value.name}.made"


def constant(value):
    tensor = onnx_ir.convenience.get_const_tensor(value) if value is not None else None
    return None if tensor is None else tensor.numpy()


def split_sizes(node, axis):
    """Of SplitToSequence: given, or as many as go into the axis; None where not known."""
    x, sizes = node.inputs[0], constant(node.inputs[1]) if len(node.inputs) > 1 else np.array(1)
    whole = x.shape[axis] if x.shape is not None else None
    if sizes is None or (sizes.ndim == 0 and not isinstance(whole, int)):
        return None
    if sizes.ndim:
        return [int(size) for size in sizes]
    step = int(sizes)
    return [min(step, whole - at) for at in range(0, whole, step)]


def split_without_sequence(model):
    """torch.split is written as a sequence of which elements are taken: Split says the same."""
    for node in list(model.graph):
        if node.op_type != "SplitToSequence":
            continue
        axis = node.attributes["axis"].value if "axis" in node.attributes else 0
        readers = [user for user, _ in node.outputs[0].uses()]
        sizes = split_sizes(node, axis)
        taken = [constant(user.inputs[1]) if user.op_type == "SequenceAt" else None
                 for user in readers]
        keeps = len(node.inputs) > 1 or node.attributes.get_int("keepdims", 1)
        if sizes is None or not keeps or any(at is None for at in taken):
            continue
        lengths = onnx_ir.node("Constant", [], {"value_ints": sizes})
        split = onnx_ir.node("Split", [node.inputs[0], lengths.outputs[0]], {"axis": axis},
                             num_outputs=len(sizes))
        model.graph.insert_before(node, [lengths, split])
        for user, at in zip(readers, taken):
            split.outputs[int(at)].shape = user.outputs[0].shape    # the next one may ask
            onnx_ir.convenience.replace_all_uses_with(user.outputs[0], split.outputs[int(at)],
                                                      replace_graph_outputs=True)
        model.graph.remove([*readers, node], safe=True)


def mark(model, module):
    """What is trained and what is not; everything else that exporters say is left out."""
    trained = {name for name, value in module.named_parameters(remove_duplicate=False)
               if value.requires_grad}
    known = set(dict(module.named_parameters(remove_duplicate=False))) \
        | set(dict(module.named_buffers(remove_duplicate=False)))
    model.graph.metadata_props.clear()
    model.metadata_props.clear()
    for node in model.graph:
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
            if value not in model.graph.outputs:
                value.type, value.shape = None, None
    for name, value in model.graph.initializers.items():
        value.metadata_props.clear()
        if name in known:
            value.metadata_props[KIND] = "PARAMETER" if name in trained else "BUFFER"
    return known


def make_absent(model, module, missing):
    """Initializers without data: shape, type and where data would be."""
    for name, value in model.graph.initializers.items():
        if name in missing:
            tensor = value.const_value
            value.const_value = onnx_ir.ExternalTensor(
                "absent", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name)
    proto = onnx_ir.to_proto(model)
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.external_data.add(key="absent", value="1")
    return proto


def write(model, args, missing, folder):
    """The data first, then the model that names them."""
    base = os.path.basename(args.output)
    path = os.path.join(folder, base)
    if missing is not None:
        with open(path, "wb") as file:
            file.write(make_absent(model, None, missing).SerializeToString())
    elif sum(v.const_value.nbytes for v in model.graph.initializers.values()) < EXTERNAL_FROM:
        onnx_ir.save(model, path)
    else:
        onnx_ir.save(model, path, external_data=base + ".data")
        if os.path.exists(args.output):     # it would name the new data
            os.remove(args.output)
        tool.release(path + ".data", args.output + ".data")
    tool.release(path, args.output)


def dropouts(module):
    """Layers that drop; what functions drop is not seen."""
    return sum(isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.p > 0
               for part in module.modules())


def check_dropout(model, module):
    kept = sum(node.op_type == "Dropout" for node in model.graph)
    if dropouts(module) and not kept:
        tool.say(f"warning: the module has {dropouts(module)} dropout layers, the exporter's file "
                 "has none")


def check_padding(module):
    """PyTorch gives the row of padding no gradient; ONNX has no word for that."""
    rows = [(name, part.padding_idx) for name, part in module.named_modules()
            if isinstance(part, torch.nn.Embedding) and part.padding_idx is not None]
    if rows:
        tool.say(f"warning: \"{rows[0][0]}\" does not train its row {rows[0][1]} (padding_idx), "
                 "which the file cannot say: it is trained where the loss depends on it")


def run(args, helper):
    global tool
    tool = helper
    module = make(args.source, args.no_weights)
    missing = None
    if args.no_weights:
        absent = {name for name, b in module.named_buffers(remove_duplicate=False)
                  if b.is_meta and b.is_floating_point()}
        missing = absent | {name for name, p in module.named_parameters(remove_duplicate=False)
                            if p.is_floating_point()}
        drop_weights(module)
    elements = sum(value.numel() for value in module.parameters())
    inputs = dict(example(text) for text in args.input)
    net = Net(module, inputs).train()
    with tool.workshop(args.output) as folder:
        how, model = export(args, net, inputs, folder)
        split_without_sequence(model)
        rename(model, list(inputs), OUTPUTS)
        mark(model, module)
        check_dropout(model, module)
        check_padding(module)
        try:
            write(model, args, missing, folder)
        except OSError as error:
            raise tool.Failure(f"{args.output}: {error.strerror or error}") from error
    if not args.quiet:
        tool.say(f"{args.output}: {type(module).__name__}, {elements} parameters"
                 f"{' without weights' if args.no_weights else ''}, opset "
                 f"{model.opset_imports['']} ({how}); outputs {', '.join(OUTPUTS)}")
