#include "cli/advise/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/cpu.h"
#include "cli/terminal/text_table.h"

namespace quire {
namespace {

std::string gain_percent(double gain) { return fmt::format("{:+.0f} %", 100 * (gain - 1)); }

std::string bounds_text(const ServiceLevel& level) {
  std::string text;
  for (const auto& [name, bound] : {std::pair{"TTFT", level.ttft}, {"TPOT", level.tpot}, {"end to end", level.e2e}}) {
    if (bound) text += fmt::format("{}{} at most {:g} ms", text.empty() ? "" : ", ", name, 1e3 * *bound);
  }
  return text;
}

std::string objective(const AdviceReport& r) {
  if (!r.level.given()) return "tokens of answers per second";
  return fmt::format("tokens of answers per second, with the 95th percentiles of {}", bounds_text(r.level));
}

std::string load_text(const AdviceReport& r) {
  std::string text =
      fmt::format("{}: {} requests at a time, on average {:.0f} tokens of prompt and up to {:.0f} of answer",
                  r.workload.name, r.workload.concurrency, r.workload.mean_prompt(), r.workload.mean_answer());
  if (r.workload.shared_prefix > 0)
    text += fmt::format("; all prompts begin with the same {}", r.workload.shared_prefix);
  if (r.workload.scale < 1)
    text += fmt::format("\n  (lengths scaled to {:.0f} % to fit the context and the budget)", 100 * r.workload.scale);
  return text;
}

std::string text_source(const AdviceReport& r) {
  return r.workload.text_file.empty() ? "the built-in English text and code" : r.workload.text_file;
}

const AdviceChoice& choice_of(const AdviceReport& r, const TriedValue& tried) {
  return r.topics[tried.option].choices[tried.value - 1];
}

// Largest gain first.
std::vector<const TriedValue*> ranked(const AdviceReport& r, bool baselines) {
  std::vector<const TriedValue*> rows;
  for (const TriedValue& tried : r.search.tried) {
    if (tried.gain && choice_of(r, tried).value.baseline == baselines) rows.push_back(&tried);
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const TriedValue* a, const TriedValue* b) {
    return baselines ? *a->gain < *b->gain : *a->gain > *b->gain;
  });
  return rows;
}

std::string verdict(const AdviceReport& r, const TriedValue& tried) {
  if (tried.advised) return "advised";
  if (*tried.gain < kLeastAdviceGain) return "no gain";
  if (choice_of(r, tried).value.lossy && !tried.kl) return "cost unknown";
  if (tried.kl && *tried.kl > r.limits.most_kl) return fmt::format("needs --allow-kl {:.2g}", *tried.kl);
  const bool alone = std::ranges::all_of(r.search.best, [](size_t value) { return value == 0; });
  return alone ? "not confirmed" : "not with the others";
}

std::string kl_text(const AdviceReport& r, const TriedValue& tried) {
  if (tried.kl) return fmt::format("{:.5f}", *tried.kl);
  return choice_of(r, tried).value.lossy ? "not measured" : "none";
}

// A row of the table of changes.
std::vector<std::string> change_cells(const AdviceReport& r, const TriedValue& tried) {
  const AdviceTopic& topic = r.topics[tried.option];
  std::vector<std::string> cells{topic.what, choice_of(r, tried).flag, gain_percent(*tried.gain),
                                 fmt::format("{:.1f}", tried.score.rate)};
  if (r.level.given()) cells.push_back(fmt::format("{:.2f}", tried.score.violation));
  for (std::string cell : {kl_text(r, tried), topic.takes, verdict(r, tried)}) cells.push_back(std::move(cell));
  return cells;
}

std::vector<std::string> change_cells(const AdviceReport& r, const AdvicePrediction& row) {
  std::vector<std::string> cells{row.what, row.choice, gain_percent(*row.gain), ""};
  if (r.level.given()) cells.emplace_back();
  for (std::string cell : {std::string("not measured"), row.takes, std::string("predicted")})
    cells.push_back(std::move(cell));
  return cells;
}

std::string changes_table(const AdviceReport& r) {
  std::vector<std::string> heads{"optimization", "flag", "gain", "tokens/s"};
  if (r.level.given()) heads.emplace_back("p95/bound");
  for (const char* head : {"KL", "takes", "verdict"}) heads.emplace_back(head);
  TextTable table(std::move(heads), 2);
  std::vector<std::pair<double, std::vector<std::string>>> rows;
  for (const TriedValue* tried : ranked(r, false)) rows.emplace_back(*tried->gain, change_cells(r, *tried));
  for (const AdvicePrediction& row : r.predictions.weight_types) {
    if (row.gain) rows.emplace_back(*row.gain, change_cells(r, row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [gain, cells] : rows) table.add(std::move(cells));
  return table.text();
}

std::string baselines_table(const AdviceReport& r) {
  TextTable table({"already on", "without it", "gain of the default"}, 2);
  for (const TriedValue* tried : ranked(r, true)) {
    const AdviceChoice& choice = choice_of(r, *tried);
    table.add({r.topics[tried->option].what, choice.flag.empty() ? choice.what : choice.flag,
               *tried->gain > 0 ? fmt::format("x {:.2f}", 1 / *tried->gain) : "no answer in time"});
  }
  return table.text();
}

// What has no figure, and why.
std::vector<std::pair<std::string, std::string>> not_tried(const AdviceReport& r) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const AdviceTopic& topic : r.topics) {
    if (!topic.not_tried.empty()) all.emplace_back(topic.what, topic.not_tried);
  }
  for (const TriedValue& tried : r.search.tried) {
    if (tried.gain) continue;
    all.emplace_back(fmt::format("{} {}", r.topics[tried.option].what, choice_of(r, tried).what), tried.not_tried);
  }
  for (const AdvicePrediction& row : r.predictions.weight_types) {
    if (!row.gain) all.emplace_back(row.what + " " + row.choice, row.not_predicted);
  }
  if (!r.predictions.batching_not_predicted.empty())
    all.emplace_back("other numbers of requests at once", r.predictions.batching_not_predicted);
  if (!r.starts) all.emplace_back("pack cache", r.starts_not_tried);
  all.emplace_back("draft models and heads", "they need files that the model does not have");
  all.emplace_back("other kernels, memory and disk caches", "they help other loads: see docs/performance.md");
  return all;
}

std::string other_lines(const AdviceReport& r) {
  std::string text = "\n";
  for (const BatchPrediction& batch : r.predictions.batching) {
    text += text == "\n" ? "requests at once, and tokens/s of all (predicted): " : ", ";
    text += fmt::format("{}: {:.0f}", batch.concurrency, batch.rate);
  }
  if (!r.predictions.batching.empty()) text += "\n";
  text += fmt::format(
      "tiled attention: always on; without it the scores of the longest prompt would take {:.1f} MB a layer "
      "(computed)\n",
      r.score_bytes / 1e6);
  if (r.starts)
    text += fmt::format("pack cache (--pack-cache DIR): starts in {:.2f} s instead of {:.2f} s; as fast afterwards\n",
                        r.starts->mapping, r.starts->packing);
  return text;
}

std::string score_text(const AdviceScore& score) {
  return fmt::format("{:.1f} tokens/s; TTFT {:.0f} ms, TPOT {:.1f} ms (medians)", score.rate, 1e3 * score.ttft,
                     1e3 * score.tpot);
}

std::string conclusion(const AdviceReport& r) {
  const SearchResult& s = r.search;
  const bool changed = std::ranges::any_of(s.best, [](size_t value) { return value > 0; });
  std::string text = "\n";
  if (!changed) {
    text += "The default is the best that was found.\n\n";
  } else if (s.default_score.meets() && s.best_score.meets()) {
    text += fmt::format("{} over the default; KL {:.5f}\n", gain_percent(s.gain), s.kl);
  } else {
    text += fmt::format("Closer to the bounds than the default; KL {:.5f}\n", s.kl);
  }
  if (changed)
    text += fmt::format("  advised  {}\n  default  {}\n\n", score_text(s.best_score), score_text(s.default_score));
  if (changed && s.gain - 1 < s.noise)
    text += "Runs of the default differ by more than that. Measure again when the machine is idle.\n\n";
  if (r.level.given() && !s.best_score.meets())
    text += fmt::format("NOT MET: the worst 95th percentile is {:.2f} times its bound.\n\n", s.best_score.violation);
  if (r.level.given() && s.best_score.meets() && !s.default_score.meets())
    text += fmt::format("The default misses the bounds by a factor of {:.2f}.\n\n", s.default_score.violation);
  return text + serve_command(r.engine, r.topics, s.best) + "\n";
}

nlohmann::ordered_json score_json(const AdviceReport& r, const AdviceScore& score) {
  nlohmann::ordered_json out{
      {"tokens_per_second", score.rate}, {"ttft_seconds", score.ttft}, {"tpot_seconds", score.tpot}};
  if (r.level.given()) {
    out["p95_over_bound"] = score.violation;
    out["meets"] = score.meets();
  }
  return out;
}

nlohmann::ordered_json row_json(const AdviceReport& r, const TriedValue& tried) {
  const AdviceTopic& topic = r.topics[tried.option];
  const AdviceChoice& choice = choice_of(r, tried);
  nlohmann::ordered_json row{{"optimization", topic.what},
                             {"choice", choice.what},
                             {"flag", choice.flag},
                             {"baseline", choice.value.baseline},
                             {"takes", topic.takes}};
  if (tried.gain) {
    row["gain"] = *tried.gain;
    row.update(score_json(r, tried.score));
    row["how"] = "measured";
  } else {
    row["not_tried"] = tried.not_tried;
  }
  if (tried.kl) row["kl"] = *tried.kl;
  row["advised"] = tried.advised;
  return row;
}

nlohmann::ordered_json rows_json(const AdviceReport& r) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const bool baselines : {false, true}) {
    for (const TriedValue* tried : ranked(r, baselines)) rows.push_back(row_json(r, *tried));
  }
  for (const AdvicePrediction& row : r.predictions.weight_types) {
    if (row.gain)
      rows.push_back({{"optimization", row.what},
                      {"choice", row.choice},
                      {"takes", row.takes},
                      {"gain", *row.gain},
                      {"how", "predicted"},
                      {"advised", false}});
  }
  return rows;
}

}  // namespace

std::string advice_text(const AdviceReport& r) {
  const SearchResult& s = r.search;
  std::string text = fmt::format("{} ({}, {} activations, {} KV cache), {}, {} threads\n", r.baseline.model.name,
                                 r.baseline.model.quantization, r.baseline.model.activations,
                                 r.baseline.model.kv_cache_dtype, cpu_name(), r.baseline.model.threads);
  text += fmt::format("workload   {}\nprompts    from {}\nobjective  {}\n", load_text(r), text_source(r), objective(r));
  text += fmt::format("default    {}\n", score_text(s.default_score));
  text += fmt::format("{} runs in {:.0f} s of {:.0f}", s.runs, s.seconds, r.limits.budget);
  text += fmt::format("; two runs of the default differ by {:.1f} %", 100 * s.noise);
  text += s.complete ? "\n\n" : "; the search ran out of its budget (--budget)\n\n";
  text += changes_table(r);
  text += "\n" + baselines_table(r);
  text += other_lines(r);
  if (r.level.given())
    text += "gain: of tokens/s where both meet the bounds, else of how far they miss them (p95/bound: the worst)\n";
  if (r.compared_tokens > 0)
    text +=
        fmt::format("KL: mean divergence from the default's predictions, of {} tokens, in nats; advised up to {:g}\n",
                    r.compared_tokens, r.limits.most_kl);
  text += "\nnot tried\n";
  for (const auto& [what, why] : not_tried(r)) text += fmt::format("  {}: {}\n", what, why);
  text += conclusion(r);
  if (r.exhaustive)
    text += fmt::format("\nexhaustive: the best of {} combinations gains {}, this {}; advice/best {:.3f}\n  {}\n",
                        r.exhaustive->combinations, gain_percent(r.exhaustive->best_gain),
                        gain_percent(r.exhaustive->candidate_gain), r.exhaustive->candidate_of_best,
                        serve_command(r.engine, r.topics, r.exhaustive->best));
  return text;
}

nlohmann::ordered_json advice_json(const AdviceReport& r) {
  const SearchResult& s = r.search;
  const ModelInfo& model = r.baseline.model;
  nlohmann::ordered_json out{{"model",
                              {{"name", model.name},
                               {"quantization", model.quantization},
                               {"activations", model.activations},
                               {"kv_cache_dtype", model.kv_cache_dtype},
                               {"threads", model.threads}}},
                             {"cpu", cpu_name()},
                             {"workload",
                              {{"name", r.workload.name},
                               {"concurrency", r.workload.concurrency},
                               {"requests_per_run", r.workload.requests.size()},
                               {"prompt_tokens", r.workload.mean_prompt()},
                               {"answer_tokens", r.workload.mean_answer()},
                               {"shared_prefix_tokens", r.workload.shared_prefix},
                               {"length_scale", r.workload.scale},
                               {"text", text_source(r)}}},
                             {"objective", objective(r)},
                             {"budget_seconds", r.limits.budget},
                             {"seconds", s.seconds},
                             {"runs", s.runs},
                             {"noise", s.noise},
                             {"complete", s.complete},
                             {"allowed_kl", r.limits.most_kl},
                             {"default", score_json(r, s.default_score)},
                             {"rows", rows_json(r)}};
  for (const auto& [what, why] : not_tried(r)) out["not_tried"].push_back({{"what", what}, {"why", why}});
  for (const BatchPrediction& batch : r.predictions.batching)
    out["batching"].push_back({{"concurrency", batch.concurrency}, {"predicted_tokens_per_second", batch.rate}});
  if (r.starts) out["start_seconds"] = {{"packing", r.starts->packing}, {"pack_cache", r.starts->mapping}};
  out["materialised_scores_bytes"] = r.score_bytes;
  out["best"] = score_json(r, s.best_score);
  out["best"].update({{"gain", s.gain}, {"kl", s.kl}, {"command", serve_command(r.engine, r.topics, s.best)}});
  if (r.exhaustive)
    out["exhaustive"] = {{"combinations", r.exhaustive->combinations},
                         {"best_gain", r.exhaustive->best_gain},
                         {"advice_gain", r.exhaustive->candidate_gain},
                         {"advice_of_best", r.exhaustive->candidate_of_best},
                         {"command", serve_command(r.engine, r.topics, r.exhaustive->best)}};
  return out;
}

}  // namespace quire
