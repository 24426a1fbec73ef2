# SPDX-License-Identifier: MIT
"""Networks as torchvision and transformers define them, unmodified, at a size that their own
configuration allows. models.make() knows them by these names with the package before them.
"""
import numpy as np
from torch import nn

from models import labels
from networks import LENGTH, VOCABULARY, text, vision, words


# torchvision -------------------------------------------------------------------------------

def slow(case):
    """Norms over four samples of one pixel, which are near one another in many of hundreds of
    channels: at the rate of the others rounding grows from 1e-16 to 1e-9 in ten steps, and
    further where the loss grows, too."""
    case.rate = 2.0 ** -9
    return case


def resnet18(draw, rng):
    from torchvision.models.resnet import BasicBlock, ResNet
    return slow(vision("resnet18", ResNet(BasicBlock, [2, 2, 2, 2], num_classes=7), rng, 7,
                       size=32))


def resnet50(draw, rng):
    from torchvision.models.resnet import Bottleneck, ResNet
    # Else the rounding of the first layers arrives as 1 at the last, in PyTorch as here.
    net = ResNet(Bottleneck, [3, 4, 6, 3], num_classes=7, width_per_group=4,
                 zero_init_residual=True)
    return slow(vision("resnet50", net, rng, 7, size=32))


def wide_resnet(draw, rng):
    from torchvision.models.resnet import Bottleneck, ResNet
    net = ResNet(Bottleneck, [1, 1, 1, 1], num_classes=7, width_per_group=8)
    return slow(vision("wide-resnet", net, rng, 7, size=32))


def vgg(draw, rng):
    """Its three wide layers have no size in the configuration: the classifier is another, as
    for other classes."""
    from torchvision.models.vgg import VGG, make_layers
    net = VGG(make_layers([4, "M", 6, "M", 8, 8]), num_classes=7, init_weights=False)
    net.classifier = nn.Sequential(nn.Linear(8 * 7 * 7, 12), nn.ReLU(), nn.Linear(12, 7))
    case = vision("vgg", net, rng, 7, size=28, batchnorm=False,
                  **{"linear+bias+relu": 1, "linear+bias": 1})
    case.carries = ()
    return case


def densenet(draw, rng):
    from torchvision.models.densenet import DenseNet
    net = DenseNet(3, (2, 3, 3, 2), 6, num_classes=7)
    return slow(vision("densenet", net, rng, 7, size=32))


def mobilenet(draw, rng):
    from torchvision.models.mobilenetv3 import mobilenet_v3_small
    net = mobilenet_v3_small(width_mult=0.25, num_classes=7, dropout=0.0)
    return vision("mobilenet-v3", net, rng, 7, size=32, **{"linear+bias": 2})


def efficientnet(draw, rng):
    from torchvision.models.efficientnet import EfficientNet, FusedMBConvConfig, MBConvConfig
    blocks = [FusedMBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(2, 3, 2, 8, 8, 2),
              MBConvConfig(2, 5, 2, 8, 16, 2)]
    net = EfficientNet(blocks, dropout=0.0, stochastic_depth_prob=0.0, num_classes=7)
    return vision("efficientnet", net, rng, 7, size=32, **{"silu": 15, "linear+bias": 1})


def googlenet(draw, rng):
    from torchvision.models.googlenet import GoogLeNet
    net = GoogLeNet(num_classes=7, aux_logits=False, init_weights=False, dropout=0.0)
    return slow(vision("googlenet", net, rng, 7, size=40, batch=16))


def vit(draw, rng):
    from torchvision.models.vision_transformer import VisionTransformer
    net = VisionTransformer(16, 4, 3, 2, 8, 16, num_classes=7)
    nn.init.normal_(net.heads.head.weight)      # zero, as published: no gradient behind it
    return vision("vit", net, rng, 7, batchnorm=False, attention=3,
                  split=3, **{"linear+bias": 10, "linear+bias+gelu": 3,
                              "residual+layer-norm": 1})


# transformers ------------------------------------------------------------------------------

class Logits(nn.Module):
    """What the network says, without the rest of its answer; inputs by name."""

    def __init__(self, net, names):
        super().__init__()
        self.net, self.names = net, tuple(names)

    def forward(self, *values):
        return self.net(**dict(zip(self.names, values))).logits


def named(net, inputs):
    """Where transformers starts weights near zero, a network this small has hardly any
    gradient."""
    for parameter in net.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return Logits(net, inputs)


def gpt2(draw, rng):
    from transformers import GPT2Config, GPT2LMHeadModel
    inputs = {"input_ids": words(rng)}
    net = GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH + 2, n_embd=8, n_layer=4, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        use_cache=False))
    case = text("gpt2", named(net, inputs), inputs, words(rng), attention=4,
                **{"linear": 1, "linear+bias": 16, "gelu": 4, "residual+layer-norm": 1})
    case.exporter, case.carries = "import", ("skip", "tie")
    case.ties = {"net.lm_head.weight": "net.transformer.wte.weight"}
    return case


def bert(draw, rng):
    from transformers import BertConfig, BertForMaskedLM
    net = BertForMaskedLM(BertConfig(
        vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=4, num_attention_heads=2,
        intermediate_size=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        max_position_embeddings=LENGTH + 2))
    mask = (labels(rng, (32, LENGTH), 5) > 0).astype("int64")
    mask[:, 0] = 1
    # Word 0 is padding: PyTorch keeps its embedding as it is, which no file says.
    tokens = 1 + labels(rng, (32, LENGTH), VOCABULARY - 1)
    inputs = {"input_ids": tokens, "attention_mask": mask,
              "token_type_ids": labels(rng, (32, LENGTH), 2)}
    target = words(rng)
    target[labels(rng, target.shape, 3) > 0] = -100     # not masked: not to be guessed
    target[:, 0] = 1
    case = text("bert", named(net, inputs), inputs, target, attention=4,
                **{"linear+bias": 21, "linear+bias+gelu": 5, "residual+layer-norm": 8})
    case.ties = {"net.cls.predictions.decoder.weight":
                 "net.bert.embeddings.word_embeddings.weight",
                 "net.cls.predictions.decoder.bias": "net.cls.predictions.bias"}
    case.carries = ("skip", "table", "tie")
    return case


def llama(draw, rng):
    from transformers import LlamaConfig, LlamaForCausalLM
    # Where a sentence begins is part of the data: so are the rotary tables and the mask.
    place = np.arange(LENGTH) + labels(rng, (32, 1), 3)
    inputs = {"input_ids": words(rng), "position_ids": place}
    net = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH + 2,
        bos_token_id=0, eos_token_id=0, use_cache=False))
    case = text("llama", named(net, inputs), inputs, words(rng), attention=3, linear=19,
                **{"linear+silu": 3, "rms-norm": 6, "residual+rms-norm": 1})
    case.exporter, case.carries = "import", ("skip", "table")
    return case


def t5(draw, rng):
    from transformers import T5Config, T5ForConditionalGeneration
    net = T5ForConditionalGeneration(T5Config(
        vocab_size=VOCABULARY, d_model=8, d_kv=4, d_ff=16, num_layers=2, num_heads=2,
        relative_attention_num_buckets=8, relative_attention_max_distance=16, dropout_rate=0.0,
        use_cache=False))
    inputs = {"input_ids": words(rng, length=LENGTH + 1), "decoder_input_ids": words(rng)}
    case = text("t5", named(net, inputs), inputs, words(rng), attention=6,
                **{"rms-norm": 10, "residual+rms-norm": 2, "linear+relu": 4, "linear": 29})
    case.ties = {"net.encoder.embed_tokens.weight": "net.shared.weight",
                 "net.decoder.embed_tokens.weight": "net.shared.weight",
                 "net.lm_head.weight": "net.shared.weight"}
    case.carries = ("skip", "tie")
    return case


def vit_classifier(draw, rng):
    from transformers import ViTConfig, ViTForImageClassification
    net = ViTForImageClassification(ViTConfig(
        hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, image_size=16, patch_size=4,
        num_labels=7))
    case = vision("vit", None, rng, 7, batchnorm=False, attention=3,
                  **{"linear+bias": 16, "linear+bias+gelu": 3, "residual+layer-norm": 1})
    case.inputs = {"pixel_values": case.inputs["image"]}
    case.module = named(net, case.inputs)
    return case


ZOO = {"torchvision": {"resnet18": resnet18, "resnet50": resnet50, "wide-resnet": wide_resnet,
                       "vgg": vgg, "densenet": densenet, "mobilenet-v3": mobilenet,
                       "efficientnet": efficientnet, "googlenet": googlenet, "vit": vit},
       "transformers": {"gpt2": gpt2, "bert": bert, "llama": llama, "t5": t5,
                        "vit": vit_classifier}}
