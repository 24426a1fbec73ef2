/* SPDX-License-Identifier: MIT */
#include "base/option.h"

#define TOPO COMMAND_TOPO
#define INSPECT COMMAND_INSPECT
#define PLAN COMMAND_PLAN
#define TRAIN COMMAND_TRAIN
#define EXPORT COMMAND_EXPORT
#define PROFILE COMMAND_PROFILE
#define SIMULATE COMMAND_SIMULATE
#define INFO COMMAND_INFO
#define IMPORT COMMAND_IMPORT
#define EVERY (unsigned)COMMAND_ALL
#define MODEL (INSPECT | PLAN | TRAIN | PROFILE)
#define COSTS (PLAN | TRAIN | PROFILE | SIMULATE)

/* In the order of --help. An option that means different things to two commands has an entry
 * for each.
 */
static const struct option_spec table[] = {
    /* data */
    { .name = "data", .argument = "DATA", .commands = MODEL | SIMULATE,
      .help = "safetensors, NAME=FILE.npy,..., tokens, tars, synthetic: see tasuki-data(5)" },
    { .name = "test", .argument = "DATA", .commands = TRAIN,
      .help = "the same, held out: evaluated after each epoch" },
    { .name = "sequence-length", .argument = "N", .commands = MODEL | SIMULATE,
      .help = "tokens of a sample, where the model leaves it open" },
    { .name = "image-size", .argument = "N", .commands = MODEL | SIMULATE,
      .help = "height and width of images, where the model leaves them open" },
    { .name = "shuffle", .commands = TRAIN,
      .help = "draw the samples of each epoch in random order (default: yes)" },
    { .name = "augment", .commands = TRAIN,
      .help = "draw crops and flips of pictures at random (default: yes)" },
    { .name = "image-mean", .argument = "R,G,B", .commands = TRAIN,
      .help = "taken from colors in 0 to 1 (default: ImageNet's)" },
    { .name = "image-std", .argument = "R,G,B", .commands = TRAIN,
      .help = "what they are then divided by (default: ImageNet's)" },
    { .name = "max-bad-samples", .argument = "N", .commands = TRAIN,
      .help = "leave out so many that cannot be read (default: 0)" },
    { .name = "input", .argument = "FILE", .commands = TOPO, .line_only = true,
      .help = "a machine recorded elsewhere: hwloc XML, a folder, JSON, or NAME:NODES" },
    { .name = "input", .argument = "NAME:DIMS[:TYPE]", .commands = IMPORT, .line_only = true,
      .many = true,
      .help = "an input of the network, the batch first: x:64x512, ids:8x128:int64" },
    { .name = "weights", .commands = IMPORT, .line_only = true,
      .help = "write the weights, not only their shapes (default: yes)" },
    { .name = "exporter", .argument = "auto|dynamo|torchscript", .commands = IMPORT,
      .line_only = true, .help = "of PyTorch (default: dynamo, or torchscript where it fails)" },
    { .name = "opset", .argument = "N", .commands = IMPORT, .line_only = true,
      .help = "of ONNX, 13 to 23 (default: the exporter's)" },
    { .name = "names", .argument = "NAME,...", .commands = IMPORT, .line_only = true,
      .help = "of what one sample of the data is a tuple of (default: x,label)" },
    { .name = "samples", .argument = "N", .commands = IMPORT, .line_only = true,
      .help = "take so many samples of the data at most (default: all)" },
    { .name = "python", .argument = "FILE", .commands = IMPORT,
      .help = "Python that has PyTorch (default: python3)" },
    { .name = "job", .argument = "ID", .commands = TOPO, .line_only = true,
      .help = "what Slurm knows of a job: its nodes, GPUs, switches, time left" },
    { .name = "partition", .argument = "NAME", .commands = TOPO, .line_only = true,
      .help = "what Slurm knows of a partition: its nodes, GPUs, switches, limits" },
    { .name = "check", .commands = TOPO, .line_only = true,
      .help = "what is wrong with which node; exit status 3 where something is" },
    { .name = "diff", .commands = TOPO, .line_only = true,
      .help = "what differs between two files, or two nodes of --input" },
    { .name = "save-machine", .argument = "NAME", .commands = TOPO, .line_only = true,
      .help = "describe this machine for --cluster NAME:N, in place of a report" },
    { .name = "force", .commands = TOPO, .line_only = true,
      .help = "replace a description that is there" },
    { .name = "measure", .argument = "quick|full|none", .commands = TOPO, .plain = "full",
      .help = "links between ranks: a few of each kind (default), many, or from tables" },

    /* the network */
    { .name = "loss", .argument = "SPEC", .commands = MODEL | SIMULATE,
      .help = "cross-entropy:LOGITS,LABELS, mse:OUT,TARGET or dot:OUT,TARGET" },
    { .name = "precision", .argument = "float32|float64", .commands = MODEL,
      .help = "arithmetic; float64 needs the reference backend" },
    { .name = "fuse", .commands = MODEL | SIMULATE,
      .help = "fuse patterns such as LayerNorm into one node (default: yes)" },
    { .name = "freeze", .argument = "PATTERN", .commands = MODEL, .many = true,
      .help = "leave these parameters as they are: a name, or a pattern such as 'encoder.*'" },
    { .name = "batchnorm-samples", .argument = "N", .commands = MODEL,
      .help = "consecutive samples over which BatchNorm normalises" },
    { .name = "fusions", .commands = INSPECT, .line_only = true,
      .help = "list what was fused: kind, count, nodes" },
    { .name = "batch-size", .argument = "N", .commands = INSPECT,
      .help = "samples of one micro-batch (default: 1)" },
    { .name = "batch-size", .argument = "N,N,...", .commands = PROFILE,
      .help = "samples of one micro-batch, each size is measured (default: 1,2,4,8)" },

    /* the optimizer */
    { .name = "global-batch", .argument = "N", .commands = PLAN | TRAIN,
      .help = "samples of one step, over all ranks" },
    { .name = "epochs", .argument = "N", .commands = TRAIN,
      .help = "passes over the data" },
    { .name = "steps", .argument = "N", .commands = TRAIN,
      .help = "steps in all, in place of --epochs" },
    { .name = "optimizer", .argument = "sgd|momentum|nesterov|adam|adamw",
      .commands = PLAN | TRAIN | PROFILE, .help = "update rule (default: sgd)" },
    { .name = "lr", .argument = "X", .commands = TRAIN,
      .help = "learning rate (default: 0.01; adam, adamw: 0.001)" },
    { .name = "momentum", .argument = "X", .commands = TRAIN,
      .help = "of momentum and nesterov (default: 0.9)" },
    { .name = "beta1", .argument = "X", .commands = TRAIN,
      .help = "of adam and adamw (default: 0.9)" },
    { .name = "beta2", .argument = "X", .commands = TRAIN,
      .help = "of adam and adamw (default: 0.999)" },
    { .name = "epsilon", .argument = "X", .commands = TRAIN,
      .help = "of adam and adamw (default: 1e-8)" },
    { .name = "weight-decay", .argument = "X", .commands = TRAIN,
      .help = "decoupled with adamw, else added to the gradient (default: 0; adamw: 0.01)" },
    { .name = "seed", .argument = "N", .commands = TRAIN,
      .help = "of shuffling and dropout (default: 0)" },

    /* the plan */
    { .name = "cluster", .argument = "SPEC", .commands = PLAN | TRAIN | SIMULATE,
      .help = "NAME:NODES of a machine, topology file, flat:... or tree:... (default: here)" },
    { .name = "nodes", .argument = "N", .commands = PLAN | SIMULATE,
      .help = "so many nodes of the machine (default: the saved one, or that of --cluster)" },
    { .name = "cost", .argument = "FILE", .commands = PLAN | TRAIN | SIMULATE, .many = true,
      .help = "cost file, one for each kind of device (default: measured or estimated)" },
    { .name = "stages", .argument = "N", .commands = PLAN | TRAIN,
      .help = "pin the number of stages" },
    { .name = "replicas", .argument = "N,N,...", .commands = PLAN | TRAIN,
      .help = "pin the replicas of each stage" },
    { .name = "micro-batches", .argument = "N", .commands = PLAN | TRAIN,
      .help = "pin the micro-batches of a step" },
    { .name = "micro-batch-size", .argument = "N", .commands = PLAN | TRAIN,
      .help = "pin the samples of a micro-batch" },
    { .name = "schedule", .argument = "gpipe|1f1b", .commands = PLAN | TRAIN,
      .help = "pin the order of micro-batches" },
    { .name = "memory", .argument = "BYTES", .commands = PLAN | TRAIN,
      .help = "limit of each device, such as 512M or 16GB" },
    { .name = "keep-plan", .commands = TRAIN,
      .help = "refuse, rather than plan anew, where a plan does not fit the allocation" },

    /* running */
    { .name = "backend", .argument = "cpu|reference", .commands = COSTS,
      .help = "kernels (default: cpu where built in; reference for float64)" },
    { .name = "threads", .argument = "N", .commands = COSTS,
      .help = "threads of each rank (default: the cores of its share)" },
    { .name = "deterministic", .commands = TRAIN,
      .help = "the same plan, threads and machine give the same bits" },
    { .name = "cache", .commands = COSTS,
      .help = "keep and use measured costs in ~/.cache/tasuki (default: yes)" },
    { .name = "deadline", .argument = "SECONDS", .commands = TRAIN,
      .help = "give up when nothing moves for so long (default: 600; 0: never)" },
    { .name = "eval-every", .argument = "N", .commands = TRAIN,
      .help = "evaluate every N steps, too" },
    { .name = "checkpoint", .argument = "DIR", .commands = TRAIN,
      .help = "write checkpoints here" },
    { .name = "checkpoint-every", .argument = "N", .commands = TRAIN,
      .help = "every N steps (default: at the end)" },
    { .name = "resume", .commands = TRAIN,
      .help = "go on from the latest checkpoint, if there is one" },

    /* what is written */
    { .name = "model", .argument = "FILE", .commands = EXPORT, .line_only = true,
      .help = "ONNX file to put the parameters into (default: the checkpoint's)" },
    { .name = "model", .argument = "FILE", .commands = IMPORT, .line_only = true,
      .help = "ONNX file whose inputs give the names of the data, with \"label\" last" },
    { .name = "log", .argument = "FILE", .commands = TRAIN,
      .help = "JSON lines: step, loss, seconds and more" },
    { .name = "dump-gradients", .argument = "FILE", .commands = TRAIN, .line_only = true,
      .help = "write the gradients of the first step as safetensors" },
    { .name = "trace", .argument = "FILE", .commands = TRAIN | SIMULATE,
      .help = "timeline for chrome://tracing or Perfetto" },
    { .name = "output", .letter = 'o', .argument = "FILE", .line_only = true,
      .commands = TOPO | INSPECT | PLAN | PROFILE | SIMULATE | EXPORT | IMPORT,
      .help = "write here (default: standard output)" },
    { .name = "format", .argument = "text|json", .line_only = true,
      .commands = INSPECT | PLAN | PROFILE | INFO, .help = "of what is printed" },
    { .name = "format", .argument = "text|json|svg|dot|nccl-xml", .commands = TOPO,
      .line_only = true, .help = "of what is printed" },
    { .name = "format", .argument = "text|json|svg|trace", .commands = SIMULATE,
      .line_only = true, .help = "of what is printed" },
    { .name = "format", .argument = "onnx|safetensors", .commands = EXPORT,
      .line_only = true, .help = "of what is written" },

    /* talk */
    { .name = "settings", .commands = INFO, .line_only = true,
      .help = "print each setting and where it came from" },
    { .name = "print-config", .commands = MODEL, .line_only = true,
      .help = "print a job file that gives this run again, and do nothing" },
    { .name = "dry-run", .letter = 'n', .commands = TRAIN, .line_only = true,
      .help = "discover, check and plan, then stop" },
    { .name = "quiet", .letter = 'q', .commands = EVERY,
      .help = "warnings and errors only" },
    { .name = "verbose", .letter = 'v', .commands = EVERY,
      .help = "say more, on every rank" },
    { .name = "help", .letter = 'h', .commands = EVERY, .line_only = true,
      .help = "print this and exit" },
};

const struct option_spec *option_at(int index)
{
    if (index < 0 || index >= (int)(sizeof(table) / sizeof(table[0])))
        return NULL;
    return &table[index];
}
