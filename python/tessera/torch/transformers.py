# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's models with tessera's loss: `patch` and `unpatch`.

While a patched model trains, its output embedding computes no logits. It returns a stand-in for
them, which notes what the model does with it, and from which the loss is then computed in one call.
What a stand-in does not know is an error, so that no model is trained with another loss than its
own.
"""

import inspect

import torch
import transformers
from torch import nn
from transformers.loss import loss_utils

import tessera

from . import linear_cross_entropy

_LOSS_ARGUMENTS = ["logits", "labels", "vocab_size", "num_items_in_batch", "ignore_index",
                   "shift_labels", "kwargs"]
_given = list(inspect.signature(loss_utils.ForCausalLMLoss).parameters)
if _given != _LOSS_ARGUMENTS:
    raise ImportError(
        f"transformers {transformers.__version__} computes its loss from {_given}, and "
        f"tessera.torch.transformers knows {_LOSS_ARGUMENTS}; install transformers 5.23")


def patch(model, *, implementation=None, logsumexp_weight=0.0, workspace_bytes=None):
    """Lets `model` train with tessera's loss, in place, and returns it.

    In calls with labels while `model.training`, the loss and its gradients are those of the model's
    own loss without its logits in memory, and `logits` of the result is None. All other calls stay
    as they were: evaluation, generation, saving.

    model: a PreTrainedModel on the CPU whose output embedding is a torch.nn.Linear, and which
        does nothing between that and the library's causal loss but scale, cap (tanh) and slice.
    implementation, workspace_bytes: as in `tessera.torch.linear_cross_entropy`.
    logsumexp_weight: weight of a z-loss, which is added.

    Where no label counts, the loss is 0, and not NaN as the model's own.

    Raises TypeError for another kind of model, tessera.UnsupportedError for a model that does
    something else, by name and with the reason, and tessera.InvalidArgumentError for one that is
    patched. What shows in a training call only is raised there, before any gradient.
    """
    if not isinstance(model, transformers.PreTrainedModel):
        raise TypeError(f"model is a {_name_of(model)}; give the transformers.PreTrainedModel "
                        "within it, and wrap that afterwards")
    if getattr(model, "_tessera_patch", None) is not None:
        raise _error(tessera.InvalidArgumentError, "invalid_argument",
                     f"{type(model).__name__} is patched already; call unpatch(model) first")
    made = _Patch(model, {"implementation": implementation, "logsumexp_weight": logsumexp_weight,
                          "workspace_bytes": workspace_bytes})
    made.install()
    try:
        made.probe()
    except BaseException:
        made.remove()
        raise
    return model


def unpatch(model):
    """Undoes `patch`, and returns `model`; tessera.InvalidArgumentError where it is not patched."""
    made = getattr(model, "_tessera_patch", None)
    if made is None:
        raise _error(tessera.InvalidArgumentError, "invalid_argument",
                     f"{type(model).__name__} is not patched; give the model that patch was given")
    made.remove()
    return model


def _name_of(thing):
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _error(kind, code, text):
    error = kind(text)
    error.code, error.build_log = code, ""
    return error


class _Patch:
    """What a patched model holds. Its methods are the model's hooks, so that copies and pickles of
    the model have a patch of their own."""

    def __init__(self, model, options):
        self.model, self.options = model, options
        self.head = model.get_output_embeddings()
        self.labels_at = list(inspect.signature(type(model).forward).parameters).index(
            "labels") - 1 if "labels" in inspect.signature(type(model).forward).parameters else None
        self.fusing = self.probing = False
        self.losses = 0
        self.own_loss = vars(model).get("_loss_function")
        self.check_loss()
        self.check_head()

    def refusal(self, reason):
        return _error(tessera.UnsupportedError, "unsupported",
                      f"{type(self.model).__name__} cannot train with tessera's loss: {reason}; "
                      "train it unpatched")

    def check_loss(self):
        if self.labels_at is None:
            raise self.refusal("its forward has no argument `labels`")
        if self.model.loss_function is not loss_utils.ForCausalLMLoss:
            name = getattr(self.model.loss_function, "__name__", _name_of(self.model.loss_function))
            raise self.refusal(f"its loss_function is {name}, not ForCausalLMLoss")

    def check_head(self):
        """Also before each step: adapters, shards and quantised weights may come after `patch`."""
        head = self.head
        if type(head) is not nn.Linear:
            raise self.refusal(f"its output embedding is a {_name_of(head)}, not a torch.nn.Linear "
                               "(adapters have to be merged, and heads unquantised)")
        own = vars(head).get("forward")
        if own is not None and getattr(own, "__self__", None) is not self:
            raise self.refusal("the forward of its output embedding has been replaced")
        weight = head.weight
        if type(weight) not in (nn.Parameter, torch.Tensor):
            raise self.refusal(f"the weight of its output embedding is a {_name_of(weight)} "
                               "(sharded or quantised), not a torch.nn.Parameter")
        if weight.device.type != "cpu":
            raise self.refusal(f"the weight of its output embedding is on {weight.device}, not on "
                               "the CPU")
        if weight.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise self.refusal(f"the weight of its output embedding has the type {weight.dtype}, "
                               "and not float32, bfloat16 or float16")
        if weight.shape != (head.out_features, head.in_features):
            raise self.refusal(f"the weight of its output embedding has the shape "
                               f"{tuple(weight.shape)} and not "
                               f"{(head.out_features, head.in_features)} (sharded?)")

    def install(self):
        self.hooks = [
            self.model.register_forward_pre_hook(self.before, with_kwargs=True),
            # Also after an exception, or the head would go on computing no logits.
            self.model.register_forward_hook(self.after, with_kwargs=True, always_call=True)]
        self.head.forward = self.head_forward
        self.model.loss_function = self.loss
        self.model._tessera_patch = self

    def remove(self):
        for hook in self.hooks:
            hook.remove()
        del self.head.forward
        if self.own_loss is None:
            del self.model._loss_function
        else:
            self.model.loss_function = self.own_loss
        del self.model._tessera_patch

    def probe(self):
        """Two tokens go through the model, to refuse now what a training call would refuse."""
        device = self.head.weight.device
        tokens = torch.zeros((1, 2), dtype=torch.int64, device=device)
        self.probing = True
        try:
            with torch.random.fork_rng(devices=[]):  # dropout
                self.model(input_ids=tokens, labels=tokens)
        except tessera.UnsupportedError:
            raise
        except Exception:  # it needs images, more tokens, a mask: the first training call judges
            pass
        finally:
            self.probing = False

    def before(self, model, args, kwargs):
        labels = kwargs.get("labels")
        if labels is None and len(args) > self.labels_at:
            labels = args[self.labels_at]
        self.fusing = labels is not None and (model.training or self.probing)
        self.losses = 0

    def head_forward(self, x):
        if not self.fusing:
            return nn.Linear.forward(self.head, x)
        self.check_head()
        return _Logits(self, x, self.head.weight, self.head.bias)

    def loss(self, logits, labels, vocab_size, num_items_in_batch=None, ignore_index=-100,
             shift_labels=None, **kwargs):
        """ForCausalLMLoss from a stand-in for the logits. Like that, it ignores other arguments."""
        if not self.fusing:
            return loss_utils.ForCausalLMLoss(logits, labels, vocab_size, num_items_in_batch,
                                              ignore_index, shift_labels, **kwargs)
        if not isinstance(logits, _Logits):
            raise self.refusal("its loss is not computed from what its output embedding returned "
                               "(was the embedding replaced after `patch`?)")
        if vocab_size != logits.weight.shape[0]:
            raise self.refusal(f"its loss is of {vocab_size} words and its output embedding has "
                               f"{logits.weight.shape[0]}")
        self.losses += 1
        if shift_labels is None:
            labels = nn.functional.pad(labels, (0, 1), value=ignore_index)
            shift_labels = labels[..., 1:]
        target = shift_labels.reshape(-1)
        x = logits.x.reshape(-1, logits.x.shape[-1])
        if target.numel() != x.shape[0]:
            raise _error(tessera.InvalidArgumentError, "invalid_argument",
                         f"labels are {tuple(shift_labels.shape)} and hidden states "
                         f"{tuple(logits.x.shape)}; there has to be a label for each")
        if self.probing:
            return x.new_zeros(())
        call = dict(self.options, linear_bias=logits.bias, ignore_index=ignore_index,
                    logit_scale=logits.scale, logit_soft_cap=None)
        if logits.capped:  # cap * tanh(factor * z)
            call.update(logit_soft_cap=logits.cap, logit_scale=logits.scale * logits.cap)
        if num_items_in_batch is not None:
            # The division lies in the tokens' weights: dividing the sum would cost the gradients
            # another pass.
            items = torch.as_tensor(num_items_in_batch, dtype=torch.float32, device=x.device)
            call.update(reduction="sum", token_weight=(1 / items).expand(target.shape))
        return linear_cross_entropy(x, logits.weight, target, **call)

    def after(self, model, args, kwargs, output):
        fused, self.fusing = self.fusing, False
        if not fused or output is None:  # an exception is on its way
            return None
        if self.losses != 1:
            raise self.refusal(f"it called its loss_function {self.losses} times in a forward")
        if isinstance(output, tuple):
            return tuple(None if isinstance(each, _Logits) else each for each in output)
        return type(output)(**{name: None if isinstance(each, _Logits) else each
                               for name, each in output.items()})


class _Logits:
    """Stands for logits that are not computed: cap * tanh(scale * (x . weight + bias)), or without
    the tanh."""

    def __init__(self, patch, x, weight, bias, scale=1.0, cap=1.0, capped=False):
        self.patch, self.x, self.weight, self.bias = patch, x, weight, bias
        self.scale, self.cap, self.capped = scale, cap, capped

    def _with(self, **changes):
        return _Logits(**{**vars(self), **changes})

    def _refusal(self, what):
        return self.patch.refusal(f"it does `{what}` between its output embedding and its loss")

    def _times(self, factor, what):
        if type(factor) not in (int, float):
            raise self._refusal(f"{what} {_name_of(factor)}")
        return self._with(**({"cap": self.cap * factor} if self.capped else
                             {"scale": self.scale * factor}))

    def __mul__(self, factor):
        return self._times(factor, "logits *")

    __rmul__ = __mul__

    def __truediv__(self, divisor):
        if type(divisor) not in (int, float) or divisor == 0:
            raise self._refusal(f"logits / {divisor}")
        return self._times(1 / divisor, "logits /")

    def _unknown(self, *operands):
        raise self._refusal("logits + or - something, or a change in place")

    __add__ = __radd__ = __sub__ = __rsub__ = __neg__ = __setitem__ = _unknown

    def tanh(self):
        if self.capped:
            raise self._refusal("tanh twice")
        return self._with(capped=True)

    def float(self):
        return self

    def contiguous(self):
        return self

    def to(self, *args, **kwargs):
        for each in (*args, *kwargs.values()):
            if each not in (torch.float32, self.dtype, self.device):
                raise self._refusal(f"logits.to({each})")
        return self

    def __getitem__(self, at):
        *before, words = at if isinstance(at, tuple) else (at,)
        if not isinstance(words, slice) or before != [Ellipsis]:
            raise self._refusal(f"logits[{at}]")
        return self._with(weight=self.weight[words],
                          bias=None if self.bias is None else self.bias[words])

    @property
    def shape(self):
        return torch.Size((*self.x.shape[:-1], self.weight.shape[0]))

    @property
    def dtype(self):
        return self.x.dtype

    @property
    def device(self):
        return self.x.device

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        first = args[0] if args else None
        if function is torch.tanh and isinstance(first, cls) and not kwargs:
            return first.tanh()
        logits = next(each for each in (*args, *(kwargs or {}).values()) if isinstance(each, cls))
        raise logits._refusal(f"torch.{function.__name__}")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._refusal(f"logits.{name}")
