"""Plain against speculative decoding of the exported pair in ds4chat, on held-out prompts.

    python -m training.speed --pair DIR --heldout H [--no-library] [--prompts 20]

Each reply is made twice, plainly and speculatively, in alternating order; the
texts must be equal. Reported: medians of both in tokens a second, and of the paired ratios.
"""

# ruff: noqa: PLC0415  (MLX is imported after the choice of the product)

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

SEED = 778
MIN_TOKENS = {"code": 80, "list": 60, "story": 150}
MAX_TOKENS = 280


def open_engine(pair: Path, has_library: bool, policy: str) -> tuple[Any, str]:
    """The engine, and which product it uses."""
    os.environ["DS4CHAT_CPU_BLAS"] = "on" if has_library else "off"
    from ds4chat.engine.host_open import use_fast_products

    use_fast_products()
    from ds4chat.engine.engine import Engine
    from ds4chat.ops import cpu_blas

    base = next(p for p in sorted(pair.glob("*.gguf")) if is_base(p))
    support = next(p for p in sorted(pair.glob("*.gguf")) if not is_base(p))
    engine = Engine.open(base, support, backend="cpu", policy=policy)
    engine.measure()
    return engine, cpu_blas.status() or "stock CPU products"


def is_base(path: Path) -> bool:
    """By name: support.gguf, or a name with dspark in it, is the draft."""
    return not ("support" in path.name or "dspark" in path.name)


def reply(
    engine: Any, ids: list[int], policy: str, *, is_spec: bool
) -> tuple[list[int], float, int]:
    """Tokens of a greedy reply, seconds of decoding, rounds and steps."""
    from ds4chat.protocol.types import Policy, SpecOptions

    session = engine.session()
    session.set_spec(SpecOptions(enabled=is_spec, policy=Policy(policy)))
    session.sync(ids)
    out: list[int] = []
    n_rounds = 0
    start = time.perf_counter()
    while len(out) < MAX_TOKENS:
        token = session.choose()
        if token in engine.end_ids:
            break
        if is_spec:
            out += [t.id for t in session.speculate(token, MAX_TOKENS - len(out))]
        else:
            out.append(session.step(token).id)
        n_rounds += 1
    seconds = time.perf_counter() - start
    session.close()
    return out, seconds, n_rounds


def measure(engine: Any, prompts: list[str], kind: str, n: int, policy: str) -> dict[str, Any]:
    """Figures of one kind of prompt over `n` replies that are long enough."""
    rows: list[dict[str, float]] = []
    for text in prompts:
        ids = engine.render([{"role": "user", "content": text}])
        plain, _, _ = reply(engine, ids, policy, is_spec=False)
        if len(plain) < MIN_TOKENS[kind]:
            continue
        order = (False, True) if len(rows) % 2 else (True, False)
        made = {is_spec: reply(engine, ids, policy, is_spec=is_spec) for is_spec in order}
        if not made[True][0] == made[False][0] == plain:
            raise AssertionError(f"speculative text differs from plain text: {text}")
        tps = {is_spec: len(out) / s for is_spec, (out, s, _) in made.items()}
        rows.append(
            {
                "n": len(plain),
                "plain": tps[False],
                "spec": tps[True],
                "tokens_a_step": len(plain) / made[True][2],
            }
        )
        if len(rows) == n:
            break
    return {
        "replies": len(rows),
        "plain_tps": round(statistics.median(r["plain"] for r in rows), 1),
        "spec_tps": round(statistics.median(r["spec"] for r in rows), 1),
        "ratio": round(statistics.median(r["spec"] / r["plain"] for r in rows), 3),
        "tokens_a_step": round(statistics.median(r["tokens_a_step"] for r in rows), 2),
    }


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--pair", type=Path, required=True, help="folder with the two GGUF files")
    p.add_argument("--heldout", type=Path, required=True)
    p.add_argument("--prompts", type=int, default=20, help="replies of each kind")
    p.add_argument("--no-library", action="store_true", help="with MLX's own CPU product")
    p.add_argument("--policy", default="money", choices=["money", "window", "fixed"])
    p.add_argument("--kinds", nargs="+", default=list(MIN_TOKENS), choices=list(MIN_TOKENS))
    a = p.parse_args()
    rows = [json.loads(line) for line in a.heldout.read_text().splitlines()]
    random.Random(SEED).shuffle(rows)
    engine, status = open_engine(a.pair, not a.no_library, a.policy)
    print(json.dumps({"products": status}))
    for kind in a.kinds:
        prompts = [r["turns"][0]["content"] for r in rows if r["kind"] == kind]
        print(
            json.dumps({kind: measure(engine, prompts, kind, a.prompts, a.policy)}), flush=True
        )


if __name__ == "__main__":
    main()
