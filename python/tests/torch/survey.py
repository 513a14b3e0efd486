# SPDX-License-Identifier: Apache-2.0
"""Which causal models of the installed transformers `patch` accepts.

    python survey.py OUT.csv [PART_OF_A_NAME]

Each is made from its default configuration with few layers and small sizes; the loss and gradients
of an accepted one are compared with those of the plain model. A class that cannot be made so, or
does not run on tokens alone, is counted apart.
"""

import collections
import copy
import csv
import sys
import warnings

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from tessera.torch.transformers import patch

WORDS = 128
# By the names that configurations have for them; what a configuration has no integer for is left
# alone. Of the sizes of heads some follow from others, differently in each: more than one try.
SIZES = {
    "vocab_size": WORDS, "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "emb_dim": 64,
    "intermediate_size": 96, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "ffn_dim": 96, "decoder_ffn_dim": 96, "encoder_ffn_dim": 96, "d_ff": 96, "n_inner": 96,
    "dff": 96, "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2,
    "decoder_layers": 2, "encoder_layers": 2, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_topk": 2, "n_group": 1, "topk_group": 1,
    "n_shared_experts": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "unpadded_vocab_size": 120, "vocab_size_per_layer_input": WORDS, "lru_width": 64,
    "hidden_size_per_layer_input": 8,
}
HEADS = {
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "decoder_attention_heads": 4,
    "encoder_attention_heads": 4, "num_key_value_heads": 2, "num_heads": 4,
}
HEAD_SIZES = {"head_dim": 16, "rotary_dim": 8, "mamba_n_heads": 4, "mamba_d_head": 32,
              "mamba_num_heads": 8, "mamba_head_dim": 16, "n_mamba_heads": 2}
RANKS = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
         "v_head_dim": 16, "qk_head_dim": 16}
TRIES = [{**SIZES, **HEADS, **HEAD_SIZES}, {**SIZES, **HEADS},
         {**SIZES, **HEADS, **RANKS, "head_dim": 8}, SIZES,
         {"vocab_size": WORDS, "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2}]
MOST_PARAMETERS = 40_000_000


def shrink(config, sizes):
    for name, value in sizes.items():
        old = getattr(config, name, None)
        if isinstance(old, int) and not isinstance(old, bool):
            setattr(config, name, min(old, value))
        elif old is None and name == "head_dim" and hasattr(config, name):
            config.head_dim = value
    for name, each in list(vars(config).items()):
        if isinstance(each, transformers.PreTrainedConfig):
            shrink(each, sizes)
        elif name in ("layer_types", "mlp_layer_types", "layers_block_type") and each:
            setattr(config, name, [each[0], each[-1]])
    return config


def build(kind, sizes):
    """A small model, in which nothing is at random."""
    config = shrink(kind.config_class(), sizes)
    config.is_decoder = True
    config.attention_type = "original_full"  # BigBird's other one is at random
    config.default_language = "en_XX"
    with torch.device("meta"):
        parameters = sum(each.numel() for each in kind(copy.deepcopy(config)).parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(f"{parameters} parameters")
    torch.manual_seed(1)
    model = kind(config).train()
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or "jitter" in name or name == "p"):
                setattr(module, name, 0.0)
    return model


def loss_of(model, tokens, labels):
    """The output of a training call; its gradients are the model's."""
    torch.manual_seed(2)
    output = model(input_ids=tokens, labels=labels, use_cache=False)
    output.loss.backward()
    return output


def first_that_runs(kind, tokens, labels):
    reasons = []
    for sizes in TRIES:
        try:
            model = build(kind, sizes)
            return model, loss_of(model, tokens, labels), ""
        except Exception as error:  # any: it is what is reported
            reasons.append(f"{type(error).__name__}: {error}")
    return None, None, reasons[0]


def judge(kind):
    """(verdict, reason) of one class."""
    tokens = torch.randint(3, 100, (2, 12))
    labels = tokens.masked_fill(torch.arange(12) < 3, -100)
    model, plain, reason = first_that_runs(kind, tokens, labels)
    if model is None:
        return "not run", reason
    wanted = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    try:
        patch(model)
    except Exception as error:
        return "refused", str(error)
    try:
        mine = loss_of(model, tokens, labels)
    except Exception as error:
        return "refused in the first call", str(error)
    got = [each.grad for each in model.parameters()]
    if mine.logits is not None or not torch.allclose(plain.loss, mine.loss, rtol=1e-5):
        return "wrong", f"loss {mine.loss}, not {plain.loss}"
    if any((a is None) != (b is None) for a, b in zip(got, wanted, strict=True)):
        return "wrong", "other parameters have gradients"
    pairs = [(a, b) for a, b in zip(got, wanted, strict=True) if b is not None]
    size = torch.stack([b.norm() for _, b in pairs]).norm()
    off = torch.stack([(a - b).norm() for a, b in pairs]).norm() / size
    return ("accepted", f"{off:.1e}") if off < 1e-4 else ("wrong", f"gradients differ by {off:.1e}")


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    kinds = set()
    for each in MODEL_FOR_CAUSAL_LM_MAPPING.values():
        kinds.update(each if isinstance(each, tuple) else (each,))
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    counts = collections.Counter()
    with open(sys.argv[1], "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["model", "verdict", "reason or deviation of the gradients"])
        for kind in sorted(kinds, key=lambda kind: kind.__name__):
            if part not in kind.__name__:
                continue
            verdict, reason = judge(kind)
            counts[verdict] += 1
            table.writerow([kind.__name__, verdict, " ".join(reason.split())[:160]])
            file.flush()
    print(transformers.__version__, dict(counts))


if __name__ == "__main__":
    main()
