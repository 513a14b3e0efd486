# SPDX-License-Identifier: Apache-2.0
"""JAX: the textbook loss under jit, a streaming one of bounded memory, and Tokamax's."""
import importlib.metadata

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from worker import Unsupported

V_BLOCK = 4096  # of the streaming form; 1024 to 8192 were equal within some percent


def product(x, w, layout):
    """x w in f32, [B, V], for w [V, H] (vh) or [H, V] (hv)."""
    dimensions = (((1,), (1 if layout == "vh" else 0,)), ((), ()))
    return jax.lax.dot_general(x, w, dimensions, preferred_element_type=jnp.float32)


def textbook(x, w, labels, layout):
    z = product(x, w, layout)
    label_logit = jnp.take_along_axis(z, labels[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(z, axis=1) - label_logit)


def streaming(x, w, labels, layout):
    """Blocks of the vocabulary with a running maximum and sum; the backward pass recomputes each
    block's logits. Blocks are a leading axis, so that gradients of w are written block by block."""
    if layout != "vh":
        raise Unsupported("blocks of [H, V] would be copied: use [V, H]")
    v, h = w.shape
    block = min(V_BLOCK, v)
    count = -(-v // block)
    padded = jnp.pad(w, ((0, count * block - v), (0, 0))) if count * block != v else w
    ids = jnp.arange(count * block).reshape(count, block)

    @jax.checkpoint
    def step(carry, part):
        top, total, label_logit = carry
        w_block, id_block = part
        z = product(x, w_block, "vh")
        if count * block != v:
            z = jnp.where(id_block[None, :] < v, z, -jnp.inf)
        # The maximum only shifts: it needs no gradient.
        new = jax.lax.stop_gradient(jnp.maximum(top, z.max(axis=1)))
        total = total * jnp.exp(top - new) + jnp.exp(z - new[:, None]).sum(axis=1)
        at = labels - id_block[0]
        here = (at >= 0) & (at < block)
        picked = jnp.take_along_axis(z, jnp.clip(at, 0, block - 1)[:, None], axis=1)[:, 0]
        return (new, total, label_logit + jnp.where(here, picked, 0.0)), None

    b = x.shape[0]
    start = jnp.full(b, -1e30), jnp.zeros(b), jnp.zeros(b)
    (top, total, label_logit), _ = jax.lax.scan(step, start,
                                                (padded.reshape(count, block, h), ids))
    return jnp.mean(top + jnp.log(total) - label_logit)


def tokamax_loss(implementation):
    import tokamax
    from tokamax._src.ops.linear_softmax_cross_entropy_loss import api
    if implementation not in api.IMPLEMENTATIONS:
        raise Unsupported(f"tokamax {importlib.metadata.version('tokamax')} has no "
                          f"'{implementation}', only {', '.join(api.IMPLEMENTATIONS)}")

    def loss(x, w, labels, layout):
        return tokamax.linear_softmax_cross_entropy_loss(x, labels, w, reduction="mean",
                                                         implementation=implementation)
    return loss


class Peer:
    warm_on_tiny = True

    def __init__(self, name, grad, layout):
        self.version = f"jax {jax.__version__}"
        self.layout, self.grad = layout, grad
        if name == "jax.textbook":
            function, self.what = textbook, f"jit of logsumexp, whole logits, w {layout}"
        elif name == "jax.streaming":
            function, self.what = streaming, f"jit of a scan with checkpoint, {V_BLOCK} columns"
        else:
            function = tokamax_loss(name.split(".")[1])
            self.what = f"linear_softmax_cross_entropy_loss, {name.split('.')[1]}"
            self.version += f", tokamax {importlib.metadata.version('tokamax')}"

        def value(x, w, labels):
            return function(x, w, labels, layout)
        self.function = jax.jit(jax.value_and_grad(value, argnums=(0, 1)) if grad else value)

    def load(self, x, w, labels):
        def array(a):
            return jax.device_put(a.view(ml_dtypes.bfloat16) if a.dtype == np.uint16 else a)
        self.arrays = [jax.block_until_ready(array(a)) for a in (x, w, labels.astype(np.int32))]

    def call(self):
        return jax.block_until_ready(self.function(*self.arrays))

    def loss(self, results):
        return float(results[0] if self.grad else results)

    def sample(self, results, rows, columns):
        grad_x, grad_w = results[1]
        picked = grad_w[jnp.array(columns)] if self.layout == "vh" else grad_w[:, columns].T
        return grad_x[jnp.array(rows)].astype(jnp.float32), picked.astype(jnp.float32)


def make(name, which, dtype, layout, threads):
    if name.startswith("tokamax") and layout != "hv":
        raise Unsupported("Tokamax takes weights [H, V]")
    return Peer(name, which == "value_and_grad", layout)
