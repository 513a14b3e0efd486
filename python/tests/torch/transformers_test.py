# SPDX-License-Identifier: Apache-2.0
"""Patched models beside plain ones, and beside plain ones in float64."""

import contextlib
import copy
import io
import math
import types

import pytest
import torch
import transformers

import tessera
import tessera.torch as tt
from survey import TRIES, WORDS, build
from tessera.torch.transformers import patch, unpatch

TOKENS = torch.randint(3, WORDS - 10, (3, 20), generator=torch.Generator().manual_seed(5))
LABELS = TOKENS.masked_fill(torch.arange(20) % 7 == 2, -100)


def small(name, **changes):
    kind = getattr(transformers, name)
    return build(kind, {**TRIES[0], **changes}).train()


def step(model, tokens=TOKENS, labels=LABELS, **call):
    """The output of a training call and its gradients, by name."""
    model.zero_grad()
    output = model(input_ids=tokens, labels=labels, **call)
    output.loss.backward()
    return output, {name: each.grad for name, each in model.named_parameters()}


def distance(got, wanted):
    """Of gradients, relative to their size."""
    assert {name for name, each in got.items() if each is None} == {
        name for name, each in wanted.items() if each is None}
    pairs = [(got[name].double(), each.double()) for name, each in wanted.items()
             if each is not None]
    return float(torch.stack([(a - b).norm() for a, b in pairs]).norm() /
                 torch.stack([b.norm() for _, b in pairs]).norm())


def agree(model, roundings=8 * 2.0**-24, within=contextlib.nullcontext, **call):
    """A step of the patched model is as near to float64 as one of the plain model, within twice;
    beside that, some roundings, since the plain model may be right by luck."""
    exact, exact_gradients = step(copy.deepcopy(model).double(), **call)
    with within():
        plain, plain_gradients = step(copy.deepcopy(model), **call)
        patched, gradients = step(patch(copy.deepcopy(model)), **call)
    assert plain.logits is not None and patched.logits is None
    off, mine = (abs(each.loss.item() / exact.loss.item() - 1) for each in (plain, patched))
    assert mine <= 2 * off + roundings
    off, mine = (distance(each, exact_gradients) for each in (plain_gradients, gradients))
    assert mine <= 2 * off + roundings


@pytest.mark.parametrize("name, call", [
    ("LlamaForCausalLM", {}),
    ("Qwen3ForCausalLM", {"num_items_in_batch": torch.tensor(41)}),
    ("Gemma2ForCausalLM", {"shift_labels": LABELS.roll(-2, 1)}),  # tied, a soft cap
    ("GPT2LMHeadModel", {"num_items_in_batch": 17, "shift_labels": LABELS.roll(-1, 1)}),  # tied
    ("GraniteForCausalLM", {"ignore_index": int(TOKENS[0, 3])}),
    ("CohereForCausalLM", {}),
    ("PhiForCausalLM", {"ignore_index": -100}),  # a bias
    ("InklingForCausalLM", {}),  # some rows of the weight
])
def test_steps(name, call):
    model = small(name)
    model.set_experts_implementation("eager")  # the other ones know no float64
    if name == "GraniteForCausalLM":
        model.config.logits_scaling = 3.0
        call = {**call, "labels": TOKENS}
    with torch.no_grad():  # logits that a soft cap bends
        model.get_output_embeddings().weight.mul_(40.0)
        if model.get_output_embeddings().bias is not None:
            model.get_output_embeddings().bias.normal_()
    agree(model, **call)


def test_bf16():
    model = small("LlamaForCausalLM")
    agree(model, roundings=2.0**-9, within=lambda: torch.autocast("cpu", torch.bfloat16))
    agree(model.bfloat16(), roundings=2.0**-9)


def test_checkpointing_and_wrappers():
    model = small("LlamaForCausalLM")
    wanted = step(patch(copy.deepcopy(model)))
    model.activation_checkpointing_enable()
    patch(model)
    # As accelerate does it: the function without its object, wrapped and bound again.
    own = model.forward.__func__
    model.forward = types.MethodType(lambda self, *args, **call: own(self, *args, **call), model)
    output, gradients = step(model)
    assert torch.equal(output.loss, wanted[0].loss) and distance(gradients, wanted[1]) == 0


def test_compiled():
    model = small("Gemma2ForCausalLM")
    eager, wanted = step(patch(model))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    output, gradients = step(compiled)
    assert output.logits is None and abs((output.loss - eager.loss).item()) < 1e-5
    assert distance({name.removeprefix("_orig_mod."): each for name, each in gradients.items()},
                    wanted) < 1e-5


def test_everything_else_is_as_before(tmp_path):
    plain = small("GPT2LMHeadModel")
    patched = patch(copy.deepcopy(plain))
    assert torch.equal(patched(TOKENS).logits, plain(TOKENS).logits)  # training, without labels
    with pytest.raises(ValueError, match=r"labels are \(3, 5\) and hidden states \(3, 20, 64\)"):
        patched(TOKENS, labels=LABELS[:, :5])
    hidden = torch.randn(3, 64)  # nor does the exception leave anything behind
    assert torch.equal(patched.lm_head(hidden), plain.lm_head(hidden))
    loss, *others = patched(input_ids=TOKENS, labels=LABELS, return_dict=False)
    assert loss.requires_grad and others[0] is None
    plain.eval(), patched.eval()
    mine, theirs = (model(TOKENS, labels=LABELS) for model in (patched, plain))
    assert torch.equal(mine.logits, theirs.logits) and torch.equal(mine.loss, theirs.loss)
    mine, theirs = (model.generate(TOKENS[:1, :5], max_new_tokens=5, do_sample=False)
                    for model in (patched, plain))
    assert torch.equal(mine, theirs)
    for model, folder in ((plain, tmp_path / "plain"), (patched, tmp_path / "patched")):
        model.save_pretrained(folder)
    files = sorted(each.name for each in (tmp_path / "plain").iterdir())
    assert files == sorted(each.name for each in (tmp_path / "patched").iterdir())
    for name in files:
        assert (tmp_path / "plain" / name).read_bytes() == (
            tmp_path / "patched" / name).read_bytes(), name


def test_patch_draws_no_random_numbers():
    model = small("GPT2LMHeadModel")
    model.transformer.drop.p = 0.5
    before = torch.get_rng_state()
    patch(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_unpatch():
    model = small("LlamaForCausalLM")
    before = set(vars(model)), set(vars(model.lm_head))
    plain, wanted = step(model)
    patch(model, implementation="eigen")
    assert model(TOKENS, None, None, None, None, LABELS).logits is None  # labels by place
    with pytest.raises(tessera.InvalidArgumentError, match="LlamaForCausalLM is patched already"):
        patch(model)
    assert unpatch(model) is model
    assert before == (set(vars(model)), set(vars(model.lm_head)))
    assert not model._forward_hooks and not model._forward_pre_hooks
    again, gradients = step(model)
    assert torch.equal(again.logits, plain.logits) and distance(gradients, wanted) == 0
    with pytest.raises(tessera.InvalidArgumentError, match="LlamaForCausalLM is not patched"):
        unpatch(model)


def test_copies_have_patches_of_their_own():
    model = patch(small("LlamaForCausalLM"))
    wanted, _ = step(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        with torch.no_grad():
            other.lm_head.weight.zero_()
        output, _ = step(other)
        assert output.logits is None
        assert abs(output.loss.item() - math.log(WORDS)) < 1e-5
        unpatch(other)
        assert step(other)[0].logits is not None
    assert torch.equal(step(model)[0].loss, wanted.loss)


class Subclass(torch.nn.Linear):
    """Stands for quantised heads and those with adapters."""


class Sharded(torch.Tensor):
    """Stands for DTensor and quantised tensors."""


def with_head(change):
    model = small("LlamaForCausalLM")
    change(model)
    return model


def replaced_forward(model):
    model.lm_head.forward = lambda x: torch.nn.functional.linear(x, model.lm_head.weight)


@pytest.mark.parametrize("make, reason", [
    (lambda: small("BartForCausalLM"), "BartForCausalLM cannot train.*it does `logits.view`"),
    (lambda: small("BertForMaskedLM"), "BertForMaskedLM.*its loss_function is ForMaskedLMLoss"),
    (lambda: small("LlamaModel"), "LlamaModel.*no argument `labels`"),
    (lambda: with_head(lambda model: setattr(model, "lm_head", Subclass(64, WORDS))),
     r"LlamaForCausalLM.*is a transformers_test.Subclass, not a torch.nn.Linear"),
    (lambda: with_head(lambda model: setattr(model.lm_head, "weight", torch.nn.Parameter(
        model.lm_head.weight.detach().as_subclass(Sharded)))), "Sharded"),
    (lambda: with_head(lambda model: model.double()), "the type torch.float64"),
    (lambda: with_head(lambda model: model.to("meta")), "is on meta, not on the CPU"),
    (lambda: with_head(replaced_forward), "the forward of its output embedding has been replaced"),
    (lambda: with_head(lambda model: setattr(model, "loss_function", sum)),
     "its loss_function is sum, not ForCausalLMLoss"),
])
def test_refused(make, reason):
    model = make()
    before = set(vars(model))
    with pytest.raises(tessera.UnsupportedError, match=reason) as caught:
        patch(model)
    assert caught.value.code == "unsupported"
    assert before == set(vars(model)) and not model._forward_hooks


def test_refused_by_its_kind():
    with pytest.raises(TypeError, match="model is a torch.nn.modules.container.Sequential; give"):
        patch(torch.nn.Sequential(small("LlamaForCausalLM")))


class Adapter(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base_layer, self.more = base, torch.nn.Linear(64, WORDS)

    def forward(self, x):
        return self.base_layer(x) + self.more(x)


class Other(torch.nn.Module):
    """A head that does something else while it trains."""

    def __init__(self, base, change):
        super().__init__()
        self.base_layer, self.change = base, change

    def forward(self, x):
        return self.change(self.base_layer(x)) if self.training else self.base_layer(x)


@pytest.mark.parametrize("change", [
    lambda logits: logits + 1, lambda logits: 1 - logits, lambda logits: logits.clamp(-5, 5),
    lambda logits: logits.tanh().tanh(), lambda logits: torch.sigmoid(logits),
    lambda logits: logits * torch.ones(WORDS), lambda logits: logits / 0,
    lambda logits: logits[:, :-1], lambda logits: logits[..., :100], lambda logits: logits.half(),
    lambda logits: logits.to(torch.bfloat16), lambda logits: torch.zeros(3, 20, WORDS)])
def test_what_a_model_does_while_it_trains_only(change):
    """Neither a wrong loss nor a gradient."""
    model = patch(small("LlamaForCausalLM"))
    model.set_output_embeddings(Other(model.lm_head, change))
    with pytest.raises(tessera.UnsupportedError, match="LlamaForCausalLM cannot train with"):
        step(model)
    assert all(each.grad is None for each in model.parameters())


def test_what_comes_after_patch():
    model = patch(small("LlamaForCausalLM"))
    model.resize_token_embeddings(WORDS + 8)
    with pytest.raises(tessera.UnsupportedError, match="replaced after `patch`"):
        step(model)
    model = patch(small("LlamaForCausalLM"))
    model.lm_head = Adapter(model.lm_head)
    with pytest.raises(tessera.UnsupportedError, match=r"logits \+ or - something"):
        step(model)
    model = patch(small("LlamaForCausalLM"))
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight[:60].detach())
    with pytest.raises(tessera.UnsupportedError, match=r"has the shape \(60, 64\)"):
        step(model)


@pytest.mark.parametrize("name, changes", [
    ("LlamaForCausalLM", {"num_key_value_heads": 2}),  # groups, by enable_gqa or repeated heads
    ("MistralForCausalLM", {"num_key_value_heads": 2, "sliding_window": 5}),  # a mask of windows
    ("GPT2LMHeadModel", {}),
])
def test_attention_in_the_place_of_pytorchs(name, changes, monkeypatch):
    """Models call PyTorch's function by name; with padding in front, and while they generate."""
    model = small(name, **changes).eval()
    model.set_attn_implementation("sdpa")
    padded = torch.ones_like(TOKENS)
    padded[0, :6] = 0
    calls = []

    def ours(*args, **options):
        calls.append(options)
        return tt.attention(*args, **options)

    def results():
        with torch.no_grad():
            for mask in (None, padded):
                seen = slice(None) if mask is None else padded.bool()
                yield model(TOKENS, attention_mask=mask).logits[seen]
            yield model.generate(TOKENS, attention_mask=padded, max_new_tokens=5, do_sample=False,
                                 pad_token_id=0)

    plain = list(results())
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", ours)
    for got, wanted in zip(results(), plain, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    assert len(calls) >= 7 * model.config.num_hidden_layers
