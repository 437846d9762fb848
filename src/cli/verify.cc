// quire verify: the model's logits and greedy tokens beside a reference file's.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/logit_distance.h"
#include "engine/single_sequence.h"
#include "format/safetensors.h"

namespace quire {
namespace {

// One prompt of a reference file; what it does not hold is empty.
struct Expected {
  std::string name;
  TokenIds prompt;
  std::vector<float> logits;  // [prompt, vocab]
  TokenIds greedy;
  std::vector<float> margins;      // [greedy]: top-1 minus top-2 logit
  std::vector<float> step_logits;  // [steps, vocab] of the greedy steps, the first at the prompt's end
};

struct Comparison {
  std::string name;
  int prompt_tokens = 0, positions = 0, greedy_compared = 0, greedy_equal = 0;
  double max_difference = 0, mean_kl = 0, max_kl = 0, top1 = 0, max_logit = 0;
};

class Reference {
 public:
  explicit Reference(const std::string& path) : file_(Safetensors::open(path)) {}

  std::vector<Expected> prompts() {
    std::vector<Expected> all;
    for (int k = 0; has("prompt_" + std::to_string(k)); ++k) {
      const std::string n = "_" + std::to_string(k);
      all.push_back(
          {"prompt" + n, ids("prompt" + n), floats("logits" + n), ids("greedy" + n), floats("margin" + n), {}});
    }
    if (has("input_ids"))
      all.push_back({"input_ids", ids("input_ids"), floats("logits"), ids("greedy_tokens"), {}, {}});
    if (has("prompt"))
      all.push_back(
          {"prompt", ids("prompt"), floats("torch_prompt_logits"), ids("torch_tokens"), {}, floats("torch_logits")});
    if (all.empty())
      throw invalid("{}: none of prompt_0, input_ids, prompt is there; this is no reference file", file_.file());
    return all;
  }

  // Tensors that no layout knows.
  std::vector<std::string> unknown() const {
    std::vector<std::string> names;
    static const std::set<std::string> kOther = {"llama_cpp_logits", "llama_cpp_tokens", "float_model_logits"};
    for (const TensorView& t : file_.tensors()) {
      if (!used_.contains(t.name) && !kOther.contains(t.name)) names.push_back(t.name);
    }
    return names;
  }

 private:
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  template <class T>
  std::vector<T> values(const std::string& name, TensorType type) {
    const TensorView* t = file_.find_tensor(name);
    if (!t) return {};
    used_.insert(name);
    if (t->type != type)
      throw invalid("{}: tensor {} has type {}, expected {}", file_.file(), name, quire::name(t->type),
                    quire::name(type));
    std::vector<T> out(t->bytes.size() / sizeof(T));
    std::memcpy(out.data(), t->bytes.data(), t->bytes.size());
    return out;
  }
  TokenIds ids(const std::string& name) {
    const TensorView* t = file_.find_tensor(name);
    if (t && t->type == TensorType::I32) return values<TokenId>(name, TensorType::I32);
    TokenIds out;
    for (const int64_t id : values<int64_t>(name, TensorType::I64)) out.push_back(static_cast<TokenId>(id));
    return out;
  }
  std::vector<float> floats(const std::string& name) { return values<float>(name, TensorType::F32); }

  Safetensors file_;
  std::set<std::string> used_;
};

class Verifier {
 public:
  Verifier(LoadedModel& model, double tolerance)
      : model_(model), sequence_(model), vocab_(static_cast<size_t>(model.config.vocab)), tolerance_(tolerance) {}

  Comparison compare(const Expected& e) {
    Comparison c{.name = e.name, .prompt_tokens = static_cast<int>(e.prompt.size())};
    if (e.prompt.empty() || e.logits.size() != e.prompt.size() * vocab_) {
      throw invalid("{}: {} prompt tokens and {} logits do not fit a vocabulary of {}", e.name, e.prompt.size(),
                    e.logits.size(), vocab_);
    }
    sequence_.clear();
    std::vector<float> last;
    const auto chunk = static_cast<size_t>(model_.decoder->limits().max_logits);
    for (size_t at = 0; at < e.prompt.size(); at += chunk) {
      const auto ids = std::span(e.prompt).subspan(at, std::min(chunk, e.prompt.size() - at));
      const auto logits = sequence_.append(ids, true);
      for (size_t i = 0; i < ids.size(); ++i)
        add(c, std::span(e.logits).subspan((at + i) * vocab_, vocab_), logits.subspan(i * vocab_, vocab_));
      last.assign(logits.end() - static_cast<ptrdiff_t>(vocab_), logits.end());
    }
    greedy(c, e, std::move(last));
    c.mean_kl /= c.positions;
    c.top1 /= c.positions;
    return c;
  }

  double allowed(const Comparison& c) const { return tolerance_ > 0 ? tolerance_ : 2e-4 + 1e-4 * c.max_logit; }

 private:
  void add(Comparison& c, std::span<const float> expected, std::span<const float> got) {
    for (size_t i = 0; i < vocab_; ++i) {
      const double difference = std::abs(double{expected[i]} - got[i]);
      if (!(difference <= c.max_difference)) c.max_difference = difference;  // NaN too
      c.max_logit = std::max(c.max_logit, std::abs(double{expected[i]}));
    }
    const double kl = kl_divergence(expected, got);
    c.mean_kl += kl;
    c.max_kl = std::max(c.max_kl, kl);
    c.top1 += argmax(expected) == argmax(got);
    ++c.positions;
  }

  // The model decodes by itself, up to the first step that rounding alone could decide.
  void greedy(Comparison& c, const Expected& e, std::vector<float> logits) {
    for (size_t step = 0; step < e.greedy.size(); ++step) {
      if ((step + 1) * vocab_ <= e.step_logits.size())
        add(c, std::span(e.step_logits).subspan(step * vocab_, vocab_), logits);
      const TokenId best = argmax(logits);
      const double margin = e.margins.empty() ? margin_of(logits, best) : e.margins[step];
      const double small = e.margins.empty() ? 2 * allowed(c) : 1e-3;
      if (margin < small) return;
      ++c.greedy_compared;
      if (best != e.greedy[step]) return;
      ++c.greedy_equal;
      if (step + 1 == e.greedy.size()) return;
      const auto next = sequence_.append({&best, 1}, false);
      logits.assign(next.begin(), next.end());
    }
  }

  static double margin_of(std::span<const float> logits, TokenId best) {
    double margin = 1e30;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (static_cast<TokenId>(i) != best)
        margin = std::min(margin, double{logits[static_cast<size_t>(best)]} - logits[i]);
    }
    return margin;
  }

  LoadedModel& model_;
  SingleSequence sequence_;
  size_t vocab_;
  double tolerance_;
};

double tolerance_beside(const std::filesystem::path& expected) {
  const auto json = expected.parent_path() / "expected.json";
  if (!std::filesystem::exists(json)) return 0;
  return JsonObject::read(json).get_or<double>("suggested_tolerance_max_abs_fp32", 0.0);
}

struct VerifyOptions {
  EngineOptions engine;
  std::string expected;
  double tolerance = 0;
  bool json = false;
};

void run_verify(VerifyOptions& o) {
  o.engine.max_num_seqs = 1;
  o.engine.max_num_batched_tokens = 128;
  LoadedModel model(o.engine, 128);
  Reference reference(o.expected);
  Verifier verifier(model, o.tolerance > 0 ? o.tolerance : tolerance_beside(o.expected));
  bool passed = true;
  auto report = nlohmann::ordered_json::array();
  for (const Expected& e : reference.prompts()) {
    const Comparison c = verifier.compare(e);
    const bool ok = c.max_difference <= verifier.allowed(c) && c.greedy_equal == c.greedy_compared;
    passed = passed && ok;
    report.push_back({{"name", c.name},
                      {"prompt_tokens", c.prompt_tokens},
                      {"max_abs_logit_difference", c.max_difference},
                      {"tolerance", verifier.allowed(c)},
                      {"mean_kl", c.mean_kl},
                      {"max_kl", c.max_kl},
                      {"top1_agreement", c.top1},
                      {"greedy_compared", c.greedy_compared},
                      {"greedy_equal", c.greedy_equal},
                      {"greedy_steps", e.greedy.size()},
                      {"passed", ok}});
    if (!o.json) {
      std::printf(
          "%-10s %4d tokens  max |d| %.3g (allowed %.3g)  KL mean %.3g max %.3g  top-1 %.4f  greedy %d of %d compared "
          "(%zu)  %s\n",
          c.name.c_str(), c.prompt_tokens, c.max_difference, verifier.allowed(c), c.mean_kl, c.max_kl, c.top1,
          c.greedy_equal, c.greedy_compared, e.greedy.size(), ok ? "ok" : "DIFFERS");
    }
  }
  const auto unknown = reference.unknown();
  if (o.json) {
    const nlohmann::ordered_json out = {{"model", model.info.name},
                                        {"kernels", model.info.kernels},
                                        {"activations", model.info.activations},
                                        {"kv_cache_dtype", model.info.kv_cache_dtype},
                                        {"prompts", report},
                                        {"unknown_tensors", unknown},
                                        {"passed", passed}};
    std::printf("%s\n", out.dump(2).c_str());
  } else {
    for (const std::string& name : unknown) std::printf("not looked at: tensor %s\n", name.c_str());
    std::printf("%s: %s kernels, %s activations, %s KV cache\n", passed ? "within tolerance" : "OUT OF TOLERANCE",
                model.info.kernels.c_str(), model.info.activations.c_str(), model.info.kv_cache_dtype.c_str());
  }
  if (!passed) throw invalid("{} differs from {} by more than the tolerance", o.engine.model, o.expected);
}

}  // namespace

void add_verify_command(CLI::App& app) {
  auto o = std::make_shared<VerifyOptions>();
  o->engine.activations = "f32";
  CLI::App* command = app.add_subcommand("verify", "Compare a model's logits and greedy tokens with a reference file");
  add_engine_options(*command, o->engine);
  command
      ->add_option("expected", o->expected,
                   "reference file (.safetensors): prompt_k, logits_k, greedy_k, margin_k; or input_ids, logits, "
                   "greedy_tokens; or prompt, torch_*")
      ->required();
  command->add_option(
      "--tolerance", o->tolerance,
      "largest difference of a logit; default: the one in expected.json beside the file, else 2e-4 + 1e-4 max |logit|");
  command->add_flag("--json", o->json, "print one JSON object");
  command->callback([o] { run_verify(*o); });
}

}  // namespace quire
