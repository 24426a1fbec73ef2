/* SPDX-License-Identifier: MIT */
#include "commands.h"

#include <stddef.h>

/* In the order of --help: those that everybody needs come first. */
const struct command commands[] = {
    { "topo", cmd_topo, "what is here: nodes, GPUs, NICs, links",
      COMMAND_TOPO, "topo [OPTION]..." },
    { "inspect", cmd_inspect, "a model: parameters, FLOPs, memory, what is not supported",
      COMMAND_INSPECT, "inspect [OPTION]... MODEL" },
    { "train", cmd_train, "train a model over the ranks of this run", COMMAND_TRAIN,
      "train [OPTION]... MODEL|PLAN.json|JOB.conf" },
    { "submit", cmd_submit, "write the batch script of a training, and submit it",
      COMMAND_SUBMIT, "submit [OPTION]... MODEL|PLAN.json|JOB.conf [-- OPTION OF SBATCH...]" },
    { "import", cmd_import, "write a PyTorch model as ONNX, or data as safetensors",
      COMMAND_IMPORT, "import [OPTION]... -o FILE FILE.py:NAME" },
    { "export", cmd_export, "write a checkpoint as ONNX or safetensors", COMMAND_EXPORT,
      "export [OPTION]... -o FILE CHECKPOINT" },
    { "profile", cmd_profile, "measure what a model costs on this device", COMMAND_PROFILE,
      "profile [OPTION]... MODEL" },
    { "plan", cmd_plan, "cut, replicate and place a model on a cluster, and say why",
      COMMAND_PLAN, "plan [OPTION]... [MODEL]" },
    { "simulate", cmd_simulate, "predicted timeline of a plan", COMMAND_SIMULATE,
      "simulate [OPTION]... PLAN" },
    { "watch", cmd_watch, "a live view of a running job, from its log", COMMAND_WATCH,
      "watch [OPTION]... LOG|JOB" },
    { "info", cmd_info, "version, what was built in, modules found, settings",
      COMMAND_INFO, "info [OPTION]..." },
    { NULL, NULL, NULL, 0, NULL },
};
