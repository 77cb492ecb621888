"""Which tensors a made-up pair has: names in files and checkpoints, shapes, kinds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

QUANTS = ("f32", "f16", "bf16", "q8_0", "q4_k", "q2", "mxfp4", "mixed")
SPELLINGS = ("ds4", "llama", "late")
_K_SIZES = {"dim": 256, "expert_dim": 256, "q_lora": 256, "o_lora": 128}
_PLAIN_SIZES = {"dim": 64, "expert_dim": 32, "q_lora": 32, "o_lora": 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpec:
    """What to make. Sizes of 0 mean: golden ones, or rows of 256 for formats that need them."""

    seed: int = 0
    quant: str = "f32"
    spelling: str = "ds4"
    ratios: tuple[int, ...] = (0, 0, 4, 128, 4, 0)
    n_hash: int = 3
    ctx: int = 65536
    dim: int = 0
    heads: int = 4
    head_dim: int = 128
    rope_dim: int = 64
    q_lora: int = 0
    n_groups: int = 2
    o_lora: int = 0
    window: int = 128
    n_experts: int = 8
    topk: int = 3
    expert_dim: int = 0
    n_shared: int = 1
    expert_scale: float = 1.5
    swiglu_limit: float = 2.0
    n_streams: int = 4
    sinkhorn_rounds: int = 20
    index_heads: int = 16
    index_dim: int = 128
    index_topk: int = 16
    rope_factor: float = 16.0
    rope_original_ctx: int = 4096
    vocab: int = 512
    end_id: int = 1  # where the end token stands
    block_size: int = 5
    n_stages: int = 3
    markov_rank: int = 16
    target_layers: tuple[int, ...] = ()  # empty: the last three
    noise_id: int = -1  # -1: the last id, a placeholder token
    variant: str = ""  # deepseek4.checkpoint_variant of the model
    support_variant: str | None = None  # None: the model's
    name: str = "tiny V4"

    def size(self, field: str) -> int:
        """A size that depends on the format unless it was given."""
        needs_k = self.quant in ("q4_k", "q2", "mixed")
        return getattr(self, field) or (_K_SIZES if needs_k else _PLAIN_SIZES)[field]

    @property
    def captured(self) -> tuple[int, ...]:
        """The target layers that the draft module reads."""
        n = len(self.ratios)
        return self.target_layers or tuple(range(max(0, n - 3), n))

    @property
    def noise(self) -> int:
        """The draft's noise token."""
        return self.noise_id if self.noise_id >= 0 else self.vocab - 1


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor to draw: GGUF suffix, checkpoint name, NumPy shape, kind, gain."""

    stored: str
    drawn: str
    shape: tuple[int, ...]
    kind: str  # routed, dense, light, norm, fn, base, scale, sink, ape, bias
    gain: float = 1.0


def _hyper(spec: PairSpec, stored: str, drawn: str, mix: int, scales: int) -> list[Part]:
    width = spec.n_streams * spec.size("dim")
    return [
        Part(f"{stored}_fn.weight", f"{drawn}_fn", (mix, width), "fn"),
        Part(f"{stored}_base.weight", f"{drawn}_base", (mix,), "base", 0.5),
        Part(f"{stored}_scale.weight", f"{drawn}_scale", (scales,), "scale", 0.1),
    ]


def _attention(spec: PairSpec) -> list[Part]:
    dim, q_lora, inner = spec.size("dim"), spec.size("q_lora"), spec.heads * spec.head_dim
    low = spec.n_groups * spec.size("o_lora")
    return [
        Part("attn_norm.weight", "attn_norm.weight", (dim,), "norm"),
        Part("attn_q_a.weight", "attn.wq_a.weight", (q_lora, dim), "dense"),
        Part("attn_q_a_norm.weight", "attn.q_norm.weight", (q_lora,), "norm"),
        Part("attn_q_b.weight", "attn.wq_b.weight", (inner, q_lora), "dense"),
        Part("attn_kv.weight", "attn.wkv.weight", (spec.head_dim, dim), "dense"),
        Part("attn_kv_a_norm.weight", "attn.kv_norm.weight", (spec.head_dim,), "norm"),
        Part("attn_sinks.weight", "attn.attn_sink", (spec.heads,), "sink"),
        Part(
            "attn_output_a.weight", "attn.wo_a.weight", (low, inner // spec.n_groups), "dense"
        ),
        Part("attn_output_b.weight", "attn.wo_b.weight", (dim, low), "dense"),
    ]


def _experts(spec: PairSpec) -> list[Part]:
    dim, inner, n = spec.size("dim"), spec.size("expert_dim"), spec.n_experts
    wide = spec.n_shared * inner
    shared = "ffn.shared_experts"
    return [
        Part("ffn_norm.weight", "ffn_norm.weight", (dim,), "norm"),
        Part("ffn_gate_inp.weight", "ffn.gate.weight", (n, dim), "light", 1.5),
        Part("ffn_gate_exps.weight", "w1", (n, inner, dim), "routed", 1.5),
        Part("ffn_up_exps.weight", "w3", (n, inner, dim), "routed", 1.5),
        Part("ffn_down_exps.weight", "w2", (n, dim, inner), "routed"),
        Part("ffn_gate_shexp.weight", f"{shared}.w1.weight", (wide, dim), "dense", 1.5),
        Part("ffn_up_shexp.weight", f"{shared}.w3.weight", (wide, dim), "dense", 1.5),
        Part("ffn_down_shexp.weight", f"{shared}.w2.weight", (dim, wide), "dense"),
    ]


def _block(spec: PairSpec) -> list[Part]:
    mix = spec.n_streams * (spec.n_streams + 2)
    return [
        *_hyper(spec, "hc_attn", "hc_attn", mix, 3),
        *_attention(spec),
        *_hyper(spec, "hc_ffn", "hc_ffn", mix, 3),
        *_experts(spec),
    ]


def _compressor(spec: PairSpec, stored: str, drawn: str, ratio: int, row: int) -> list[Part]:
    width, dim = row * (2 if ratio == 4 else 1), spec.size("dim")
    return [
        Part(f"{stored}_ape.weight", f"{drawn}.ape", (ratio, width), "ape", 0.5),
        Part(f"{stored}_kv.weight", f"{drawn}.wkv.weight", (width, dim), "light"),
        Part(f"{stored}_gate.weight", f"{drawn}.wgate.weight", (width, dim), "light"),
        Part(f"{stored}_norm.weight", f"{drawn}.norm.weight", (row,), "norm"),
    ]


def _layer(spec: PairSpec, layer: int) -> list[Part]:
    parts = _block(spec)
    ratio, index = spec.ratios[layer], "attn.indexer"
    if layer >= spec.n_hash:
        parts.append(Part("exp_probs_b.bias", "ffn.gate.bias", (spec.n_experts,), "bias", 0.2))
    if ratio:
        parts += _compressor(spec, "attn_compressor", "attn.compressor", ratio, spec.head_dim)
    if ratio == 4:
        rows, q_lora = spec.index_heads * spec.index_dim, spec.size("q_lora")
        heads = (spec.index_heads, spec.size("dim"))
        parts += [
            Part("indexer.attn_q_b.weight", f"{index}.wq_b.weight", (rows, q_lora), "light"),
            Part("indexer.proj.weight", f"{index}.weights_proj.weight", heads, "light"),
            *_compressor(spec, "indexer_compressor", f"{index}.compressor", 4, spec.index_dim),
        ]
    return parts


def base_parts(spec: PairSpec) -> Iterator[tuple[Part, int]]:
    """Every float tensor of the target, and its layer (-1 outside layers)."""
    dim = spec.size("dim")
    yield Part("token_embd.weight", "embed.weight", (spec.vocab, dim), "embed"), -1
    yield Part("output.weight", "head.weight", (spec.vocab, dim), "dense", 2.0), -1
    yield Part("output_norm.weight", "norm.weight", (dim,), "norm"), -1
    for part in _hyper(spec, "output_hc", "hc_head", spec.n_streams, 1):
        yield part, -1
    for layer in range(len(spec.ratios)):
        for part in _layer(spec, layer):
            yield _under(part, f"blk.{layer}.", f"layers.{layer}."), layer


def _under(part: Part, stored: str, drawn: str) -> Part:
    return dataclasses.replace(part, stored=stored + part.stored, drawn=drawn + part.drawn)


def support_parts(spec: PairSpec) -> Iterator[tuple[Part, int]]:
    """Every tensor of the draft module under ds4's names, and its stage."""
    dim, rank, last = spec.size("dim"), spec.markov_rank, spec.n_stages - 1
    captured = len(spec.captured) * dim
    markov, confidence = "markov_head.markov_", "confidence_head.proj"
    head = [
        Part("main_proj.weight", "main_proj.weight", (dim, captured), "dense"),
        Part("main_norm.weight", "main_norm.weight", (dim,), "norm"),
    ]
    tail = [
        Part("norm.weight", "norm.weight", (dim,), "norm"),
        *_hyper(spec, "hc_head", "hc_head", spec.n_streams, 1),
        Part(f"{markov}w1.weight", f"{markov}w1.weight", (spec.vocab, rank), "table"),
        Part(f"{markov}w2.weight", f"{markov}w2.weight", (spec.vocab, rank), "dense", 2.0),
        Part(f"{confidence}.weight", f"{confidence}.weight", (1, dim + rank), "dense"),
    ]
    for stage in range(spec.n_stages):
        parts = _block(spec)
        parts.append(Part("exp_probs_b.bias", "ffn.gate.bias", (spec.n_experts,), "bias", 0.2))
        parts += head if stage == 0 else []
        parts += tail if stage == last else []
        for part in parts:
            yield _under(part, f"mtp.{stage}.", f"mtp.{stage}."), stage
