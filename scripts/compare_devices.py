#!/usr/bin/env python3
"""Compares a device's logits with the processor's where both round activations to bf16: for each model, the mean KL divergence of
either from the golden logits of transformers in float32. Rounding differs, so the divergences do, but not in size.

    scripts/compare_devices.py QUIRE [DEVICE [KV_CACHE_DTYPE]]
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

MODELS = Path(__file__).resolve().parent.parent / "tests/golden/data/models"
# How far a device may be off: so many times the processor's divergence, or this much, because random models magnify single roundings.
MOST_RATIO, NEGLIGIBLE = 3.0, 2e-4


def divergence(quire, model, device, cache):
    """(mean KL, share of greedy tokens that are the reference's), or what went wrong"""
    command = [quire, "verify", "-m", model, model / "expected.safetensors", "--device", device, "--activations", "bf16"]
    done = subprocess.run([*command, "--kv-cache-dtype", cache, "--tolerance", "1e9", "--json"], capture_output=True, text=True, timeout=300)
    try:
        prompts = json.loads(done.stdout)["prompts"]
    except (ValueError, KeyError):
        return (done.stderr or done.stdout).strip()
    equal, steps = (sum(p[key] for p in prompts) for key in ("greedy_equal", "greedy_steps"))
    return sum(p["mean_kl"] for p in prompts) / len(prompts), equal / steps


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    quire, device, cache = sys.argv[1], (sys.argv[2:] + ["cuda"])[0], (sys.argv[3:] + ["bf16"])[0]
    models = sorted(m for m in MODELS.iterdir() if (m / "expected.safetensors").exists())
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda m: (divergence(quire, m, "cpu", cache), divergence(quire, m, device, cache)), models))
    ratios, failed = [], 0
    print(f"{'model':24} {'KL, cpu':>10} {'KL, ' + device:>10} {'tokens, cpu':>12} {'tokens':>7}")
    for model, (cpu, own) in zip(models, results):
        wrong = next((r for r in (cpu, own) if isinstance(r, str)), None)
        if wrong:
            failed += 1
            print(f"{model.name:24} {wrong}")
            continue
        ratios.append(own[0] / max(cpu[0], 1e-12))
        bad = own[0] > max(MOST_RATIO * cpu[0], NEGLIGIBLE)
        failed += bad
        print(f"{model.name:24} {cpu[0]:10.2e} {own[0]:10.2e} {cpu[1]:12.2f} {own[1]:7.2f}{'  TOO FAR' if bad else ''}")
    print(f"{len(models)} models, {failed} wrong; the device's divergence is {median(ratios):.2f} times the processor's in the median")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
