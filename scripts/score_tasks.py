#!/usr/bin/env python3
"""Scores models on tasks of lm-evaluation-harness, through the Python package. bench_quant.py runs it in build/python-venv.

    score_tasks.py --tasks arc_easy,piqa [--include-path FOLDER] [--limit N] MODEL...

Prints a JSON array for each model: {task: {"metric": NAME, "value": V, "error": STANDARD ERROR}}. Tasks whose data is not at hand are downloaded
from the Hugging Face hub by the harness; FOLDER has tasks of your own (YAML).
"""

import argparse
import json
import sys

# The first of these that a task has is its score.
METRICS = ["acc_norm,none", "acc,none", "exact_match,strict-match", "exact_match,none", "word_perplexity,none"]


def score(results):
    metric = next((m for m in METRICS if m in results), None)
    if metric is None:
        sys.exit(f"none of the metrics {METRICS} is among the results {sorted(results)}")
    name, _, how = metric.partition(",")
    error = results.get(f"{name}_stderr,{how}")
    return {"metric": name, "value": results[metric], "error": error if isinstance(error, float) else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", required=True, type=lambda text: text.split(","))
    parser.add_argument("--include-path")
    parser.add_argument("--limit", type=int)
    parser.add_argument("models", nargs="+")
    o = parser.parse_args()
    try:
        import lm_eval
        import quire.lm_eval  # noqa: F401 (registers the model class "quire")
        from lm_eval.tasks import TaskManager
    except ImportError as missing:
        sys.exit(f"{missing.name} is not installed here: ./dev clients installs the package and lm_eval")
    manager = TaskManager(include_path=o.include_path)
    scores = []
    for model in o.models:
        results = lm_eval.simple_evaluate(model="quire", model_args={"pretrained": model}, tasks=o.tasks, limit=o.limit, task_manager=manager, verbosity="ERROR")
        scores.append({task: score(results["results"][task]) for task in o.tasks})
    print(json.dumps(scores))


if __name__ == "__main__":
    main()
