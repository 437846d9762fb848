// quire verify: compares a model with a reference file, or the kernel sets of this machine with each other.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text_table.h"
#include "cli/verify/kernels.h"
#include "cli/verify/logits.h"
#include "format/safetensors.h"

namespace quire {
namespace {

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
      throw invalid("{} is not a reference file: it has none of the tensors prompt_0, input_ids, prompt", file_.file());
    return all;
  }

  // Tensors outside the known layouts.
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
    check_unchanged(file_.mappings());
    return out;
  }
  TokenIds ids(const std::string& name) {
    const TensorView* t = file_.find_tensor(name);
    if (t && t->type == TensorType::I32) return values<TokenId>(name, TensorType::I32);
    TokenIds out;
    for (const int64_t id : values<int64_t>(name, TensorType::I64)) {
      if (!std::in_range<TokenId>(id))
        throw invalid("{}: tensor {} has {}, which is not a token id", file_.file(), name, id);
      out.push_back(static_cast<TokenId>(id));
    }
    return out;
  }
  std::vector<float> floats(const std::string& name) { return values<float>(name, TensorType::F32); }

  Safetensors file_;
  std::set<std::string> used_;
};

// The tolerance in the expected.json next to a reference file; 0: there is none.
double suggested_tolerance(const std::filesystem::path& expected) {
  const auto json = expected.parent_path() / "expected.json";
  if (!std::filesystem::exists(json)) return 0;
  return JsonField::read(json).get_or<double>("suggested_tolerance_max_abs_fp32", 0.0);
}

struct VerifyOptions {
  EngineOptions engine;
  std::string expected;
  double tolerance = 0;
  KernelSetOptions kernel_sets;
  bool json = false;
};

void verify_kernel_sets(const VerifyOptions& o) {
  if (o.engine.device != "cpu") {
    throw CLI::ValidationError(
        "--device", "needs a reference file: without one, the kernel sets of this machine's processor are compared");
  }
  Progress progress;
  const KernelSetReport report = compare_kernel_sets(o.engine, o.kernel_sets, progress);
  progress.clear();
  if (o.json)
    std::printf("%s\n", to_json(report).dump(2).c_str());
  else
    print(report);
  if (!report.passed()) throw invalid("the kernel sets of this machine differ on {}", o.engine.model);
}

void verify_file(VerifyOptions& o) {
  o.engine.max_num_seqs = 1;
  o.engine.max_num_batched_tokens = 128;
  Progress progress;
  progress.stage("loading " + o.engine.model);
  LoadedModel model(o.engine, 128);
  Reference reference(o.expected);
  Verifier verifier(model, o.tolerance > 0 ? o.tolerance : suggested_tolerance(o.expected));
  bool passed = true;
  auto report = nlohmann::ordered_json::array();
  TextTable table({"prompt", "tokens", "max diff", "allowed", "mean KL", "max KL", "top-1", "greedy", "result"}, 1);
  for (const Expected& e : reference.prompts()) {
    progress.stage("comparing " + e.name);
    const Comparison c = verifier.compare(e);
    const bool ok = verifier.passed(c);
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
    table.add({c.name, fmt::format("{}", c.prompt_tokens), fmt::format("{:.2g}", c.max_difference),
               fmt::format("{:.2g}", verifier.allowed(c)), fmt::format("{:.2g}", c.mean_kl),
               fmt::format("{:.2g}", c.max_kl), fmt::format("{:.4f}", c.top1),
               fmt::format("{}/{}", c.greedy_equal, c.greedy_compared), ok ? "ok" : "DIFFERS"});
  }
  progress.clear();
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
    std::printf("%s\n", table.text().c_str());
    for (const std::string& name : unknown) std::printf("ignored tensor: %s\n", name.c_str());
    std::printf("%s (%s kernels, %s activations, %s KV cache)\n", passed ? "within tolerance" : "OUT OF TOLERANCE",
                model.info.kernels.c_str(), model.info.activations.c_str(), model.info.kv_cache_dtype.c_str());
  }
  if (!passed) throw invalid("{} differs from {} by more than the tolerance", o.engine.model, o.expected);
}

}  // namespace

void add_verify_command(CLI::App& app) {
  auto o = std::make_shared<VerifyOptions>();
  o->engine.activations = "f32";
  CLI::App* command = app.add_subcommand(
      "verify",
      "Compare a model's logits and greedy tokens with a reference file; without one, compare the kernel sets of this "
      "machine with each other");
  auto* expected =
      command
          ->add_option("expected", o->expected,
                       "reference file (.safetensors) with the tensors prompt_k, logits_k, greedy_k, margin_k; or "
                       "input_ids, logits, greedy_tokens; or prompt, torch_*")
          ->type_name("FILE");
  add_model_options(*command, o->engine);
  command->remove_option(command->get_option("--max-num-batched-tokens"));
  command->get_option("--activations")
      ->description(
          "data type that the inputs of linear layers are rounded to (docs/exactness.md); defaults to auto when "
          "comparing kernel sets");
  command->add_flag("--json", o->json, "print the results as a JSON object");
  command
      ->add_option("--tolerance", o->tolerance,
                   "largest allowed difference of a logit (default: the one in expected.json next to the file, else "
                   "2e-4 + 1e-4 max |logit|)")
      ->needs(expected)
      ->group("Comparison with a file");
  constexpr const char* kSetsGroup = "Comparison of kernel sets";
  command
      ->add_option("--kernel-sets", o->kernel_sets.sets,
                   "kernel sets to compare with the first of them (default: all of this machine, reference first)")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->group(kSetsGroup)
      ->excludes(expected);
  command->add_option("--prompt-tokens", o->kernel_sets.prompt_tokens, "length of the prompt")
      ->check(CLI::Range(1, 128))
      ->group(kSetsGroup)
      ->capture_default_str();
  command->add_option("--greedy-tokens", o->kernel_sets.greedy_tokens, "tokens to decode after the prompt")
      ->check(CLI::Range(0, 4096))
      ->group(kSetsGroup)
      ->capture_default_str();
  command->callback([o, command] {
    if (!o->expected.empty()) return verify_file(*o);
    if (o->engine.tensor_parallel_size > 1)
      throw CLI::ValidationError("--tensor-parallel-size", "must be 1 to compare kernel sets");
    if (command->get_option("--activations")->count() == 0) o->engine.activations = "auto";
    verify_kernel_sets(*o);
  });
}

}  // namespace quire
